"""The best measure and checkpoint of a run, and its verdict, from the log and the manifests.

::

    measure      a held-out loss and its step; step 0 is before training
    best         the lowest measure, of equal ones the earliest
    checkpoint   the best one has the lowest measure in its manifest
    judged by    the method's own measure where it ranks models (accuracy, mean error) and moved, else the loss
    verdict      of a run that is over, the first of these that is so:
      diverged     its last numbers are none, or the training loss ends above its beginning, and what it is judged by
                   ends worse
      unmeasured   there is no measure from before, or none from after training began
      worse        at its best step it is worse than before
      by_heart     it became worse since its best step, and the training loss ends far below the held-out one
      better       at its best step it is better than before
      no_better    it is about the same
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

from core.contract.events import Step
from core.contract.methods import MEASURES, RANKED, SHARES
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
"""What became worse by more says that the learning rate was much too high."""
_ONE_ROW = 1.01
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
class Readings:
    """What held-out rows said of one measure (``loss``, or a name of RANKED): before training, at the best step after
    it began, and last. A share moves by more than one of so many ``rows``, all else by a share of itself."""

    name: str
    before: float | None
    after: float | None
    last: float | None
    rows: int = 0

    @property
    def rise(self) -> float | None:
        """How much better the best step is than the model before, in least differences that count; None: unknown."""
        return self._between(self.before, self.after)

    @property
    def turn(self) -> float | None:
        """How much better the end is than the best step, in the same."""
        return self._between(self.after, self.last)

    @property
    def far(self) -> bool:
        """Whether the best step is much worse than the model before."""
        if self.before is None or self.after is None:
            return False
        return self._gain(self.before, self.after) < -_FAR_WORSE * (1.0 if self._of_rows else abs(self.before))

    @property
    def _of_rows(self) -> bool:
        return self.name in SHARES

    def _gain(self, start: float, end: float) -> float:
        return end - start if self._of_rows else start - end

    def _between(self, start: float | None, end: float | None) -> float | None:
        if start is None or end is None:
            return None
        least = max(SAME_SHARE, _ONE_ROW / max(self.rows, 1)) if self._of_rows else SAME_SHARE * abs(self.before or 0)
        return self._gain(start, end) / (least or SAME_SHARE)


@dataclass(frozen=True)
class Outcome:
    """A run's verdict, with the held-out loss at step 0, the best measure after it, the last loss, None where not
    measured; the course of its training loss; and what its method itself measures."""

    verdict: Verdict
    before: float | None = None
    after: Measure | None = None
    last: float | None = None
    course: Course = field(default_factory=Course)
    own: Readings | None = None

    @property
    def judged(self) -> Readings:
        """What the verdict goes by: the method's own measure, unless that stood still while the loss fell."""
        loss = Readings("loss", self.before, self.after.loss if self.after else None, self.last)
        if self.own is None or self.own.rise is None or loss.rise is None:
            return loss
        return loss if abs(self.own.rise) <= 1 < loss.rise else self.own

    @property
    def ruined(self) -> bool:
        """Whether the model is not to be used."""
        return self.verdict in RUINED

    @property
    def usable(self) -> bool:
        """Whether its best step is better than the model before training."""
        return (self.judged.rise or 0.0) > 1

    @property
    def far(self) -> bool:
        """Whether it went wrong by much."""
        return self.verdict == "diverged" or self.judged.far


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
    said = Outcome("unmeasured", before, after, last, _course(record, known), own_readings(record))
    return replace(said, verdict=_verdict(said))


def own_readings(record: RunRecord) -> Readings | None:
    """What the run's method itself measures on the held-out rows; None where only the loss says which model is better.
    Its best step is the one with the lowest loss, whose checkpoint is used."""
    for name in (name for name in MEASURES if name in RANKED):
        told = {one.step: value for one in record.evaluations if (value := _finite(getattr(one, name))) is not None}
        if told:
            lowest = best(one for one in measures(record) if one.step > 0)
            after = told.get(lowest.step) if lowest else None
            return Readings(name, told.get(0), after, told[max(told)], max(one.rows for one in record.evaluations))
    return None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


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
    before, after, last, course, judged = said.before, said.after, said.last, said.course, said.judged
    if before is None or after is None or last is None:
        return "diverged" if course.lost or course.rose(_ROSE_ALONE) else "unmeasured"
    if course.lost or (course.rose(_ROSE) and (judged.rise or 0.0) + (judged.turn or 0.0) < -1):
        return "diverged"
    if (judged.rise or 0.0) < -1:
        return "worse"
    stood = judged is said.own and (judged.turn or 0.0) >= -1
    turned = not stood and last - after.loss > _TURNED * abs(after.loss)
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
