"""Rows of the history: what a run is called, how it went and what can be done next; and the filter that selects them.

Filtered and sorted here and not in the page, so that a root with hundreds of runs sends a screenful. Plain values only.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from core.contract.methods import METHODS
from core.models.catalog import presets
from core.runs.record.summary import RunSummary
from core.runs.record.words import VERDICTS, damage_words, outcome_line
from studio.figures.proposals import next_action, trouble
from studio.figures.run_figures import (
    LIVING,
    UNKNOWN,
    buttons_of,
    bytes_words,
    cards_words,
    day_and_time,
    duration,
    made_at,
    measure_words,
    model_words,
    state_of,
    steps_words,
)
from studio.figures.run_names import Names, plain_title
from studio.words.faults import said
from studio.words.runs import STATES
from studio.words.text import say

GROUPS = {"queued": "living", "starting": "living", "training": "living", "lost": "failed", "unreadable": "failed"}
"""States that the filter joins; every other state is a group of its own."""
SPANS = {"day": 1, "week": 7, "month": 31, "year": 366}
"""Choices of "when", in days back from now."""
_DAY_SECONDS = 86_400
_WIDE, _HIGH, _EDGE = 96, 24, 3
"""A small curve's picture, and its margin."""
_GOES_ON = frozenset({"resume", "anyway"})


def _seconds(run: RunSummary) -> float | None:
    return run.ended_at - run.started_at if run.begun and run.started_at and run.ended_at else None


SORTS: dict[str, Callable[[RunSummary, Names], Any]] = {
    "title": lambda run, names: names.title(run).casefold(),
    "model": lambda run, _: (model_words(run.model_name).casefold(), run.method),
    "held_out": lambda run, _: run.eval_loss if run.best_loss is None else run.best_loss,
    "took": lambda run, _: _seconds(run),
    "when": lambda run, _: run.run_id[:15],
    "size": lambda run, _: run.bytes_on_disk,
}
"""By what rows may be sorted, by the column's name. What has no such value comes last either way."""


@dataclass(frozen=True)
class RowFilter:
    """What is searched for, and the order. Empty means anything, and the newest first; all ``words`` must occur in the
    run's names, tags, note or state. Pinned runs come first."""

    words: str = ""
    state: str = ""
    model: str = ""
    method: str = ""
    when: str = ""
    tagged: str = ""
    sort: str = ""
    down: bool = False

    def fits(self, run: RunSummary, now: float, names: Names) -> bool:
        """Whether a run matches."""
        if self.state and self.state != GROUPS.get(run.state, run.state):
            return False
        if (self.model and self.model != model_words(run.model_name)) or (self.method and self.method != run.method):
            return False
        if self.tagged and self.tagged not in run.marks.tags:
            return False
        if self.when in SPANS and (made_at(run.run_id) or 0) < now - SPANS[self.when] * _DAY_SECONDS:
            return False
        if not self.words:
            return True
        states = (STATES[run.state][0], state_of(run.state, run.outcome)[0])
        words = (
            names.title(run), *states, run.run_id, run.model_name, run.data_name, run.preset, run.method,
            day_and_time(made_at(run.run_id)), run.marks.note, *run.marks.tags,
        )  # fmt: skip
        searched = " ".join(words).lower()
        return all(word in searched for word in self.words.lower().split())

    def in_order(self, runs: Sequence[RunSummary], names: Names) -> list[RunSummary]:
        """These runs, the newest first, in the order that is asked for."""
        if by := SORTS.get(self.sort):
            keys = {run.run_id: by(run, names) for run in runs}
            known = [run for run in runs if keys[run.run_id] is not None]
            rest = [run for run in runs if keys[run.run_id] is None]
            runs = sorted(known, key=lambda run: keys[run.run_id], reverse=self.down) + rest
        return sorted(runs, key=lambda run: not run.marks.pinned)

    def answer(self, runs: Sequence[RunSummary], limit: int) -> dict[str, Any]:
        """The rows of the first ``limit`` runs that match, how many match, and what there is to choose from."""
        now, names = time.time(), Names(runs)
        matching = [run for run in runs if self.fits(run, now, names)]
        after: dict[str, list[str]] = {}
        for run in runs:
            after.setdefault(run.resume_from, []).append(names.title(run))
        return {
            "runs": [row(run, names, after.get(run.run_id, ())) for run in self.in_order(matching, names)[:limit]],
            "count": len(matching),
            "all": len(runs),
            "models": sorted({model_words(run.model_name) for run in runs}),
            "methods": sorted({run.method for run in runs if run.method}),
            "tags": sorted({tag for run in runs for tag in run.marks.tags}, key=str.casefold),
        }


def _measured(run: RunSummary) -> str:
    """The method's measure before training and at its best, as the verdict saw it: "52% → 91%"."""
    if run.own is None:
        return ""
    best = run.own.last if run.own.after is None else run.own.after
    ends = [measure_words(run.own.name, value) for value in (run.own.before, best) if value is not None]
    return " → ".join(dict.fromkeys(ends))


def _held_out(run: RunSummary) -> str:
    """The held-out loss before training and at its best: "2.500 → 1.203"; the latest alone where one is missing."""
    best = run.eval_loss if run.best_loss is None else run.best_loss
    ends = [measure_words("loss", one) for one in (run.before_loss, best) if one is not None]
    return " → ".join(dict.fromkeys(ends)) or UNKNOWN


def path_of(curve: Sequence[tuple[float, float]]) -> str:
    """A small curve as the path of a picture of 96 × 24; empty for less than two points."""
    known = [(at, value) for at, value in curve if math.isfinite(at) and math.isfinite(value)]
    if len(known) < 2:
        return ""
    first, last, losses = known[0][0], known[-1][0], [value for _, value in known]
    low, wide, high = min(losses), (last - first) or 1.0, (max(losses) - min(losses)) or 1.0
    points = (
        (_EDGE + (at - first) / wide * (_WIDE - 2 * _EDGE), _HIGH - _EDGE - (value - low) / high * (_HIGH - 2 * _EDGE))
        for at, value in known
    )
    return "M" + "L".join(f"{x:.0f} {y:.0f}" for x, y in points)


def row(run: RunSummary, names: Names | None = None, after: Sequence[str] = ()) -> dict[str, Any]:
    """A run as one row; ``after`` are the titles of the runs that go on from it."""
    names = names or Names()
    became = run.outcome
    code, damage = trouble(run.failure.code if run.failure else "", became), damage_words(run.damaged)
    cause, cure = said(run.failure) if run.failure else ("", "")
    if run.state == "lost":
        cause, cure = say("state.lost.cause"), say("state.lost.cure")
    elif became and became.ruined:
        cause, cure = f"{outcome_line(became)}.", VERDICTS[became.verdict].advice
    (word, tone), took, does = state_of(run.state, became), _seconds(run), next_action(run.state, code)
    return {
        "id": run.run_id,
        "title": names.title(run),
        "short": run.name or plain_title(run),
        "name": run.name,
        "word": word,
        "tone": tone,
        "verdict": outcome_line(became) if became and not cause else "",
        "state": run.state,
        "differs": names.differs(run.run_id),
        "when": day_and_time(run.started_at),
        "took": UNKNOWN if took is None else duration(took),
        "steps": steps_words(run.last_step, run.total_steps),
        "loss": UNKNOWN if run.train_loss is None else measure_words("loss", run.train_loss),
        "held_out": _held_out(run),
        "preset": next((one.title for one in presets() if one.key == run.preset), run.preset) or UNKNOWN,
        "data": run.data_name or UNKNOWN,
        "model": model_words(run.model_name),
        "method": METHODS[run.method].title if run.method in METHODS else UNKNOWN,
        "cards": cards_words(run.cards) if run.cards else "",
        "measure": run.own.name if run.own else "",
        "measured": _measured(run),
        "size": bytes_words(run.bytes_on_disk) if run.bytes_on_disk else "",
        "curve": path_of(run.curve),
        "curve_of": run.curve_of,
        "cause": cause or damage,
        "cure": " ".join(part for part in (cure, cause and damage) if part),
        "next": "" if run.opened and does in _GOES_ON else does,
        **run.marks.model_dump(),
        "opened": run.opened,
        "exports": run.exports,
        "after": list(after),
        "can": _can(run),
    }


def _can(run: RunSummary) -> dict[str, bool]:
    """What may be done with it; a run that was opened from a file has neither its data nor its optimizer's state."""
    can, readable = buttons_of(run.state), run.state != "unreadable"
    ended = readable and run.state not in LIVING
    return {
        "resume": can["resume"] and not run.opened,
        "rerun": readable,
        "rename": readable,
        "delete": not can["stop"],
        "watch": readable,
        "report": ended and (run.reported or not run.opened),
        "file": ended,
        "try": run.kept,
    }
