"""A table of bounded size, which drops the least recently used entries."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """Values by their keys, at most ``kept`` of them. Thread-safe."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable) -> Value | None:
        """The value, which counts as used; None where there is none."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def put(self, key: Hashable, value: Value) -> None:
        """Keeps a value."""
        with self._lock:
            self._known[key] = value
            self._known.move_to_end(key)
            while len(self._known) > self._kept:
                self._known.popitem(last=False)

    def forget(self, which: Callable[[Value], bool]) -> None:
        """Forgets the values for which ``which`` is true."""
        with self._lock:
            for key in [key for key, value in self._known.items() if which(value)]:
                del self._known[key]
