"""Starts a probe's child process, reports its stages, and keeps its result for the planner."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.contract.errors import Fault, MachineError, RunError
from core.contract.estimate import Probe
from core.estimate import resolve
from core.estimate.inputs.cards import by_itself
from core.machine.children.line_child import EndedError, LineChild
from core.machine.hardware import Machine, read_machine
from core.machine.locations import Locations
from core.models.suited import put
from core.proof.probe.longest import lesson, longest_step
from core.proof.probe.messages import Setup
from core.runs.control.gpu_lease import Patience, left_the_card
from core.runs.record.learned import append
from core.runs.supervise.kernel_check import check_kernels_once, forget_kernels
from core.runs.supervise.worker_process import card_environment

SECONDS = 10.0
LOOK_SECONDS = 0.1
CALLED_OFF = frozenset({"card.busy", "probe.cancelled"})
PATIENCE_SECONDS = 900.0
"""Enough for a large model on a slow disk; a probe that takes longer hangs."""


def probe(
    config: RunConfig,
    spec: ModelSpec,
    facts: DataFacts | None,
    locations: Locations,
    on_stage: Callable[[str], None] = lambda _stage: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Probe:
    """Trains the longest step of this run for ten seconds and returns what it took; of several cards, the largest share
    of a step on the one that decides.

    The result becomes a line of ``learned.jsonl``, which corrects estimates of runs like this one.

    Args:
        on_stage: told ``starting``, ``loading`` and ``stepping``, each once.
        cancelled: asked ten times a second; True ends the probe.

    Raises:
        MachineError: a card is not there; ``card.busy`` where a run holds it, ``probe.memory`` or ``model.memory``
            where it is too small, ``probe.cancelled``.
        Fault: the model cannot be used, or the child died.
    """
    on_stage("starting")
    job = read_machine(locations.home).choosing(config.train.cards)
    machine, sharing = by_itself(job), 1 if job.unlike else job.cards.ranks
    if facts is not None and facts.split_groups is None:  # probe and estimate deal the same steps
        facts = facts.model_copy(update={"split_groups": ()})
    config, _ = resolve(config, spec, facts, job)
    config, plain = _kernels(config, machine, locations, cancelled)
    setup = Setup(
        config=config, spec=spec, lengths=tuple(longest_step(config, facts, sharing)), seconds=SECONDS,
        home=str(locations.home), cards=machine.cards,
    )  # fmt: skip
    child = LineChild("core.proof.probe.child", _environment(machine, locations, plain))
    try:
        child.send(setup.model_dump(mode="json"))
        result = _result(child, Patience(locations, machine.cards, PATIENCE_SECONDS), on_stage, cancelled)
    except EndedError as end:
        forget_kernels(locations)
        raise RunError("probe.died", reason=end.reason, last=end.last) from end
    except Fault as error:
        if error.code not in CALLED_OFF:
            forget_kernels(locations)  # the kernels may be at fault
        raise
    finally:
        child.close()
    with contextlib.suppress(OSError):  # the result is good on a full disk too
        append(locations.make(), lesson(result, config, spec, facts, job, time.time()))
    return result


def _kernels(
    config: RunConfig, machine: Machine, locations: Locations, cancelled: Callable[[], bool]
) -> tuple[RunConfig, bool]:
    """The config and whether kernels are off: where they do not run, run and probe take the plain path."""
    if machine.gpu is None or config.train.kernels == "plain":
        return config, False
    if check_kernels_once((machine.gpu,), locations, cancelled) is None:
        return config, False
    return put(config, "train.kernels", "plain"), True


def _result(
    child: LineChild, patience: Patience, on_stage: Callable[[str], None], cancelled: Callable[[], bool]
) -> Probe:
    while True:
        if cancelled():
            raise MachineError("probe.cancelled")
        if (why := patience.is_over()) == "card":
            child.kill()
            raise left_the_card("the probe")
        if why:
            child.kill()
            raise MachineError("probe.slow", minutes=PATIENCE_SECONDS / 60)
        word = child.hear(LOOK_SECONDS)
        if word is None:
            continue
        if "code" in word:
            raise Fault.told_by(word)
        if "stage" not in word:
            return Probe.model_validate(word)
        on_stage(word["stage"])


def _environment(machine: Machine, locations: Locations, plain: bool) -> dict[str, str]:
    """A worker's environment with the same root folder and without telemetry."""
    quiet = {"HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUTF8": "1"}
    ours = {"LUTHIER_HOME": str(locations.home), **quiet}
    return {**ours, **card_environment(os.environ, machine, plain)}
