"""The light end of a probe: starts the child, tells what it is at, and keeps what it found for the planner.

The child takes the card's lock without waiting; where a run holds the card, that is said. A child that is no longer
wanted is ended by closing its pipe.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import IO, Any

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.contract.errors import Fault, MachineError, RunError
from core.contract.estimate import Probe
from core.estimate import resolve
from core.machine.hardware import Machine, read_machine
from core.machine.locations import Locations
from core.probe.longest import lesson, longest_step
from core.probe.messages import Setup
from core.runs.control.gpu_lease import Patience, ending_of, left_the_card, spawn_leased
from core.runs.record.learned import append
from core.runs.supervise.kernel_check import check_kernels_once, forget_kernels
from core.runs.supervise.worker_process import card_environment

SECONDS = 10.0
LOOK_SECONDS = 0.1
ENDING_SECONDS = 5.0
CALLED_OFF = frozenset({"card.busy", "probe.cancelled"})
PATIENCE_SECONDS = 900.0
"""A large model comes slowly from a slow disk; what takes longer hangs."""


def probe(
    config: RunConfig,
    spec: ModelSpec,
    facts: DataFacts | None,
    locations: Locations,
    on_stage: Callable[[str], None] = lambda _stage: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Probe:
    """Trains the longest step of this run for ten seconds on this machine, throws it away, and tells what it took.

    What was found is a line of ``learned.jsonl`` from then on, and so corrects every estimate of runs like this one.

    Args:
        on_stage: told ``starting``, ``loading`` and ``stepping``, each once.
        cancelled: asked ten times a second; True ends the probe.

    Raises:
        MachineError: ``card.busy`` where a run holds the card, ``probe.memory`` or ``model.memory`` where the card is
            too small, ``probe.cancelled``.
        Fault: the model cannot be used, or the child died.
    """
    on_stage("starting")
    machine = read_machine(locations.home)
    if facts is not None and facts.kin is None:  # what is tried and what is foretold of it are the same steps
        facts = facts.model_copy(update={"kin": ()})
    config, _ = resolve(config, spec, facts, machine)
    config, plain = _kernels(config, machine, locations, cancelled)
    setup = Setup(
        config=config, spec=spec, lengths=tuple(longest_step(config, facts)), seconds=SECONDS,
        home=str(locations.home), lock_name=machine.lock_name,
    )  # fmt: skip
    child = _Child(setup, _environment(machine, locations, plain))
    try:
        found = _result(child, Patience(locations, machine.lock_name, PATIENCE_SECONDS), on_stage, cancelled)
    except Fault as error:
        if error.code not in CALLED_OFF:
            forget_kernels(locations)  # whatever it was, what ran once may run no more
        raise
    finally:
        child.close()
    with contextlib.suppress(OSError):  # a full disk is no fault of the probe
        append(locations.make(), lesson(found, config, spec, facts, machine, time.time()))
    return found


def _kernels(
    config: RunConfig, machine: Machine, locations: Locations, cancelled: Callable[[], bool]
) -> tuple[RunConfig, bool]:
    """Where our kernels do not run, the run would take the plain path, and so does its probe."""
    if machine.gpu is None or config.train.kernels == "plain":
        return config, False
    if check_kernels_once(machine.gpu, locations, cancelled) is None:
        return config, False
    return config.model_copy(update={"train": config.train.model_copy(update={"kernels": "plain"})}), True


def _result(child: _Child, patience: Patience, on_stage: Callable[[str], None], cancelled: Callable[[], bool]) -> Probe:
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


class _Child:
    """The child process. Its words come over a thread, so that waiting for one can be given up."""

    def __init__(self, setup: Setup, environment: Mapping[str, str]) -> None:
        self._process = spawn_leased("core.probe.child", environment)
        self._said: queue.Queue[str] = queue.Queue()
        self._last_words: deque[str] = deque(maxlen=20)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._threads = (
            self._read(self._process.stdout, self._said.put, end=""),
            self._read(self._process.stderr, self._last_words.append),
        )
        with contextlib.suppress(OSError):  # it died at once: the next look finds out
            assert self._process.stdin is not None
            self._process.stdin.write(setup.model_dump_json() + "\n")
            self._process.stdin.flush()

    def hear(self, seconds: float) -> dict[str, Any] | None:
        """Its next word; None where it says nothing for so long.

        Raises:
            RunError: it died without a result.
        """
        try:
            line = self._said.get(timeout=seconds)
        except queue.Empty:
            return None
        if not line:
            raise self._died()
        word: dict[str, Any] = json.loads(line)
        return word

    def kill(self) -> None:
        """Ends it at once: it hears nothing any more."""
        self._process.kill()

    def close(self) -> None:
        """Ends it, kindly first."""
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(timeout=ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join(timeout=1)
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def _died(self) -> Fault:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=ENDING_SECONDS)
        self._threads[1].join(timeout=1)
        why, last = ending_of(self._process.poll(), tuple(self._last_words))
        return RunError("probe.died", reason=why, last=last)

    @staticmethod
    def _read(pipe: IO[str], take: Callable[[str], None], end: str | None = None) -> threading.Thread:
        def read() -> None:
            with contextlib.suppress(ValueError):  # closed by close()
                for line in pipe:
                    take(line)
            if end is not None:
                take(end)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread


def _environment(machine: Machine, locations: Locations, plain: bool) -> dict[str, str]:
    """As a worker is told, the same root folder, and no word to anyone."""
    quiet = {"HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUTF8": "1"}
    ours = {"LUTHIER_HOME": str(locations.home), **quiet}
    return {**os.environ, **ours, **card_environment(os.environ, machine, plain)}
