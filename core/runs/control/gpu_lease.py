"""Jobs beside runs on the card. An interactive one (Try, a probe) takes a free card at once and leaves when a run waits
for it; one that can wait (a proof, a report) takes a card that nobody wants.

A report also gives way to Try: who takes a card holds ``locks/CARD.wish`` until it has it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from core.contract.errors import MachineError
from core.machine.cards import CardLock, CardSet, held_by
from core.machine.children.serve import LineWriter
from core.machine.hardware import Machine, alike
from core.machine.locations import Locations
from core.machine.locks import FileLock, is_held
from core.runs.control.queue import card_wanted
from core.runs.folder.job_folder import RUN_ID, JobFolder
from core.runs.log.events_log import LAST_KINDS, last_event

LOOK_SECONDS = 1.0
ENDING_SECONDS = 15.0
LEAVING_SECONDS = 4.0
TRY = "Try"
"""The holder's name of a card on which models answer."""
GIVES_WAY = "the report on "
"""How the holder's name begins that leaves a card soon after somebody wishes for it."""


def take_card(locations: Locations, cards: CardSet, holder: str) -> CardLock:
    """The card's lock, at once; only a run that has written its last event is waited for, and a report that gives way.

    Raises:
        MachineError: ``card.busy``, with the name of who holds it.
    """
    lock = CardLock(locations.make(), cards)
    patience = time.monotonic() + ENDING_SECONDS
    with _wishing(locations, cards):
        while not lock.acquire(holder):
            other = held_by(locations, cards) or "another program"  # it may have let go since our try
            ending, last = other == "another program" or other.startswith(GIVES_WAY), None
            if RUN_ID.fullmatch(other):
                with suppress(OSError):
                    last = last_event(JobFolder(locations.runs / other).events)
                ending = last is not None and last.kind in LAST_KINDS  # its process ends a moment later
            if not ending or time.monotonic() > patience:
                raise MachineError("card.busy/held", word=cards.word, other=other)
            time.sleep(0.1)
    return lock


def spare_first(machine: Machine, locations: Locations, own: str | None = None) -> Machine:
    """The machine, for one who works on any one of its cards: first a card as the first is that nobody holds or waits
    for, else one that ``own`` has; as it is where there is none. What a run fits is not asked of another kind."""
    alikes = [gpu for gpu in machine.gpus if alike(gpu.kind, machine.gpus[0].kind)]
    if len(alikes) > 1:
        for holder in (None, own):
            for gpu in alikes:
                card = CardSet((gpu.cuda_name,))
                if held_by(locations, card) == holder and not card_wanted(locations, card):
                    return replace(machine, gpus=(gpu, *(other for other in machine.gpus if other is not gpu)))
    return machine


@contextmanager
def _wishing(locations: Locations, cards: CardSet) -> Iterator[None]:
    """Holds the wish for these cards meanwhile; where somebody else holds it, that one is wish enough."""
    wishes = [FileLock(path) for path in _wishes(locations, cards)]
    for wish in wishes:
        wish.acquire()
    try:
        yield
    finally:
        for wish in wishes:
            wish.release()


def _wishes(locations: Locations, cards: CardSet) -> list[Path]:
    return [locations.locks / f"{name}.wish" for name in cards.locks]


class GiveWay(BaseException):
    """Ends the work: the card is wanted. No ``Exception``, so that no ``except Exception`` swallows it."""


class SpareCard:
    """Cards for a job that can wait: they are taken when nobody holds or wants them."""

    def __init__(self, locations: Locations, cards: CardSet, holder: str) -> None:
        self._locations, self._cards, self._holder = locations, cards, holder
        self._lock, self._looked, self._wanted = CardLock(locations.make(), cards), 0.0, False

    def take(self, waiting: Callable[[str], object], safe_point: Callable[[], object] = lambda: None) -> None:
        """Waits for them; ``waiting`` is told once who has them, and ``safe_point`` is called between looks."""
        said = ""
        while self._is_wanted() or not self._lock.acquire(self._holder):
            who = held_by(self._locations, self._cards) or "a run"
            if who != said:
                said = who
                waiting(f"{who} has the {self._cards.word}")
            safe_point()
            time.sleep(LOOK_SECONDS / 2)
        self._looked, self._wanted = time.monotonic(), False

    def wanted(self) -> bool:
        """Whether a run waits for one of them, or somebody wishes for it. Cheap: looked at once a second."""
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            self._looked, self._wanted = time.monotonic(), self._is_wanted()
        return self._wanted

    def check(self) -> None:
        """A safe point. Raises GiveWay where somebody wants one of them."""
        if self.wanted():
            raise GiveWay

    def _is_wanted(self) -> bool:
        wished = any(is_held(path) for path in _wishes(self._locations, self._cards))
        return wished or card_wanted(self._locations, self._cards)

    def release(self) -> None:
        """Gives them back."""
        self._lock.release()


def left_the_card(who: str) -> MachineError:
    """The error that says that ``who`` left the card to a waiting run."""
    return MachineError("card.busy/run_waits", who=who)


def leave_when_wanted(locations: Locations, cards: CardSet, writer: LineWriter, who: str) -> None:
    """Checks once a second, in a thread, whether a run waits for the cards of this process; if so, says that ``who``
    ("the model") left and ends the process."""

    def look() -> None:
        while not card_wanted(locations, cards):
            time.sleep(LOOK_SECONDS)
        writer.say(left_the_card(who).told())
        os._exit(0)

    threading.Thread(target=look, daemon=True).start()


class Patience:
    """How long a client waits for its child, and whether the child leaves the card to a waiting run.

    The child itself leaves within two seconds, unless it is stuck in a library call: then the client kills it.
    """

    def __init__(self, locations: Locations, cards: CardSet, seconds: float) -> None:
        self._locations, self._cards = locations, cards
        self._deadline = time.monotonic() + seconds
        self._next = self._wanted = 0.0

    def is_over(self) -> str:
        """Why the child is to be killed ("time", "card"); empty while it may go on. Cheap."""
        now = time.monotonic()
        if now > self._deadline:
            return "time"
        if now >= self._next:
            self._next = now + LOOK_SECONDS
            if not card_wanted(self._locations, self._cards):
                self._wanted = 0.0
            elif not self._wanted:
                self._wanted = now
        return "card" if self._wanted and now - self._wanted > LEAVING_SECONDS else ""


def end_with_the_pipe(hear: Callable[[str], None] = lambda _line: None) -> None:
    """Reads the client's lines in a thread; ends this process at once when the pipe closes."""

    def listen() -> None:
        for line in sys.stdin:
            hear(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
