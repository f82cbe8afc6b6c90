"""Who is next for a card: the run ids in ``queue.json``, changed under a lock and renamed whole.

A supervisor waits for its own turn; there is no scheduler that could die. An entry whose supervisor died is skipped
and dropped by the next who looks. One list serves all cards of a root: beside each run stands the card that it waits
for, by its lock's name, as soon as its supervisor knows; until then it counts as waiting for any.
"""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType

from core.machine.disk import read_plain, write_whole
from core.machine.hardware import Machine
from core.machine.locations import Locations
from core.machine.locks import CardLock, held_by, is_held, locked
from core.runs.folder.job_folder import RUN_ID, JobFolder

_MOST_BYTES = 1 << 20


class JobQueue:
    """The waiting runs under one root, first come first."""

    def __init__(self, locations: Locations) -> None:
        self._locations = locations

    def waiting(self) -> list[str]:
        """The run ids in order, whether their supervisors live or not."""
        return list(self.cards())

    def cards(self) -> dict[str, str]:
        """The run ids in order, each with the card that it waits for ("": not known yet)."""
        try:
            raw = json.loads(read_plain(self._locations.queue, _MOST_BYTES))
            known = raw.get("cards", {})
            run_ids = [entry for entry in raw["waiting"] if isinstance(entry, str) and RUN_ID.fullmatch(entry)]
            return {run_id: str(known.get(run_id, "")) for run_id in run_ids}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}

    def waits_for(self, run_id: str, card: str) -> None:
        """Notes which card a run waits for; it goes to the end where it is not in the queue."""
        if self.cards().get(run_id) != card:
            with locked(self._locations.locks / "queue"):
                self._write(self.waiting() if run_id in self.waiting() else [*self.waiting(), run_id], {run_id: card})

    def add(self, run_id: str, head: bool = False) -> None:
        """Puts a run at the end, or at the head; a run stands there once."""
        self._change(lambda others: [run_id, *others] if head else [*others, run_id], run_id)

    def remove(self, run_id: str) -> None:
        """Takes a run out; none is no fault."""
        if run_id in self.waiting():
            self._change(lambda others: others, run_id)

    def order(self) -> list[str]:
        """The runs that wait, first come first, without those whose supervisors died."""
        return [run_id for run_id in self.waiting() if self._lives(run_id)]

    def move(self, run_id: str, place: int) -> bool:
        """Puts a waiting run at this place of ``order`` (0 is next, beyond the end is last); False where it does not
        wait any more: it has just taken the card, or was called off."""
        with locked(self._locations.locks / "queue"):
            others = self.order()
            if run_id not in others:
                return False
            others.remove(run_id)
            others.insert(max(0, place), run_id)
            self._write(others)
            return True

    def first_living(self, card: str) -> str | None:
        """The run whose turn it is for this card; the dead before it are dropped."""
        for run_id, wanted in self.cards().items():
            if self._lives(run_id):
                if wanted in (card, ""):
                    return run_id
                continue
            with locked(self._locations.locks / "queue"):
                if not self._lives(run_id):  # it may have been resumed in between
                    self._write([other for other in self.waiting() if other != run_id])
        return None

    def _lives(self, run_id: str) -> bool:
        return is_held(JobFolder(self._locations.runs / run_id).supervisor_lock)

    def _change(self, arrange: Callable[[list[str]], list[str]], run_id: str) -> None:
        with locked(self._locations.locks / "queue"):
            self._write(arrange([other for other in self.waiting() if other != run_id]))

    def _write(self, waiting: list[str], noted: Mapping[str, str] = MappingProxyType({})) -> None:
        known = {**self.cards(), **noted}
        cards = {run_id: known[run_id] for run_id in waiting if known.get(run_id)}
        write_whole(self._locations.queue, json.dumps({"waiting": waiting} | ({"cards": cards} if cards else {})))


class Turn:
    """One run's wait for the card of this machine."""

    def __init__(self, locations: Locations, machine: Machine, run_id: str) -> None:
        self._locations, self._machine, self._run_id = locations, machine, run_id
        self._queue = JobQueue(locations)

    def join(self) -> None:
        """Stands in the queue, where the starter has put it already, and says for which card."""
        self._queue.waits_for(self._run_id, self._machine.lock_name)

    def take(self, card: CardLock) -> bool:
        """Takes the card and leaves the queue, if this run is the first living one and the card is free."""
        self.join()  # the queue's file may have been lost since; whoever waits stands in it
        first = self._queue.first_living(self._machine.lock_name)
        if first != self._run_id or not card.acquire(wait=False, holder=self._run_id):
            return False
        self._queue.remove(self._run_id)
        return True

    def reason(self) -> str:
        """What the run waits for, for people."""
        if holder := held_by(self._locations, self._machine.lock_name):
            who = f"run {holder}" if RUN_ID.fullmatch(holder) else holder
            return f"{who} holds the {'card' if self._machine.gpu else 'CPU'}"
        first = self._queue.first_living(self._machine.lock_name)
        return f"run {first} is before it in the queue" if first and first != self._run_id else ""


def card_wanted(locations: Locations, card: str) -> bool:
    """Whether a run waits for this card: an interactive job (Try) that holds it then leaves within 5 s."""
    return JobQueue(locations).first_living(card) is not None
