"""What was found out for New run's pages: the newest answers, and always those of what a window shows now.

Answers are forgotten by when they were last asked for, never by when they came: a model that stays chosen while one
file after another is looked at is asked for with each of them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from typing import Any

__all__ = ["Remembered"]

KEPT = 40


class Remembered:
    """Answers by what they depend on. Thread-safe.

    Args:
        in_use: the keys of what is shown or worked on; these are kept beyond ``kept`` if need be.
    """

    def __init__(self, in_use: Callable[[], Collection[Hashable]] = frozenset, kept: int = KEPT) -> None:
        self._in_use, self._kept = in_use, kept
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, Any] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: Hashable) -> Any:
        """The answer, which is the newest by that; None where there is none."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def put(self, key: Hashable, value: object) -> None:
        """Remembers an answer, and forgets those asked for longest ago."""
        with self._lock:
            self._known[key] = value
            self._known.move_to_end(key)
            full = len(self._known) > self._kept
        if full:
            self._make_room()

    def forget(self, which: Callable[[Any], bool]) -> None:
        """Forgets the answers that are such."""
        with self._lock:
            for key in [key for key, known in self._known.items() if which(known)]:
                del self._known[key]

    def _make_room(self) -> None:
        held = self._in_use()  # outside of the lock: it looks at files
        with self._lock:
            idle = [key for key in self._known if key not in held]
            for key in idle[: max(0, len(self._known) - self._kept)]:
                del self._known[key]
