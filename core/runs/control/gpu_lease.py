"""A lease of the card: an interactive job (Try, a probe) in a child that holds it between runs and answers over a pipe.

Such a child takes the card without waiting, says so when a run holds it, and leaves within seconds when a run wants it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from core.contract.errors import MachineError
from core.machine.cards import CardLock, CardSet, held_by
from core.machine.children.serve import LineWriter
from core.machine.locations import Locations
from core.runs.control.queue import card_wanted
from core.runs.folder.job_folder import RUN_ID, JobFolder
from core.runs.log.events_log import LAST_KINDS, last_event

LOOK_SECONDS = 1.0
ENDING_SECONDS = 15.0
LEAVING_SECONDS = 4.0


def take_card(locations: Locations, cards: CardSet, holder: str) -> CardLock:
    """The card's lock, at once; a run that has said its last word is waited for.

    Raises:
        MachineError: ``card.busy``, with the name of who holds it.
    """
    lock = CardLock(locations.make(), cards)
    patience = time.monotonic() + ENDING_SECONDS
    while not lock.acquire(holder):
        other = held_by(locations, cards) or "another program"  # or it let go between our try and our look
        ending, last = other == "another program", None
        if RUN_ID.fullmatch(other):
            with suppress(OSError):
                last = last_event(JobFolder(locations.runs / other).events)
            ending = last is not None and last.kind in LAST_KINDS  # its process ends a moment later
        if not ending or time.monotonic() > patience:
            raise MachineError("card.busy/held", other=other)
        time.sleep(0.1)
    return lock


def left_the_card(who: str) -> MachineError:
    """What is said where a run waits for the card; ``who`` left it."""
    return MachineError("card.busy/run_waits", who=who)


def leave_when_wanted(locations: Locations, cards: CardSet, writer: LineWriter, who: str) -> None:
    """Begins to look once a second whether a run waits for the card; says so then, and ends this process.

    Args:
        cards: those that this process holds.
        who: who left, in the sentence that is said: "the model".
    """

    def look() -> None:
        while not card_wanted(locations, cards):
            time.sleep(LOOK_SECONDS)
        writer.say(left_the_card(who).told())
        os._exit(0)

    threading.Thread(target=look, daemon=True).start()


class Patience:
    """The client's watch over a child that it waits for: how long it may take, and that it leaves when a run waits.

    The child looks for itself, and leaves within two seconds. One that is deep in a library or a hostile file may not
    come to look: whoever waits for it then has it killed.
    """

    def __init__(self, locations: Locations, cards: CardSet, seconds: float) -> None:
        self._locations, self._cards = locations, cards
        self._deadline = time.monotonic() + seconds
        self._next = self._wanted = 0.0

    def is_over(self) -> str:
        """Why it is to be killed; empty while it may go on. Cheap: ask often."""
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
    """Begins to read the client's lines; when its pipe closes this process ends, whatever it is at."""

    def listen() -> None:
        for line in sys.stdin:
            hear(line)
        os._exit(0)  # the client is gone; nobody waits for what is being made

    threading.Thread(target=listen, daemon=True).start()
