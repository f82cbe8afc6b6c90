"""Rank 0's hold on the other ranks: it starts them, tells them where to meet, and ends with them.

::

    supervisor ─► worker = rank 0 ─► rank 1, rank 2, …        one process group, one worker.log, all holding the locks
                       │  a line each (``line.py``), and one to each other machine (``nodes.py``)
    a rank dies      ─► its line ends ─► a Note, exit 75: the supervisor starts all again from the last checkpoint
    a rank says why  ─► that is the run's last event, or its wish for a fresh process
    rank 0 dies      ─► every line ends ─► the others leave (``member.py``)

To the supervisor they are one worker: it sees rank 0 alone, and ends the whole group. So nothing waits for a rank that
is gone, also where the supervisor itself died. Imports no torch.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from core.contract.errors import Fault, RunError, first_line
from core.contract.events import Correction
from core.machine.cards import CardSet
from core.machine.children.shared_memory import SharedMemory
from core.runs.folder.job_folder import JobFolder
from core.runs.process.activity import MemoryKills
from core.runs.ranks.nodes import Door, Meeting, credentials, networks, other_than
from core.runs.ranks.start import GONE_SECONDS, Started, start_rank
from core.train.channel.reporter import EventReporter

START_SECONDS = 180.0
"""For the backend's first sum."""
LOOPBACK = "127.0.0.1"

Ended = Callable[[Fault | str], object]
"""Ends the process: with a run's last event, or asking for a fresh process and saying why. Does not return."""


class Leader:
    """The other ranks of one worker, as it sees them. ``ended`` is called in a thread, at most once. ``shared``: memory
    of this machine's ranks, this process's to write.

    Raises:
        RunError: other machines cannot be listened for.
        OSError: no process can be made.
    """

    def __init__(self, folder: JobFolder, cards: CardSet, ended: Ended, meeting: Meeting | None = None) -> None:
        self._ended, self._meeting = ended, meeting
        self._guard, self._over, self._met = threading.Lock(), "", False
        self._kills = MemoryKills(folder.log)
        self._door: Door | None = None  # known from here on: a rank may die at once
        self.shared = SharedMemory.made() if cards.ranks > 1 else None
        self._started: dict[int, Started] = {
            rank: start_rank(folder, cards, rank, shared=self.shared) for rank in range(1, cards.ranks)
        }
        for rank, one in self._started.items():
            one.line.listen(partial(self._heard, f"Rank {rank}"), partial(self._gone, rank))
        if meeting:
            self._door = Door(meeting, self._node_heard, self._node_gone)

    def await_nodes(self, waiting: Callable[[str], object]) -> None:
        """Returns when every machine is here; ``waiting`` is told which are not, twice a second or so.

        Raises:
            RunError: one does not come.
        """
        late = time.monotonic() + (self._meeting.seconds if self._meeting else 0.0)
        while self._door and self._meeting and (missing := self._door.missing()):
            where, nodes = f"{self._meeting.host}:{self._meeting.port}", ", ".join(map(str, missing))
            if time.monotonic() > late:
                raise RunError("ranks.no_answer", nodes=nodes, where=where, seconds=self._meeting.seconds)
            waiting(f"for machine {nodes} of {self._meeting.nodes} at {where}")

    def gather(self, device: Any, data: Path) -> None:
        """Has every rank join a process group.

        Args:
            data: this run's data file; another machine's has to be the same.

        Raises:
            RunError: it cannot start, or another machine is not as this one.
        """
        from core.train.ranks.group import host_store, join

        visitors = self._door.visitors() if self._door else []
        mine = credentials(data) if visitors else {}
        for visitor in visitors:
            if others := other_than(mine, visitor.credentials):
                visitor.line.say(refused=others)
                raise RunError("ranks.other_machine", node=visitor.node, others=others)
        here = 1 + len(self._started)
        count, host = here + sum(visitor.cards for visitor in visitors), LOOPBACK
        if self._meeting:
            host = self._meeting.host
        with self._guard:
            self._met = True
        no_start = partial(self._end, _no_start(f"no answer in {START_SECONDS:.0f} s"))
        late = threading.Timer(START_SECONDS, no_start)
        late.daemon = True
        late.start()
        try:
            store = host_store(host)
            through = networks(visitors[0].line.address if visitors else LOOPBACK)
            os.environ.update(through)
            for rank, one in self._started.items():
                one.line.say(rank=rank, host=host, port=store.port, count=count, networks=through)
            for visitor in visitors:
                visitor.line.say(first=here, port=store.port, count=count)
                here += visitor.cards
            join(store, 0, count, device)
        except (RuntimeError, ValueError, OSError) as error:
            self.expect_all()
            raise _no_start(first_line(error)) from error
        finally:
            late.cancel()

    def expect_all(self) -> None:
        """After something failed here: returns where no rank is gone, which may be why; else the process ends."""
        threading.Event().wait(GONE_SECONDS)

    def close(self, over: bool = True) -> None:
        """From here on ranks may go, since the worker itself ends; waits for ever where the process ends already.

        Args:
            over: no other worker follows at once, so that other machines may leave.
        """
        with self._guard:
            lost, self._over = self._over == "lost", self._over or "done"
        if lost:
            threading.Event().wait()
        self._dismiss(over)

    def _dismiss(self, over: bool) -> None:
        for visitor in self._door.visitors() if self._door and over else ():
            visitor.line.say(over=True)

    # ── in the lines' threads ────────────────────────────────────────────────────────────────────────────────────

    def _heard(self, who: str, message: dict[str, Any]) -> None:
        if "fault" in message:
            self._end(Fault.told_by(message["fault"]))
        elif "afresh" in message:
            self._end(f"{message.get('who', who)}: {message['afresh']}")

    def _gone(self, rank: int) -> None:
        how, killed = self._started[rank].end()
        self._end(f"Rank {rank} {how}{f' {self._kills.words}' if killed else ''}.")

    def _node_heard(self, node: int, message: dict[str, Any]) -> None:
        self._heard(f"Machine {node}", message)

    def _node_gone(self, node: int) -> None:
        with self._guard:
            met = self._met
        if met:  # before, it is waited for
            self._end(f"Machine {node} is gone.")

    def _end(self, why: Fault | str) -> None:
        with self._guard:
            if self._over:
                return
            self._over = "lost"
        self._dismiss(isinstance(why, Fault))
        self._ended(why)


def alone_instead(fault: Fault, folder: JobFolder, cards: CardSet, reporter: EventReporter) -> str:
    """Where ranks could not start, and the run asks for that: corrects it to its first card, and says why a fresh
    worker goes on. Else ''.

    Raises:
        Fault: the log does not take it.
    """
    if fault.code != "ranks.no_start" or not folder.config().train.one_card_if_needed:
        return ""
    asked, first = folder.config().train.cards, cards.ids[0] if cards.ids else "0"
    reporter.say(Correction(key="train.cards", old=asked, new=first, reason=fault.message))
    return f"{fault.message} It goes on with one card."


def _no_start(reason: str) -> RunError:
    return RunError("ranks.no_start", reason=reason.rstrip("."))
