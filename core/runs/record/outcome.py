"""What is best in a run, and what became of it: the one place that says so.

    measure      a held-out loss and its step; step 0 is the model as it came, before any training
    best         the lowest measure, of equal ones the earliest: what training did not improve is not its merit
    checkpoint   the best one is that of the lowest measure among those that stand, by their own manifests
    verdict      the best measure after training has begun, against the one before it

All of it follows from the log and the manifests, so runs of earlier versions have it as well. Nothing is written.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from core.machine.disk import read_plain
from core.runs.folder.job_folder import JobFolder, whole_checkpoints
from core.runs.record.job_record import RunRecord

Verdict = Literal["better", "no_better", "worse", "unmeasured"]

SAME_SHARE = 0.01
"""A change of the held-out loss by less than so much of it is none: a few held-out rows cannot tell it from chance."""
_MANIFEST_BYTES = 1 << 22


@dataclass(frozen=True, order=True)
class Measure:
    """A held-out loss, after ``step`` steps. Ordered as ``best`` looks for it."""

    loss: float
    step: int


@dataclass(frozen=True)
class Outcome:
    """What became of a run: the held-out loss at step 0, the best measure after it, and the newest loss of all; None
    where it was not measured."""

    verdict: Verdict
    before: float | None = None
    after: Measure | None = None
    last: float | None = None


def measures(record: RunRecord) -> tuple[Measure, ...]:
    """Every finite held-out loss of a run, in its order."""
    told = ((event.loss, event.step) for event in record.evaluations)
    return tuple(Measure(loss, step) for loss, step in told if loss is not None and math.isfinite(loss))


def best(known: Iterable[Measure]) -> Measure | None:
    """The lowest measure, the earliest of equal ones."""
    return min(known, default=None)


def outcome(record: RunRecord) -> Outcome | None:
    """What became of a run that is over; None while it is not, and where it ended before it could be told.

    A run that was stopped is told of where it was measured; a finished one always, if only that nothing was measured.
    """
    if record.state not in ("finished", "stopped"):
        return None
    known = measures(record)
    before = next((one.loss for one in known if one.step == 0), None)
    after, last = best(one for one in known if one.step > 0), known[-1].loss if known else None
    if before is None or after is None:
        return Outcome("unmeasured", before, after, last) if record.state == "finished" else None
    return Outcome(_verdict(before, after.loss), before, after, last)


def _verdict(before: float, after: float) -> Verdict:
    least = SAME_SHARE * abs(before)
    if before - after > least:
        return "better"
    return "worse" if after - before > least else "no_better"


# ── checkpoints ──────────────────────────────────────────────────────────────────────────────────────────────────────


def standing(run: JobFolder | Path) -> dict[Path, float | None]:
    """The checkpoints that were finished (their manifests are written last), oldest first, each with the held-out loss
    that its manifest names; their files are not verified here. ``run`` may be the checkpoints folder itself."""
    whole = whole_checkpoints(run.checkpoints if isinstance(run, JobFolder) else run)
    return {whole[step]: measured_loss(whole[step]) for step in sorted(whole)}


def by_merit(run: JobFolder | Path) -> list[Path]:
    """The checkpoints that stand, the best first; behind those that were measured the others, the newest first."""
    losses = standing(run)  # oldest first, as sorting leaves equal ones
    measured = sorted((path for path in losses if losses[path] is not None), key=lambda path: losses[path] or 0.0)
    return measured + [path for path in losses if losses[path] is None][::-1]


def measured_loss(checkpoint: Path) -> float | None:
    """The held-out loss in a checkpoint's manifest; None where it was not measured or cannot be read."""
    try:
        manifest: Any = json.loads(read_plain(checkpoint / "MANIFEST.json", _MANIFEST_BYTES))
        loss = manifest.get("eval_loss")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    number = isinstance(loss, (int, float)) and not isinstance(loss, bool) and math.isfinite(loss)
    return float(loss) if number else None
