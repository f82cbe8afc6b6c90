"""The seconds of a report, dealt to its parts; what one leaves over the next ones get."""

from collections.abc import Callable
from dataclasses import dataclass

SHARE = 0.1
"""Of the run's seconds."""
LEAST_SECONDS = 30.0
"""For measuring, however short the run: base and finetuned answers to a few prompts."""
_SHARES = {"moved": 0.1, "held_out": 0.3, "forgetting": 0.3, "answers": 0.7, "memorising": 1.0}
"""Of what is left when a part begins, in this order."""

Clock = Callable[[], float]


def words_of(seconds: float) -> str:
    """A duration for people."""
    return f"{seconds / 60:,.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


@dataclass(frozen=True)
class Budget:
    """``seconds`` in all, of which ``spent`` went before ``begun``."""

    seconds: float
    text: str
    begun: float
    spent: float
    clock: Clock

    @classmethod
    def of(cls, run_seconds: float, minutes: float, loading: float, spent: float, clock: Clock) -> "Budget":
        """Of a run that took so long.

        Args:
            minutes: what a person gave it; 0: a tenth of the run's time.
            loading: seconds that data and model took just now.
            spent: seconds of earlier attempts.
        """
        tenth = 60.0 * minutes or SHARE * run_seconds
        least = spent + loading + LEAST_SECONDS
        said = f"{words_of(tenth)}, as asked for" if minutes else f"a tenth of the run's {words_of(run_seconds)}"
        loaded = f"{loading:.0f} s of it loaded data and model" if loading >= 1 else "data and model were there at once"
        if tenth >= least:
            return cls(tenth, f"{said[:1].upper()}{said[1:]}; {loaded}.", clock(), spent + loading, clock)
        text = f"{LEAST_SECONDS:.0f} s beside the loading, the least: {said} would be too little."
        return cls(least, text[:1].upper() + text[1:], clock(), spent + loading, clock)

    @property
    def gone(self) -> float:
        """Seconds spent so far."""
        return self.spent + self.clock() - self.begun

    def slot(self, part: str) -> "Slot":
        """The time of a part that begins now."""
        return Slot(self.clock() + _SHARES[part] * max(0.0, self.seconds - self.gone), self.clock)


class Slot:
    """The time of one part. Something is always measured: what is asked first always fits."""

    def __init__(self, until: float, clock: Clock, whole: "Slot | None" = None) -> None:
        self._until, self._clock, self._whole = until, clock, whole
        self._begun, self._pieces = clock(), 0
        self.cut = False
        """Whether something did not fit, in it or in a share of it."""

    def fits(self) -> bool:
        """Whether another piece fits, taken to last as long as those before it did on average."""
        now = self._clock()
        mean = (now - self._begun) / self._pieces if self._pieces else 0.0
        self._pieces += 1
        fits = self._pieces == 1 or now + mean <= self._until
        for slot in (self, self._whole) if not fits else ():
            if slot:
                slot.cut = True
        return fits

    def share(self, part: float) -> "Slot":
        """A part of the time that is left."""
        now = self._clock()
        return Slot(now + part * max(0.0, self._until - now), self._clock, self)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return max(0.0, self._until - self._clock())

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self._clock() - self._begun
