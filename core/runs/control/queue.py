"""Who is next for a card: the run ids in ``queue.json``, changed under a lock and replaced whole.

Each supervisor waits for its own turn; there is no scheduler. An entry whose supervisor died is skipped and dropped.
One list serves all cards of a root and names those that each run waits for; until they are known it waits for any.
"""

import json
from collections.abc import Callable

from core.machine.cards import CardLock, CardSet, held_by
from core.machine.disk import read_plain, write_whole
from core.machine.locations import Locations
from core.machine.locks import is_held, locked
from core.runs.folder.job_folder import RUN_ID, JobFolder

_MOST_BYTES = 1 << 20

Waiting = dict[str, CardSet | None]
"""Run ids in order, each with the cards that it waits for (None: not known yet)."""


class JobQueue:
    """The waiting runs under one root."""

    def __init__(self, locations: Locations) -> None:
        self._locations = locations

    def cards(self) -> Waiting:
        """All entries in order, those of dead supervisors too."""
        try:
            raw = json.loads(read_plain(self._locations.queue, _MOST_BYTES))
            known = raw.get("cards", {})
            run_ids = [entry for entry in raw["waiting"] if isinstance(entry, str) and RUN_ID.fullmatch(entry)]
            return {run_id: CardSet.parse(known[run_id]) if run_id in known else None for run_id in run_ids}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}

    def order(self) -> list[str]:
        """The runs that wait, in order, without those whose supervisors died."""
        return list(self._living(self.cards()))

    def first_living(self, cards: CardSet) -> str | None:
        """The next run for these cards; dead entries before it are dropped."""
        for run_id, wanted in self.cards().items():
            if not self._lives(run_id):
                self._change(self._living)  # checks again under the lock: it may have been resumed
            elif wanted is None or wanted.meets(cards):
                return run_id
        return None

    def add(self, run_id: str, head: bool = False) -> None:
        """Puts a run at the end or the head; one that is there already is moved."""

        def arrange(runs: Waiting) -> Waiting:
            mine = {run_id: runs.get(run_id)}
            return mine | runs if head else _without(runs, run_id) | mine

        self._change(arrange)

    def waits_for(self, run_id: str, cards: CardSet) -> None:
        """Notes which cards a run waits for; adds it at the end where it is missing."""
        if self.cards().get(run_id) != cards:
            self._change(lambda runs: runs | {run_id: cards})

    def remove(self, run_id: str) -> None:
        """Takes a run out, if it is there."""
        if run_id in self.cards():
            self._change(lambda runs: _without(runs, run_id))

    def move(self, run_id: str, place: int) -> bool:
        """Puts a waiting run at this place of ``order`` (0 is next, beyond the end is last); False where it has left
        the queue."""

        def arrange(runs: Waiting) -> Waiting:
            runs = self._living(runs)
            order = [other for other in runs if other != run_id]
            order.insert(max(0, place), run_id)
            return {other: runs[other] for other in order if other in runs}

        return run_id in self._change(arrange)

    def take_turn(self, run_id: str, cards: CardSet, lock: CardLock) -> bool:
        """Takes the cards and leaves the queue, if this run is next and they are free."""
        self.waits_for(run_id, cards)  # the queue's file may have been lost
        if self.first_living(cards) != run_id or not lock.acquire(run_id):
            return False
        self.remove(run_id)
        return True

    def reason(self, run_id: str, cards: CardSet) -> str:
        """What a run waits for, in words."""
        if holder := held_by(self._locations, cards):
            who = f"run {holder}" if RUN_ID.fullmatch(holder) else holder
            return f"{who} holds {'one of ' if cards.ids[1:] else ''}the {cards.word}"
        first = self.first_living(cards)
        return f"run {first} is before it in the queue" if first and first != run_id else ""

    def _living(self, runs: Waiting) -> Waiting:
        return {run_id: cards for run_id, cards in runs.items() if self._lives(run_id)}

    def _lives(self, run_id: str) -> bool:
        return is_held(JobFolder(self._locations.runs / run_id).supervisor_lock)

    def _change(self, arrange: Callable[[Waiting], Waiting]) -> Waiting:
        with locked(self._locations.locks / "queue"):
            runs = arrange(self.cards())
            cards = {run_id: str(wanted) for run_id, wanted in runs.items() if wanted}
            said = {"waiting": list(runs)} | ({"cards": cards} if cards else {})
            write_whole(self._locations.queue, json.dumps(said))
        return runs


def _without(runs: Waiting, run_id: str) -> Waiting:
    return {other: cards for other, cards in runs.items() if other != run_id}


def card_wanted(locations: Locations, cards: CardSet) -> bool:
    """Whether a run waits for one of these cards."""
    return JobQueue(locations).first_living(cards) is not None
