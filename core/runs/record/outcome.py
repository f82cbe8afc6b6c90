"""The best measure and checkpoint of a run, and its verdict, from the log and the manifests.

::

    measure      a held-out loss and its step; step 0 is before training
    best         the lowest measure, of equal ones the earliest
    checkpoint   the best one has the lowest measure in its manifest
    verdict      of a run that is over, the first of these that is so:
      diverged     its last numbers are none, or the training loss ends above its beginning, and no held-out one below
      unmeasured   there is no measure from before, or none from after training began
      worse        the best measure after training began lies above the one before
      by_heart     the held-out loss rose since its best, and the training loss ends far below it
      better       the best measure lies below the one before
      no_better    it is about the same
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal

from core.contract.events import Step
from core.machine.disk import read_plain
from core.runs.folder.job_folder import JobFolder, whole_checkpoints
from core.runs.record.job_record import RunRecord

Verdict = Literal["better", "no_better", "worse", "by_heart", "diverged", "unmeasured"]
RUINED: frozenset[Verdict] = frozenset({"worse", "diverged"})
"""Verdicts of a model that is not to be used."""

SAME_SHARE = 0.01
"""A smaller relative change of the held-out loss counts as none: with few rows it may be chance."""
ENDS = 10
"""Steps at each end of a run whose median stands for its training loss there."""
_LEAST_STEPS = 3
_ROSE, _ROSE_ALONE = 0.1, 0.25
"""Relative rise of the training loss that is a divergence: with held-out losses that agree, and without any."""
_TURNED, _FAR = 0.02, 0.3
"""By heart: the held-out loss rose by so much since its best, and the training loss lies so much below it."""
_FAR_WORSE = 0.25
"""A held-out loss that rose by more says that the learning rate was much too high."""
_MANIFEST_BYTES = 1 << 22


@dataclass(frozen=True, order=True)
class Measure:
    """A held-out loss, after ``step`` steps. Ordered as ``best`` looks for it."""

    loss: float
    step: int


@dataclass(frozen=True)
class Course:
    """The training loss at the beginning and at the end of a run; None where it is not known, and at the end also where
    it is no number any more (``lost``)."""

    begin: float | None = None
    end: float | None = None
    lost: bool = False

    def rose(self, share: float) -> bool:
        """Whether it ended above its beginning by more than this share of it."""
        return self.begin is not None and self.end is not None and self.end - self.begin > share * abs(self.begin)


@dataclass(frozen=True)
class Outcome:
    """A run's verdict, with the held-out loss at step 0, the best measure after it, the last loss, None where not
    measured; and the course of its training loss."""

    verdict: Verdict
    before: float | None = None
    after: Measure | None = None
    last: float | None = None
    course: Course = field(default_factory=Course)

    @property
    def ruined(self) -> bool:
        """Whether the model is not to be used."""
        return self.verdict in RUINED

    @property
    def usable(self) -> bool:
        """Whether its best measure lies below the one before training."""
        if self.before is None or self.after is None:
            return False
        return self.before - self.after.loss > SAME_SHARE * abs(self.before)

    @property
    def far(self) -> bool:
        """Whether it went wrong by much."""
        if self.before is None or self.after is None:
            return self.verdict == "diverged"
        return self.verdict == "diverged" or self.after.loss - self.before > _FAR_WORSE * abs(self.before)


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
    if record.state == "stopped" and (before is None or after is None):
        return None
    said = Outcome("unmeasured", before, after, last, _course(record, known))
    return Outcome(_verdict(said), before, after, last, said.course)


def _course(record: RunRecord, known: Sequence[Measure]) -> Course:
    """Of few steps nothing is said of their losses; a held-out loss that is no number any more is lost, too."""
    told = record.evaluations[-1] if record.evaluations else None
    lost = told is not None and bool(known) and known[-1].step != told.step
    width = min(ENDS, len(record.steps) // 2)
    if width < _LEAST_STEPS:
        return Course(lost=lost)
    first, final = (_known(steps) for steps in (record.steps[:width], record.steps[-width:]))
    lost = lost or (bool(first) and not _known(record.steps[-_LEAST_STEPS:]))
    return Course(median(first) if first else None, median(final) if final else None, lost)


def _known(steps: Sequence[Step]) -> list[float]:
    return [step.loss for step in steps if step.loss is not None and math.isfinite(step.loss)]


def _verdict(said: Outcome) -> Verdict:
    before, after, last, course = said.before, said.after, said.last, said.course
    if before is None or after is None or last is None:
        return "diverged" if course.lost or course.rose(_ROSE_ALONE) else "unmeasured"
    least = SAME_SHARE * abs(before)
    if course.lost or (course.rose(_ROSE) and last - before > least):
        return "diverged"
    if after.loss - before > least:
        return "worse"
    turned = last - after.loss > _TURNED * abs(after.loss)
    if turned and course.end is not None and last - course.end > _FAR * abs(last):
        return "by_heart"
    return "better" if said.usable else "no_better"


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
