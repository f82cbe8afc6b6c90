"""Long work, beside the page: its progress, its end, and a way to stop it.

It runs in a thread of its own, not in Gradio's handler, so that a refreshed page or a second window joins it.
"""

import threading
import traceback
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from core.contract.errors import Fault

TICK_SECONDS = 0.25
"""How often a page gets the progress."""
_KEPT = 12
Key = tuple[str, Hashable]
"""The kind of work, by which it is stopped, and what it is done for."""


@dataclass
class Work:
    """One piece of work. ``progress`` is what it told last; ``result`` or ``fault`` is set when it has ended."""

    progress: tuple[Any, ...] = ()
    result: Any = None
    fault: Fault | None = None
    stop_asked: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def tell(self, *progress: Any) -> None:
        """Called by the work with its progress."""
        self.progress = progress

    def stopped(self) -> bool:
        """Whether it was asked to end, which it does at its next safe point."""
        return self.stop_asked.is_set()

    @property
    def going(self) -> bool:
        """Whether it goes on and nobody asked it to end."""
        return not self.ended.is_set() and not self.stopped()

    def ticks(self) -> Iterator[tuple[Any, ...]]:
        """The progress every ``TICK_SECONDS`` until it has ended."""
        while not self.ended.wait(TICK_SECONDS):
            yield self.progress

    def run(self, task: "Callable[[Work], Any]") -> None:
        """Does the work. An unforeseen fault becomes ``work.fault``, with its traceback on the terminal."""
        try:
            self.result = task(self)
        except Fault as error:
            self.fault = error
        except Exception:  # noqa: BLE001 - the page must hear of any end
            traceback.print_exc()
            self.fault = Fault("work.fault")
        finally:
            self.ended.set()


class LongWork:
    """All long work of one studio, by its key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works: dict[Key, Work] = {}

    def start(self, key: Key, task: Callable[[Work], Any]) -> Work:
        """The running work of this key, else a new one in a thread of its own."""
        with self._lock:
            known = self._works.get(key)
            if known is not None and known.going:
                return known
            self._works.pop(key, None)
            begun = self._works[key] = Work()
            ended = [key for key, work in self._works.items() if work.ended.is_set()]
            for old in ended[: max(0, len(self._works) - _KEPT)]:
                del self._works[old]
        threading.Thread(target=begun.run, args=(task,), daemon=True).start()
        return begun

    def of(self, key: Key) -> Work | None:
        """The work of this key, going on or ended; None where it never began."""
        return self._works.get(key)

    def stop(self, kind: str) -> None:
        """Asks all work of this kind to end."""
        with self._lock:
            for (one, _), work in self._works.items():
                if one == kind:
                    work.stop_asked.set()
