"""What to do about a run that ended badly: one action a cause, as a button that does it.

::

    cut off, killed, no room  ─►  resume                      the last checkpoint stands
    data or versions differ   ─►  resume anyway               said by a person, kept in the log
    memory, numbers, kernels  ─►  run again with one change   the mildest that has not been made yet
    it came out worse         ─►  run again with half the learning rate; a quarter where it rose a lot, or diverged
    it learned nothing        ─►  run again with a higher rate, or for longer where the rate is the usual one

A change is a setting of the config, so that New run shows it like any other and it can be undone there.
"""

import contextlib
from collections.abc import Callable
from typing import Any

from core.contract.config import RunConfig, TrainChoice
from core.contract.errors import Fault
from core.contract.knobs import knobs
from core.contract.weight_forms import SMALLEST_WEIGHT_FORM
from core.runs.folder.job_folder import JobFolder
from core.runs.record.job_record import RunRecord, effective_config
from core.runs.record.outcome import Outcome, outcome
from studio.figures.run_figures import used_words, verdict_of
from studio.words.text import say

_SHORTEST = 256
_WORSE, _RUINED, _UNMOVED = "run.worse", "run.ruined", "run.unmoved"
_ENOUGH_EPOCHS = 3.0
_KNOBS = knobs(RunConfig)


def trouble(failure_code: str, became: Outcome | None) -> str:
    """The code of the failure, or of what the model became where something else is to be tried; else empty."""
    if failure_code or became is None:
        return failure_code
    if became.ruined:
        return _RUINED if became.far else _WORSE
    return _UNMOVED if became.verdict == "no_better" else ""


def trouble_of(record: RunRecord) -> str:
    """The same of a run's record."""
    return trouble(record.failure.code if record.failure else "", outcome(record))


def next_action(state: str, code: str) -> str:
    """``resume``, ``anyway``, ``rerun``, ``mend`` (run again with the proposed change), or "" for nothing."""
    if state == "lost":
        return "resume"
    if code in (_WORSE, _RUINED) or (code == _UNMOVED and state == "finished"):  # a stopped one can go on
        return "mend"
    if state != "failed":
        return ""
    if code in _CHANGES:
        return "mend"
    if code in _ANYWAY:
        return "anyway"
    return "rerun" if code.startswith(_FOR_GOOD) else "resume"


def change_for(code: str, config: RunConfig) -> dict[str, Any]:
    """The settings proposed after this failure; empty where none is known."""
    propose = _CHANGES.get(code)
    return propose(config) if propose else {}


def next_button(folder: JobFolder, record: RunRecord) -> dict[str, str]:
    """The next action as a page's button: what it asks for, its words, and what is proposed "about" the run; all ""
    where nothing needs to be done, or the run's run.yaml cannot be read."""
    code = trouble_of(record)
    verb = next_action(record.state, code)
    if verb:  # in most ticks not: then no file needs to be read
        with contextlib.suppress(Fault):
            # The effective settings: what is proposed has not been made yet.
            config = effective_config(folder.config(), record.corrections)
            changes = change_for(code, config) if verb == "mend" else {}
            words = say("history.mend", change=change_words(changes)) if changes else say.get(f"history.{verb}")
            return {"verb": verb, "words": words, "about": _about(changes, config) if code in _OF_VERDICTS else ""}
    return {"verb": "", "words": "", "about": ""}


def verdict_shown(folder: JobFolder, record: RunRecord) -> dict[str, str] | None:
    """The verdict as pages show it: with what is proposed, and the checkpoint that is used. Nobody is sent to try what
    was not saved."""
    became = outcome(record)
    if became is None:
        return None
    unsaved = "" if folder.newest_checkpoint() else say("verdict.unsaved")
    return verdict_of(became, used_words(folder), next_button(folder, record)["about"] or unsaved)


def change_words(changes: dict[str, Any]) -> str:
    """The change as a person reads it: "max length 1,024", "gradient checkpointing: in every layer"."""
    return ", ".join(
        f"{within(_KNOBS[key].label)}{':' if isinstance(value, str) else ''} {value_words(key, value)}"
        for key, value in changes.items()
    )


def within(label: str) -> str:
    """A label within a sentence: "learning rate", but "LoRA rank"."""
    return label[:1].lower() + label[1:] if label.split(" ")[0][1:].islower() else label


def _about(changes: dict[str, Any], config: RunConfig) -> str:
    """What the proposal is, in a sentence."""
    rate = changes.get("train.learning_rate")
    if rate is None:
        return say("verdict.longer") if changes else ""
    times = round(rate / config.train.learning_rate, 2)
    return say(f"verdict.{_TIMES.get(times, 'usual')}")


def value_words(key: str, value: Any) -> str:
    """One setting's value as its form would show it."""
    if named := say.get(f"choice.{key}.{value}"):
        return named
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}".replace("e-0", "e-")


def _less_memory(config: RunConfig) -> dict[str, Any]:
    """The mildest first: only the last changes what is learned, by cutting rows."""
    if config.train.checkpointing not in ("recompute", "offload"):
        return {"train.checkpointing": "recompute"}
    if config.train.checkpointing == "recompute":
        return {"train.checkpointing": "offload"}
    smallest = SMALLEST_WEIGHT_FORM
    if config.model.form.bits > smallest.bits and smallest.name in config.learns.weight_forms:
        return {"model.quantization": SMALLEST_WEIGHT_FORM.name}
    return {"train.max_length": max(_SHORTEST, config.train.max_length // 2)}


def _usual(config: RunConfig) -> float:
    return (config.learning.usual_rate or TrainChoice().learning_rate) * config.learns.rate_share


def _rate(config: RunConfig, times: float) -> dict[str, Any]:
    """So many times the rate; a lower one is no more than the usual one."""
    rate = config.train.learning_rate * times
    return {"train.learning_rate": float(f"{min(rate, _usual(config)) if times < 1 else min(rate, 1.0):.3g}")}


def _gentler(config: RunConfig) -> dict[str, Any]:
    return _rate(config, 0.25)


def _stronger(config: RunConfig) -> dict[str, Any]:
    """The rate, where it is below the usual one or the rows were seen often enough; else more of them."""
    train = config.train
    if train.learning_rate >= _usual(config):
        if train.max_steps:
            return {"train.max_steps": 2 * train.max_steps}
        if train.num_train_epochs < _ENOUGH_EPOCHS:
            return {"train.num_train_epochs": min(_ENOUGH_EPOCHS, 2 * train.num_train_epochs)}
    return _rate(config, 2.0)


def _plain_kernels(_: RunConfig) -> dict[str, Any]:
    return {"train.kernels": "plain"}


_CHANGES: dict[str, Callable[[RunConfig], dict[str, Any]]] = {
    "memory.gpu": _less_memory,
    "memory.row": _less_memory,
    "memory.optimizer": _less_memory,
    "model.memory": _less_memory,
    "train.not_finite": _gentler,
    _WORSE: lambda config: _rate(config, 0.5),
    _RUINED: _gentler,
    _UNMOVED: _stronger,
    "worker.restarts": _plain_kernels,
    "worker.stalled": _plain_kernels,
    "gpu.unusable": _plain_kernels,
}
_OF_VERDICTS = frozenset({_WORSE, _RUINED, _UNMOVED})
_TIMES = {0.5: "half", 0.25: "quarter", 2.0: "double"}
"""What a rate is called beside the one before."""
_ANYWAY = frozenset({"run.differs"})
"""``core.train.keep.depends.DIFFERS``, which imports torch; a test compares the two."""
_FOR_GOOD = ("config.", "data.", "model.")
"""Causes that recur with the same settings: New run opens, where they can be changed."""
