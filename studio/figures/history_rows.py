"""Rows of the history: what a run is called, how it went, and what can be done next; and the filter that finds them.

::

    RunSummary ─► row ─► RowFilter (words, state, model, method, when) ─► the newest ``limit`` of what is left

Filtering happens here and not in the page, so that a root with hundreds of runs sends a screenful. Plain values only.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.runs.record.summary import RunSummary
from core.runs.record.words import ADVICE, damage_words, outcome_line
from studio.figures.proposals import next_action, trouble
from studio.figures.run_figures import (
    UNKNOWN,
    buttons_of,
    bytes_words,
    day_and_time,
    duration,
    made_at,
    model_words,
    own_title,
    steps_words,
    tone_of,
)
from studio.words.runs import STATES
from studio.words.text import say

GROUPS = {"queued": "living", "starting": "living", "training": "living", "lost": "failed", "unreadable": "failed"}
"""States that the filter joins; every other one is a group of its own."""
SPANS = {"day": 1, "week": 7, "month": 31, "year": 366}
"""Choices of "when", in days back from now."""
_DAY_SECONDS = 86_400


@dataclass(frozen=True)
class RowFilter:
    """What is looked for. Empty means anything; all words must be found somewhere in the row."""

    words: str = ""
    state: str = ""
    model: str = ""
    method: str = ""
    when: str = ""

    def fits(self, row: dict[str, Any], now: float) -> bool:
        """Whether a row is looked for."""
        plain = (("group", self.state), ("model", self.model), ("method", self.method))
        if any(wanted and row[key] != wanted for key, wanted in plain):
            return False
        if self.when in SPANS and (row["made"] or 0) < now - SPANS[self.when] * _DAY_SECONDS:
            return False
        return all(word in row["words"] for word in self.words.lower().split())

    def answer(self, rows: Sequence[dict[str, Any]], limit: int, now: float | None = None) -> dict[str, Any]:
        """The first ``limit`` rows that fit, how many there are, and what there is to choose from."""
        at = time.time() if now is None else now
        fitting = [row for row in rows if self.fits(row, at)]
        return {
            "runs": fitting[:limit],
            "count": len(fitting),
            "all": len(rows),
            "models": sorted({row["model"] for row in rows}),
            "methods": sorted({row["method"] for row in rows if row["method"]}),
        }


def title_of(run: RunSummary) -> str:
    """The name that was given, else "good.jsonl on Qwen3-4B, 20 Nov 23:25"."""
    return run.name or own_title(run.data_name, run.model_name, run.run_id)


def row(run: RunSummary) -> dict[str, Any]:
    """A run as one row; ``words`` is what the search looks through."""
    title, model, word, became = title_of(run), model_words(run.model_name), STATES[run.state][0], run.outcome
    code, (cause, cure), damage = trouble(run.failure_code, became), _trouble(run), damage_words(run.damaged)
    can, readable = buttons_of(run.state), run.state != "unreadable"
    return {
        "id": run.run_id,
        "title": title,
        "name": run.name,
        "word": word,
        "tone": tone_of(run.state, became),
        "verdict": outcome_line(became) if became and not cause else "",
        "state": run.state,
        "group": GROUPS.get(run.state, run.state),
        "model": model,
        "method": run.method,
        "made": made_at(run.run_id),
        "when": day_and_time(run.started_at),
        "took": duration(run.ended_at - run.started_at) if run.begun and run.started_at and run.ended_at else UNKNOWN,
        "steps": steps_words(run.last_step, run.total_steps),
        "loss": UNKNOWN if run.train_loss is None else f"{run.train_loss:.3f}",
        "held_out": UNKNOWN if run.eval_loss is None else f"{run.eval_loss:.3f}",
        "preset": run.preset or UNKNOWN,
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
        },
        "words": " ".join((title, word, run.run_id, run.model_name, run.data_name, run.preset, run.method)).lower(),
    }


def _trouble(run: RunSummary) -> tuple[str, str]:
    """What went wrong and what to do, also with a run that came out worse; empty where nothing did."""
    if run.state == "lost":
        return say("state.lost.cause"), say("state.lost.cure")
    if run.outcome and run.verdict == "worse":
        return outcome_line(run.outcome), ADVICE["worse"]
    return run.failure, run.failure_hint
