"""Rows of the history: what a run is called, how it went and what can be done next; and the filter that selects them.

Filtered here and not in the page, so that a root with hundreds of runs sends a screenful. Plain values only.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.contract.methods import METHODS
from core.runs.record.summary import RunSummary
from core.runs.record.words import VERDICTS, damage_words, outcome_line
from studio.figures.proposals import next_action, trouble
from studio.figures.run_figures import (
    LIVING,
    UNKNOWN,
    buttons_of,
    bytes_words,
    day_and_time,
    duration,
    made_at,
    measure_words,
    model_words,
    own_title,
    state_of,
    steps_words,
)
from studio.words.faults import said
from studio.words.runs import STATES
from studio.words.text import say

GROUPS = {"queued": "living", "starting": "living", "training": "living", "lost": "failed", "unreadable": "failed"}
"""States that the filter joins; every other state is a group of its own."""
SPANS = {"day": 1, "week": 7, "month": 31, "year": 366}
"""Choices of "when", in days back from now."""
_DAY_SECONDS = 86_400


@dataclass(frozen=True)
class RowFilter:
    """What is searched for. Empty means anything; all ``words`` must occur in the run's names or state."""

    words: str = ""
    state: str = ""
    model: str = ""
    method: str = ""
    when: str = ""

    def fits(self, run: RunSummary, now: float) -> bool:
        """Whether a run matches."""
        if self.state and self.state != GROUPS.get(run.state, run.state):
            return False
        if (self.model and self.model != model_words(run.model_name)) or (self.method and self.method != run.method):
            return False
        if self.when in SPANS and (made_at(run.run_id) or 0) < now - SPANS[self.when] * _DAY_SECONDS:
            return False
        states = (STATES[run.state][0], state_of(run.state, run.outcome)[0])
        words = (title_of(run), *states, run.run_id, run.model_name, run.data_name, run.preset, run.method)
        searched = " ".join(words).lower()
        return all(word in searched for word in self.words.lower().split())

    def answer(self, runs: Sequence[RunSummary], limit: int) -> dict[str, Any]:
        """The rows of the first ``limit`` runs that match, how many match, and what there is to choose from."""
        now = time.time()
        matching = [run for run in runs if self.fits(run, now)]
        return {
            "runs": [row(run) for run in matching[:limit]],
            "count": len(matching),
            "all": len(runs),
            "models": sorted({model_words(run.model_name) for run in runs}),
            "methods": sorted({run.method for run in runs if run.method}),
        }


def title_of(run: RunSummary) -> str:
    """The name that was given, else "good.jsonl on Qwen3-4B, 20 Nov 23:25"."""
    return run.name or own_title(run.data_name, run.model_name, run.run_id)


def _measured(run: RunSummary) -> str:
    """The method's measure before training and at its best: "52% → 91%"."""
    ends = [measure_words(run.measure, value) for value in (run.measure_before, run.measure_best) if value is not None]
    return " → ".join(dict.fromkeys(ends))


def row(run: RunSummary) -> dict[str, Any]:
    """A run as one row."""
    became = run.outcome
    code, damage = trouble(run.failure.code if run.failure else "", became), damage_words(run.damaged)
    cause, cure = said(run.failure) if run.failure else ("", "")
    if run.state == "lost":
        cause, cure = say("state.lost.cause"), say("state.lost.cure")
    elif became and became.ruined:
        cause, cure = f"{outcome_line(became)}.", VERDICTS[became.verdict].advice
    word, tone = state_of(run.state, became)
    can, readable = buttons_of(run.state), run.state != "unreadable"
    return {
        "id": run.run_id,
        "title": title_of(run),
        "name": run.name,
        "word": word,
        "tone": tone,
        "verdict": outcome_line(became) if became and not cause else "",
        "state": run.state,
        "when": day_and_time(run.started_at),
        "took": duration(run.ended_at - run.started_at) if run.begun and run.started_at and run.ended_at else UNKNOWN,
        "steps": steps_words(run.last_step, run.total_steps),
        "loss": UNKNOWN if run.train_loss is None else f"{run.train_loss:.3f}",
        "held_out": UNKNOWN if run.eval_loss is None else f"{run.eval_loss:.3f}",
        "preset": run.preset or UNKNOWN,
        "method": METHODS[run.method].title if run.method in METHODS else UNKNOWN,
        "measure": run.measure,
        "measured": _measured(run),
        "size": bytes_words(run.bytes_on_disk) if run.bytes_on_disk else "",
        "cause": cause or damage,
        "cure": " ".join(part for part in (cure, cause and damage) if part),
        "next": next_action(run.state, code),
        "can": {
            "resume": can["resume"],
            "rerun": readable,
            "rename": readable,
            "delete": not can["stop"],
            "watch": readable,
            "report": readable and run.state not in LIVING,
        },
    }
