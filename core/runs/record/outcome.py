"""The best measure and checkpoint of a run, and its verdict, from the log and the manifests.

measure      a held-out loss and its step; step 0 is before training
best         the lowest measure, of equal ones the earliest
checkpoint   the best one has the lowest measure in its manifest
verdict      the best measure after training began, against the one before
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
"""A smaller relative change of the held-out loss counts as none: with few rows it may be chance."""
_MANIFEST_BYTES = 1 << 22


@dataclass(frozen=True, order=True)
class Measure:
    """A held-out loss, after ``step`` steps. Ordered as ``best`` looks for it."""

    loss: float
    step: int


@dataclass(frozen=True)
class Outcome:
    """A run's verdict, with the held-out loss at step 0, the best measure after it, and the last loss; None where not
    measured."""

    verdict: Verdict
    before: float | None = None
    after: Measure | None = None
    last: float | None = None


def measures(record: RunRecord) -> tuple[Measure, ...]:
    """Every finite held-out loss of a run, in order."""
    told = ((event.loss, event.step) for event in record.evaluations)
    return tuple(Measure(loss, step) for loss, step in told if loss is not None and math.isfinite(loss))


def best(known: Iterable[Measure]) -> Measure | None:
    """The lowest measure, the earliest of equal ones."""
    return min(known, default=None)


def outcome(record: RunRecord) -> Outcome | None:
    """The outcome of a finished run, or of a stopped one that was measured before and after; else None."""
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
    """The finished checkpoints, oldest first, each with its manifest's held-out loss; their files are not verified.
    ``run`` may be the checkpoints folder itself."""
    whole = whole_checkpoints(run.checkpoints if isinstance(run, JobFolder) else run)
    return {whole[step]: measured_loss(whole[step]) for step in sorted(whole)}


def by_merit(run: JobFolder | Path) -> list[Path]:
    """The finished checkpoints, the best first; behind them those without a loss, the newest first."""
    losses = standing(run)
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
