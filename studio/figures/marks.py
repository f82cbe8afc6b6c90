"""What happened beside the steps, as marks on a chart's axis; and a run's lines as a file of numbers."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

from core.contract.config import RunConfig
from core.contract.knobs import knobs
from core.contract.methods import HELD_OUT_MEASURES
from core.runs.record.job_record import RunRecord
from studio.figures.points import is_metric, value_of
from studio.figures.run_figures import duration
from studio.words.text import say

Mark = tuple[int, str, str]
"""A step, what it is (checkpoint, break, correction), and its words."""
_KNOBS = knobs(RunConfig)
_attempt = attrgetter("attempt")
HELD_OUT = {"evaluation": "loss", **{f"held_out_{name}": name for name in HELD_OUT_MEASURES}}
"""Lines of held-out rows, by the field of an evaluation."""


def marks_of(record: RunRecord) -> list[Mark]:
    """All marks, by step."""
    found: list[Mark] = []
    for saved in record.checkpoints:
        key = "mark.checkpoint" if saved.eval_loss is None else "mark.measured"
        found.append((saved.step, "checkpoint", say(key, loss=f"{saved.eval_loss or 0:.3f}")))
    for item in record.corrections:
        label = _KNOBS[item.key].label if item.key in _KNOBS else item.key
        words = say("mark.correction", label=label, old=item.old, new=item.new, reason=item.reason)
        found.append((item.step, "correction", words))
    found += _breaks(record)
    return sorted(found)


def _breaks(record: RunRecord) -> Iterator[Mark]:
    """Pauses, and where a worker was started again."""
    paused = {pause.step for pause in record.pauses}
    for attempt in range(2, record.attempt + 1):
        at = bisect_left(record.steps, attempt, key=_attempt)
        if 0 < at < len(record.steps) and record.steps[at].attempt == attempt:
            before, after = record.steps[at - 1], record.steps[at]
            kind = "paused" if before.step in paused else "restarted"
            paused.discard(before.step)
            yield before.step, "break", say(f"mark.{kind}", time=duration(after.at - after.seconds - before.at))
    if record.state == "paused" and record.pauses and record.pauses[-1].step in paused:
        yield record.pauses[-1].step, "break", say("mark.paused.now")


def csv_of(record: RunRecord, names: Sequence[str]) -> str:
    """These lines of a run by step, each number as it was measured; unknown ones are left empty."""
    rows: dict[int, dict[str, Any]] = {}
    held = {name: HELD_OUT[name] for name in names if name in HELD_OUT}
    for evaluation in record.evaluations if held else ():
        row = rows.setdefault(evaluation.step, {})
        row.update((name, getattr(evaluation, field)) for name, field in held.items())
    drawn = [name for name in names if is_metric(name)]
    for step in record.steps if drawn else ():
        rows.setdefault(step.step, {}).update((name, value_of(step, name)) for name in drawn)
    lines = [["step", *names]]
    for number in sorted(rows):
        values = (rows[number].get(name) for name in names)
        lines.append([str(number), *("" if value is None else repr(value) for value in values)])
    return "".join(f"{','.join(line)}\n" for line in lines)
