"""What to do about a run that ended badly: one action a cause, as a button that does it.

::

    cut off, killed, no room  ─►  resume                      the last checkpoint stands
    data or versions differ   ─►  resume anyway               said by a person, kept in the log
    memory, numbers, kernels  ─►  run again with one change   the mildest that has not been made yet
    it came out worse         ─►  run again, learning less strongly

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
from studio.words.text import say

_SHORTEST = 256
_WORSE = "run.worse"
_KNOBS = knobs(RunConfig)


def trouble(failure_code: str, became: Outcome | None) -> str:
    """The code of the failure, or that the model came out worse; else empty."""
    return failure_code or (_WORSE if became and became.verdict == "worse" else "")


def trouble_of(record: RunRecord) -> str:
    """The same of a run's record."""
    return trouble(record.failure.code if record.failure else "", outcome(record))


def next_action(state: str, code: str) -> str:
    """``resume``, ``anyway``, ``rerun``, ``mend`` (run again with the proposed change), or "" for nothing."""
    if state == "lost":
        return "resume"
    if code == _WORSE:
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
    """The next action as a page's button: what it asks for, and its words; both "" where nothing needs to be done, or
    the run's run.yaml cannot be read."""
    code = trouble_of(record)
    verb = next_action(record.state, code)
    if verb:  # in most ticks not: then no file needs to be read
        with contextlib.suppress(Fault):
            # The effective settings: what is proposed has not been made yet.
            changes = change_for(code, effective_config(folder.config(), record.corrections)) if verb == "mend" else {}
            words = say("history.mend", change=change_words(changes)) if changes else say.get(f"history.{verb}")
            return {"verb": verb, "words": words}
    return {"verb": "", "words": ""}


def change_words(changes: dict[str, Any]) -> str:
    """The change as a person reads it: "Max length: 1,024"."""
    return ", ".join(f"{_KNOBS[key].label}: {value_words(key, value)}" for key, value in changes.items())


def value_words(key: str, value: Any) -> str:
    """One setting's value as its form would show it."""
    if named := say.get(f"choice.{key}.{value}"):
        return named
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


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


def _gentler(config: RunConfig) -> dict[str, Any]:
    """A quarter of the rate, and no more than the usual one."""
    rate = min(config.train.learning_rate / 4, TrainChoice().learning_rate)
    return {"train.learning_rate": float(f"{rate:.3g}")}


def _plain_kernels(_: RunConfig) -> dict[str, Any]:
    return {"train.kernels": "plain"}


_CHANGES: dict[str, Callable[[RunConfig], dict[str, Any]]] = {
    "memory.gpu": _less_memory,
    "memory.row": _less_memory,
    "memory.optimizer": _less_memory,
    "model.memory": _less_memory,
    "train.not_finite": _gentler,
    _WORSE: _gentler,
    "worker.restarts": _plain_kernels,
    "worker.stalled": _plain_kernels,
    "gpu.unusable": _plain_kernels,
}
_ANYWAY = frozenset({"run.differs"})
"""``core.train.keep.depends.DIFFERS``, which imports torch; a test compares the two."""
_FOR_GOOD = ("config.", "data.", "model.")
"""Causes that recur with the same settings: New run opens, where they can be changed."""
