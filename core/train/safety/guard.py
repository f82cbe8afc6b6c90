"""What must not be trained through: numbers that are none, steps without a target, and data without a single one.

    loss, gradient norm ─► finite? ─► the optimiser acts
                            └ no: the step is skipped, its rows are named ─► three in a row: ``turn_back``

With float16 a gradient beyond the format's range is no fault: the scaler skips that step by itself and halves its
scale. It is counted apart. A scale that has come down below 1 hides nothing any more, so that is a fault like a loss
that is not finite.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from core.contract.errors import DataError, RunError
from core.train.channel.reporter import EventReporter

LIMIT = 3
"""Steps in a row whose loss or gradient is not finite before the run goes back."""


def _stop(bad: Sequence[int], what: str) -> None:
    raise RunError("train.not_finite/repeatedly", what=what, count=len(bad), first=bad[0], last=bad[-1])


@dataclass
class Guard:
    """Judges each step before the optimiser acts on it.

    ``name_rows`` says which rows of the user's file a bad step came from ("" where that is not known); ``turn_back``
    is called with the bad steps in a row and does not return.
    """

    reporter: EventReporter
    bad: list[int] = field(default_factory=list)
    overflows: int = 0
    name_rows: Callable[[], str] = lambda: ""
    turn_back: Callable[[Sequence[int], str], None] = _stop

    def require_weight(self, step: int, weight: float) -> None:
        """Refuses a step in which nothing is trained: its mean loss would be 0 / 0.

        Raises:
            RunError: its rows have no trained token.
        """
        if weight <= 0:
            raise RunError("train.nothing_trained", step=step, rows=_of(self.name_rows()))

    def judge(self, step: int, loss: float, grad_norm: float = 0.0, scale: float | None = None) -> bool:
        """Whether this step may change the adapter; a bad one is noted and skipped.

        Args:
            scale: of float16's gradients; None without a scaler.

        Raises:
            RunError: the third bad step in a row.
        """
        fault = _fault(loss, grad_norm, scale)
        if not fault:
            if math.isfinite(grad_norm):
                self.bad.clear()
                return True
            self.overflows += 1  # the scaler skips this step itself; the first is said, every tenth, hundredth …
            if math.log10(self.overflows).is_integer():
                self.reporter.note(
                    "step.overflow",
                    f"Step {step}: a gradient beyond float16's range at scale {scale:,.0f} ({self.overflows} so far).",
                    "No fault: the step is left out and the scale is halved.",
                )
            return True
        self.bad.append(step)
        rows = _of(self.name_rows())
        self.reporter.note("step.skipped", f"Step {step} skipped: {fault}{rows}.", "The adapter was left as it was.")
        if len(self.bad) >= LIMIT:
            self.turn_back(tuple(self.bad), fault)
        return False


def _fault(loss: float, grad_norm: float, scale: float | None) -> str:
    if not math.isfinite(loss):
        return f"loss {loss}"
    if scale is not None:
        return f"float16's loss scale {scale:g}" if scale < 1 else ""
    return "" if math.isfinite(grad_norm) else f"gradient norm {grad_norm}"


def _of(rows: str) -> str:
    return f" ({rows})" if rows else ""


def require_targets(trained_tokens: int, rows: int, max_length: int) -> None:
    """Refuses data that trains nothing, before a model is loaded for it.

    Raises:
        DataError: there are no rows, or no row has a trained token.
    """
    if not rows:
        raise DataError("data.no_rows")
    if not trained_tokens:
        raise DataError("data.nothing_trained/cut", rows=rows, max_length=max_length)
