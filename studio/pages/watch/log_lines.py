"""A run's events as lines for a person: time, what happened, and what follows from it."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from core.contract.config import RunConfig
from core.contract.events import Correction, Event, parse_event
from core.contract.knobs import knobs
from core.runs.log.events_log import EventTail
from studio.figures.run_figures import bytes_words, duration
from studio.pages.watch.words import say
from studio.words.faults import in_one

_KNOBS = knobs(RunConfig)
_STEP = b'{"kind":"step"'
_TOLD_BY_RESULT = ("training", "evaluating", "saving")
"""Recurring stages, whose results have lines of their own."""


def log_lines(log: Path, keep: int = 400) -> list[str]:
    """The log's last ``keep`` lines, without the steps, which the charts show."""
    lines = (line for line in EventTail(log).read_lines() if not line.startswith(_STEP))
    return said(event for line in lines if (event := parse_event(line)))[-keep:]


def said(events: Iterable[Event]) -> list[str]:
    """One line an event; progress within a stage has one line."""
    lines: list[str] = []
    stage, began = "", 0.0
    for event in events:
        if event.kind == "starting" and not began:
            began = event.at
        if event.kind == "stage":
            if event.stage in (*_TOLD_BY_RESULT, stage):  # type: ignore[attr-defined]
                continue
            stage = event.stage  # type: ignore[attr-defined]
        words = _WORDS.get(event.kind, lambda _: "")(event)
        if event.kind == "finished" and began:  # of all attempts; the worker counts its own alone
            words = say("log.finished", time=duration(event.at - began))
        if words:
            lines.append(f"{time.strftime('%H:%M:%S', time.localtime(event.at))}  {words}")
    return lines


def correction_words(item: Correction) -> str:
    """A correction of a setting, by its label."""
    key = _KNOBS[item.key].label if item.key in _KNOBS else item.key
    return say("correction", step=f"{item.step:,}", key=key, old=item.old, new=item.new, reason=item.reason)


def _checkpoint(event: Any) -> str:
    best = f", {say('log.best')}" if event.best else ""
    return say("log.checkpoint", name=event.name, size=bytes_words(event.bytes)) + best


def _evaluation(event: Any) -> str:
    loss = "–" if event.loss is None else f"{event.loss:.4f}"
    key = "log.evaluation" if event.step else "log.evaluation_before"
    return say(key, step=f"{event.step:,}", loss=loss, rows=event.rows, time=duration(event.seconds))


_WORDS: dict[str, Callable[[Any], str]] = {
    "queued": lambda event: say("log.queued_for", reason=event.reason) if event.reason else say("log.queued"),
    "starting": lambda event: say(
        "log.resumed_from" if event.resumed_step else "log.starting",
        attempt=event.attempt,
        step=f"{event.resumed_step:,}",
    ),
    "hello": lambda event: say("log.hello", device=event.device_name or event.device, pid=event.pid),
    "stage": lambda event: ": ".join(part for part in (say(f"stage.{event.stage}"), event.text) if part),
    "plan": lambda event: say("log.plan", steps=f"{event.total_steps:,}", rows=f"{event.train_rows:,}"),
    "evaluation": _evaluation,
    "checkpoint": _checkpoint,
    "correction": correction_words,
    "acknowledged": lambda event: say("log.acknowledged", command=event.command),
    "paused": lambda event: say("log.paused", step=f"{event.step:,}"),
    "resumed": lambda _: say("log.resumed"),
    "note": lambda event: f"{event.text} {event.hint}".strip(),
    "exported": lambda event: say("log.exported", name=event.name, size=bytes_words(event.bytes)),
    "finished": lambda event: say("log.finished", time=duration(event.seconds)),
    "stopped": lambda event: say("log.stopped" if event.kept else "log.stopped_now"),
    "failed": in_one,
}
