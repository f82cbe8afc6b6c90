"""The best measure and checkpoint of a run, and its verdict, from the log and the manifests.

::

    measure      a held-out loss and its step, and the method's own measure where its best is found by that (METHODS,
                 ``best_by``); step 0 is before training
    best         the measure with the best own one, else with the lowest loss; of equal ones the lowest loss, then the
                 earliest. Where one has no own one, as older runs, all go by their losses
    checkpoint   the best one has the best measure in its manifest
    judged by    the method's own measure where it ranks models (accuracy, mean error) and moved, else the loss. A
                 checkpoint that was found by its loss, as of pairs, is not worse where that fell and the own measure
                 fell by chance
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
from core.runs.folder.job_folder import JobFolder, checkpoint_step, whole_checkpoints
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


@dataclass(frozen=True)
class Measure:
    """A held-out loss, after ``step`` steps; ``own``: the measure ``by`` which the method finds its best, a name of
    RANKED, where it does."""

    loss: float
    step: int
    own: float | None = None
    by: str = ""

    @property
    def told(self) -> tuple[str, float]:
        """The name and value of what the best is found by."""
        return ("loss", self.loss) if self.own is None else (self.by, self.own)

    @property
    def facts(self) -> dict[str, Any]:
        """What a checkpoint's manifest says of it."""
        return {"eval_loss": self.loss, **({} if self.own is None else {"eval_own": self.own, "eval_by": self.by})}


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
    found: bool = False
    """Whether the best step was found by it, and not by the loss."""

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
    def strayed(self) -> bool:
        """Whether it fell by no more than chance may do to a share of so few rows: two standard errors of a half."""
        if self.before is None or self.after is None or not self._of_rows:
            return False
        return 0 < self.before - self.after <= 1 / math.sqrt(max(self.rows, 1))

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
        """What the verdict goes by: the method's own measure, unless that stood still while the loss fell, or fell by
        chance while the loss did by which the step was found."""
        loss = Readings("loss", self.before, self.after.loss if self.after else None, self.last)
        if self.own is None or self.own.rise is None or loss.rise is None:
            return loss
        none = abs(self.own.rise) <= 1 or (self.own.strayed and not self.own.found)
        return loss if none and loss.rise > 1 else self.own

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
    told = (measure_of(one.loss, one.step, one.best_by, getattr(one, one.best_by, None)) for one in record.evaluations)
    return tuple(one for one in told if one)


def measure_of(loss: Any, step: int, by: Any = "", own: Any = None) -> Measure | None:
    """The measure of these readings, which may be anything; None without a finite loss."""
    if not _is_number(loss):
        return None
    return (
        Measure(float(loss), step, float(own), by) if by in RANKED and _is_number(own) else Measure(float(loss), step)
    )


def ranked(known: Iterable[Measure]) -> list[Measure]:
    """The measures, the best first."""
    every = list(known)
    own = len({one.by for one in every}) == 1

    def worth(one: Measure) -> tuple[float, float, int]:
        value = one.own if own and one.own is not None else 0.0
        return (-value if RANKED.get(one.by) is max else value, one.loss, one.step)

    return sorted(every, key=worth)


def best(known: Iterable[Measure]) -> Measure | None:
    """The best measure."""
    return next(iter(ranked(known)), None)


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
    Its best step is the one whose checkpoint is used."""
    for name in (name for name in MEASURES if name in RANKED):
        told = {one.step: value for one in record.evaluations if (value := _finite(getattr(one, name))) is not None}
        if told:
            first = best(one for one in measures(record) if one.step > 0)
            after = told.get(first.step) if first else None
            found = first is not None and first.by == name
            rows = max(one.rows for one in record.evaluations)
            return Readings(name, told.get(0), after, told[max(told)], rows, found)
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


def standing(run: JobFolder | Path) -> dict[Path, Measure | None]:
    """The finished checkpoints, oldest first, each with what its manifest says was measured; their files are not
    verified. ``run`` may be the checkpoints folder itself."""
    whole = whole_checkpoints(run.checkpoints if isinstance(run, JobFolder) else run)
    return {whole[step]: measured_at(whole[step]) for step in sorted(whole)}


def by_merit(run: JobFolder | Path) -> list[Path]:
    """The finished checkpoints, the best first; behind them those that were not measured, the newest first."""
    known = standing(run)
    measured = {one.step: path for path, one in known.items() if one}
    return [measured[one.step] for one in ranked(one for one in known.values() if one)] + [
        path for path in known if known[path] is None
    ][::-1]


def measured_at(checkpoint: Path) -> Measure | None:
    """What a checkpoint's manifest says was measured; None where nothing was, or it cannot be read."""
    try:
        manifest: Any = json.loads(read_plain(checkpoint / "MANIFEST.json", _MANIFEST_BYTES))
        step = checkpoint_step(checkpoint.name) or 0
        return measure_of(manifest.get("eval_loss"), step, manifest.get("eval_by"), manifest.get("eval_own"))
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
