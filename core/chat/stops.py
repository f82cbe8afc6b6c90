"""Stop sequences: texts that end an answer and are not shown, also where they come in pieces."""

from collections.abc import Sequence


class UntilStop:
    """A text as it grows, up to the first stop sequence in it; what may be the beginning of one is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.ended = False

    def take(self, text: str) -> str:
        """A further piece; returns what can be shown now, nothing behind a stop."""
        if self.ended:
            return ""
        self._held += text
        # The stop that is whole first: so the cut does not depend on how the text came in pieces.
        found = min(((at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0), default=None)
        self.ended = found is not None
        begun = (size for stop in self._stops for size in range(min(len(stop) - 1, len(self._held)), 0, -1)
                 if self._held.endswith(stop[:size]))  # fmt: skip
        until = found[1] if found else len(self._held) - max(begun, default=0)  # a stop may begin with its end
        shown, self._held = self._held[:until], self._held[until:]
        return shown

    def rest(self) -> str:
        """What was held back when the text ended, where no stop came of it."""
        return "" if self.ended else self._held
