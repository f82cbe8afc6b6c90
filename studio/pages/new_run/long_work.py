"""Work that takes long, beside the page: how far it is, how it ended, and a way to stop it.

A handler that waits holds a place in Gradio's queue and ends with its page. The work itself lives here, in a thread of
its own, so that the same page refreshed, or a second window, finds it and joins.
"""

from __future__ import annotations

import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from core.contract.errors import StudioError
from studio.words.text import say

__all__ = ["LongWork", "Work", "unforeseen"]

TICK_SECONDS = 0.25
"""How often a page is told how far the work is."""
_KEPT = 12


@dataclass
class Work:
    """One piece of work. ``progress`` is what it told last; ``found`` or ``fault`` stands when it has ended."""

    key: Hashable
    progress: tuple[Any, ...] = ()
    found: Any = None
    fault: StudioError | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)

    def tell(self, *progress: Any) -> None:
        """What the work itself calls, as it goes on."""
        self.progress = progress

    def stop(self) -> None:
        """Asks it to end; it does so at its next seam."""
        self._stop.set()

    def stopped(self) -> bool:
        """Whether it was asked to end."""
        return self._stop.is_set()

    @property
    def living(self) -> bool:
        """Whether it goes on."""
        return not self._ended.is_set()

    def ticks(self) -> Iterator[tuple[Any, ...]]:
        """How far it is, again and again, until it has ended; nothing where it ends within the first moment."""
        while not self._ended.wait(TICK_SECONDS):
            yield self.progress

    def run(self, work: Callable[[Work], Any]) -> None:
        """Does the work. A fault that nobody foresaw is one line here, and its whole story goes to the terminal."""
        try:
            self.found = work(self)
        except StudioError as error:
            self.fault = error
        except Exception:  # noqa: BLE001 - the page must hear of any end
            traceback.print_exc()
            self.fault = unforeseen()
        finally:
            self._ended.set()


def unforeseen() -> StudioError:
    """What a page says of a fault that nobody foresaw."""
    return StudioError("work.fault", say("work.fault"), say("work.fault.do"))


class LongWork:
    """All long work of one studio, by what it is for. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, Work] = OrderedDict()

    def start(self, key: Hashable, work: Callable[[Work], Any]) -> Work:
        """The living work of this key, else a new one in a thread of its own."""
        with self._lock:
            known = self._known.get(key)
            if known is not None and known.living and not known.stopped():
                return known
            begun = self._known[key] = Work(key)
            self._known.move_to_end(key)
            self._forget_old()
        threading.Thread(target=begun.run, args=(work,), daemon=True).start()
        return begun

    def of(self, key: Hashable) -> Work | None:
        """The work of this key, living or ended; None where it never began."""
        with self._lock:
            return self._known.get(key)

    def stop(self, kind: str) -> None:
        """Asks all work whose key begins with ``kind`` to end."""
        with self._lock:
            works = list(self._known.values())
        for work in works:
            if isinstance(work.key, tuple) and work.key[0] == kind:
                work.stop()

    def _forget_old(self) -> None:
        ended = [key for key, work in self._known.items() if not work.living]
        for key in ended[: max(0, len(self._known) - _KEPT)]:
            del self._known[key]
