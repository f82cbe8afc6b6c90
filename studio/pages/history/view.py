"""Two to five runs beside each other: what they differ in, how they ended, and their curves on common steps.

Curves: all runs' columns cover the same span, so that their buckets have one width and the same steps; a run that ended
earlier is null behind its end. Each run is smoothed before its buckets are made.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.contract.config import RunConfig
from core.contract.errors import RunError
from core.contract.knobs import knobs
from core.contract.methods import HELD_OUT_MEASURES
from core.runs.folder.held_out_rows import Draw
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import read_marks, read_opened
from core.runs.folder.run_yaml import flat
from core.runs.record.job_record import RunRecord, effective_config
from core.runs.record.outcome import Measure, best, measures, outcome, ranked
from studio.figures.held_out import asked_for
from studio.figures.points import Window, points_of
from studio.figures.proposals import value_words
from studio.figures.run_figures import (
    LIVING,
    UNKNOWN,
    bytes_words,
    duration,
    measure_words,
    run_title,
    state_of,
    steps_words,
)
from studio.pages.history.words import say

MOST = 5
LETTERS = "ABCDE"
_KNOBS = knobs(RunConfig)
_OWN = ("name", "data.sha256", "model.revision", "model.source", "resume_from")
"""Keys that always differ, or that another key shows."""


@dataclass(frozen=True)
class Compared:
    """One of the runs: its config, its record, and which rows it held out."""

    folder: JobFolder
    config: RunConfig | None
    record: RunRecord
    draw: Draw | None

    @property
    def effective(self) -> RunConfig | None:
        """Its config with the corrections made while it ran."""
        return effective_config(self.config, self.record.corrections) if self.config else None

    def differs(self, other: "Compared") -> str:
        """Why the two cannot be ranked (their losses are not the same quantity over the same held-out tokens).

        ``method``, ``rows``, ``unknown``, or the key of a setting that the loss depends on; empty where they can.
        """
        mine, theirs = self.effective, other.effective
        if mine is None or theirs is None:
            return "unknown"
        if mine.learning != theirs.learning:
            return "method"
        # Chosen by hand or left to the method: the same value is the same loss.
        values, others = ({**flat(one), "train.beta": one.beta, "train.loss_type": one.loss_type}
                          for one in (mine, theirs))  # fmt: skip
        if changed := next((key for key in mine.learning.loss_of if values.get(key) != others.get(key)), ""):
            return str(changed)
        if self.draw and other.draw:
            return "" if self.draw.measures_alike(other.draw) else "rows"
        return "" if _rows_of(mine) == _rows_of(theirs) else "rows"


def chosen(text: str) -> list[str]:
    """The run ids of an address, each once.

    Raises:
        RunError: fewer than two, or more than five.
    """
    run_ids = list(dict.fromkeys(part for part in text.split(",") if part))
    if not 2 <= len(run_ids) <= MOST:
        raise RunError("compare.count", most=MOST, count=len(run_ids))
    return run_ids


def comparison(runs: Sequence[Compared], window: Window) -> dict[str, Any]:
    """Everything that the comparison shows."""
    rows, same = _differing([run.effective for run in runs])
    together: list[list[int]] = []  # indices of the runs that can be ranked together
    for place, run in enumerate(runs):
        group = next((group for group in together if not runs[group[0]].differs(run)), None)
        if group is None:
            together.append([place])
        else:
            group.append(place)
    firsts = [runs[group[0]] for group in together]
    differences = (one.differs(other) for one, other in itertools.combinations(firsts, 2))
    reasons = dict.fromkeys(
        say.get(f"compare.apart.{key}") or say("compare.apart.setting", setting=_label(key)) for key in differences
    )
    lettered = [", ".join(LETTERS[place] for place in group) for group in together]
    return {
        "groups": together,
        "apart": say("compare.apart", groups=" | ".join(lettered), why=", ".join(reasons)) if reasons else "",
        "runs": [_head(run) for run in runs],
        "differing": rows,
        "same": say("compare.same", count=same),
        "finals": _finals(runs, together),
        "curves": _curves(runs, window),
    }


def _head(run: Compared) -> dict[str, Any]:
    word, tone = state_of(run.record.state, outcome(run.record))
    base = run.config.model.model_dump_json() if run.config else run.folder.name
    return {
        "id": run.folder.name, "title": run_title(run.config, run.folder.name), "word": word, "tone": tone,
        "base": base, "living": run.record.state in LIVING,
        "model": run.config.model.name if run.config else UNKNOWN, "kept": bool(run.record.checkpoints),
        "kind": asked_for(run.config)["kind"] if run.config else "", "kept_of_it": _kept_of(run.folder),
    }  # fmt: skip


def _kept_of(folder: JobFolder) -> str:
    """Tags and note in one line."""
    marks, opened = read_marks(folder), read_opened(folder) is not None
    parts = ([say("history.opened")] if opened else []) + [f"#{tag}" for tag in marks.tags] + [marks.note]
    return " · ".join(part for part in parts if part)


def _label(key: str) -> str:
    """A setting as the window calls it."""
    return _KNOBS[key].label if key in _KNOBS else say.get(f"compare.key.{key}") or key


def _rows_of(config: RunConfig) -> list[Any]:
    """All settings that decide which tokens are held out; the file by its content, where that is known."""
    data = config.data.model_dump(exclude={"path"} if config.data.sha256 else {"sha256"})
    return [data, config.train.seed, config.train.max_length, config.model.name, config.model.revision]


# ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _differing(configs: Sequence[RunConfig | None]) -> tuple[list[dict[str, Any]], int]:
    """The settings in which these configs differ, and the number of the others."""
    known = [flat(config) if config else {} for config in configs]
    keys = [key for key in flat(RunConfig()) if key not in _OWN]
    rows = []
    for key in keys:
        values = [config.get(key) for config in known]
        if any(value != values[0] for value in values):
            words = [UNKNOWN if value is None else _words(key, value) for value in values]
            rows.append({"key": key, "label": _label(key), "values": words})
    return rows, len(keys) - len(rows)


def _words(key: str, value: Any) -> str:
    if key == "data.path":
        return Path(value).name or UNKNOWN
    if isinstance(value, (tuple, list)):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{role}: {column}" for role, column in value.items()) or UNKNOWN
    if isinstance(value, bool):
        return say("compare.yes" if value else "compare.no")
    return value_words(key, value) or UNKNOWN


# ── figures ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _finals(runs: Sequence[Compared], together: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    """The figures at the end or now, a line each; the best of each group ``together`` is marked."""
    ends = [_ends(run) for run in runs]
    bests = [best(measures(run.record)) for run in runs]
    leading: set[int] = set()
    for group in together:
        known = {place: one for place in group if (one := bests[place]) is not None}
        if len(known) > 1:
            first = ranked(known.values())[0]
            leading |= {place for place, one in known.items() if one.step and one.told == first.told}
    return [
        {
            "key": key,
            "label": say(f"compare.{key}"),
            "values": [end[key] for end in ends],
            "best": [key == "best" and place in leading for place in range(len(runs))],
        }
        for key in ends[0]
        if any(end[key] != UNKNOWN for end in ends)
    ]


def _ends(run: Compared) -> dict[str, str]:
    """One run's figures, by line of the table."""
    record = run.record
    losses = [f"{one.loss:.3f}" for one in measures(record)]
    last = record.steps[-1] if record.steps else None
    # The time within steps: without pauses and the wait for the card.
    seconds = sum(step.seconds for step in record.steps)
    tokens = sum(step.tokens for step in record.steps)
    peak = max((step.memory_bytes for step in record.steps if step.memory_bytes is not None), default=None)
    return {
        "state": state_of(record.state, outcome(record))[0],
        "method": run.config.learning.title if run.config else UNKNOWN,
        "best": _best(best(measures(record))),
        "held_out": losses[-1] if losses else UNKNOWN,
        "before": losses[0] if losses else UNKNOWN,
        **{name: _measure(record, name) for name in HELD_OUT_MEASURES},
        "loss": UNKNOWN if last is None or last.loss is None else f"{last.loss:.3f}",
        "steps": steps_words(record.last_step, record.plan.total_steps if record.plan else 0),
        "epoch": UNKNOWN if last is None else f"{last.epoch:.2f}",
        "took": duration(seconds) if seconds else UNKNOWN,
        "speed": f"{tokens / seconds:,.0f} tok/s" if seconds else UNKNOWN,
        "memory": UNKNOWN if peak is None else bytes_words(peak),
        "cards": ", ".join(record.hello.cards) or UNKNOWN if record.hello else UNKNOWN,
    }


def _best(first: Measure | None) -> str:
    if first is None:
        return UNKNOWN
    words = measure_words(*first.told)
    return words if first.step else say("compare.untrained", loss=words)


def _measure(record: RunRecord, name: str) -> str:
    known = [value for item in record.evaluations if (value := getattr(item, name)) is not None]
    return measure_words(name, known[-1]) if known else UNKNOWN


# ── curves ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _curves(runs: Sequence[Compared], window: Window) -> dict[str, Any]:
    """The model of ``assets/js/chart.js``: series ``train0``, ``train1`` … over common steps, ``held0`` … as points."""
    until = window.last or max((run.record.last_step for run in runs), default=0)
    span = Window(level=window.level, first=window.first, last=max(until, 1))
    answers = [points_of(run.folder.path).answer(run.record, span) for run in runs]
    width = answers[0]["width"]
    buckets = [[int(step // width) for step in answer["steps"]] for answer in answers]
    order = sorted({bucket for own in buckets for bucket in own})
    steps: dict[int, float] = {}  # where each bucket is drawn
    drawn = {}
    for number, (answer, own) in enumerate(zip(answers, buckets, strict=True)):
        for bucket, step in zip(own, answer["steps"], strict=True):
            steps[bucket] = max(steps.get(bucket, step), step)
        column = (answer["smooth"] or answer["raw"]).get("loss")
        if column is not None:
            low = dict(zip(own, column["low"], strict=True))
            high = dict(zip(own, column["high"] or column["low"], strict=True))
            ends = {"low": [low.get(bucket) for bucket in order], "high": [high.get(bucket) for bucket in order]}
            drawn[f"train{number}"] = ends
    held = {
        f"held{number}": [item for item in answer["evaluations"] if span.first <= item[0] <= span.last]
        for number, answer in enumerate(answers)
    }
    return {
        "steps": [steps[bucket] for bucket in order],
        "raw": drawn,
        "points": held,
        "last": {f"train{number}": answer["last"].get("loss") for number, answer in enumerate(answers)},
        "first": span.first, "begin": span.first, "until": span.last, "since": until,
    }  # fmt: skip
