"""The ranks of another machine than rank 0's: ``train … --nodes N --node-rank K --rendezvous HOST:PORT``, K > 0.

::

    come to HOST:PORT ─► say what is here ─► start a rank a card ─► (told where to meet) ─► they train ─► the line ends
         ▲                                                                                                  │
         └──────── rank 0's run goes on in a fresh worker ◄── not over ─────────────────────────────────────┤
                                                                                              over ─► leave ◄─┘

It has no run: its ranks read its own copy of the data and of the model, and write ``worker.log`` in a folder of theirs.
Imports no torch.
"""

from __future__ import annotations

import os
import queue
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from core.contract.config import RunConfig
from core.contract.errors import MachineError, RunError
from core.machine.cards import CardLock, held_by
from core.machine.children.shared_memory import SharedMemory
from core.machine.hardware import read_machine
from core.machine.locations import Locations
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import dump_config
from core.runs.ranks.line import Line
from core.runs.ranks.nodes import Meeting, credentials, networks, watch_peer
from core.runs.ranks.start import Started, start_rank
from core.runs.supervise.kernel_check import check_kernels_once
from core.runs.supervise.worker_process import allocator_environment

NODE_VARIABLE = "LUTHIER_NODE"
"""Set for ranks of another machine: data and model are where its own run.yaml says."""
RETRY_SECONDS = 0.5

Say = Callable[[str], object]
"""Tells a person what goes on."""
Heard = tuple[str, int, dict[str, Any] | None]
"""Who said it (``first``, ``rank``), its place, and the message; None: its line ended."""


def join_run(config: RunConfig, locations: Locations, meeting: Meeting, node: int, say: Say) -> None:
    """Trains with the others until the run is over.

    Raises:
        RunError: the first machine does not answer, or is another.
        MachineError: a card is not there, or in use.
    """
    machine = read_machine(locations.home).choosing(config.train.cards)
    lock = CardLock(locations, machine.cards)
    if not lock.acquire(f"a run of {meeting.host}"):
        raise MachineError(
            "card.busy/held", word=machine.cards.word, other=held_by(locations, machine.cards) or "another program"
        )
    for descriptor in lock.filenos():
        os.set_inheritable(descriptor, True)
    os.environ.update(allocator_environment(os.environ, machine) | {NODE_VARIABLE: str(node)})
    if machine.gpu and check_kernels_once(machine.working, locations, lambda: False):
        os.environ["LUTHIER_KERNELS"] = "plain"
    folder = JobFolder(locations.home / "ranks" / f"machine-{node}")
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.run_yaml.write_text(dump_config(config), encoding="utf-8")
    mine = {"node": node, "cards": machine.cards.ranks, **credentials(Path(config.data.path))}
    while True:
        say(f"waiting for the first machine at {meeting.host}:{meeting.port}")
        line = _reached(meeting)
        shared = SharedMemory.made() if machine.cards.ranks > 1 else None
        started = [start_rank(folder, machine.cards, place, folder.log, shared) for place in range(machine.cards.ranks)]
        if shared:
            shared.close()  # theirs alone: it is gone with them
        try:
            line.say(**mine)
            if _visit(line, started, meeting, say):
                return
        finally:
            line.close()
            for one in started:
                one.line.close()
                one.process.kill()
                one.process.wait()


def _reached(meeting: Meeting) -> Line:
    until = time.monotonic() + meeting.seconds
    while True:
        try:
            end = socket.create_connection((meeting.host, meeting.port), timeout=10)
        except OSError as error:
            if time.monotonic() > until:
                where, reason = f"{meeting.host}:{meeting.port}", error.strerror or str(error)
                raise RunError("ranks.no_answer/first", where=where, seconds=meeting.seconds, reason=reason) from error
            time.sleep(RETRY_SECONDS)
            continue
        end.settimeout(None)
        watch_peer(end)
        return Line(end)


def _visit(line: Line, started: list[Started], meeting: Meeting, say: Say) -> bool:
    """One attempt, until the first machine's line ends; True where the run is over.

    Raises:
        RunError: the first machine refuses this one.
    """
    heard: queue.SimpleQueue[Heard] = queue.SimpleQueue()
    line.listen(lambda message: heard.put(("first", 0, message)), lambda: heard.put(("first", 0, None)))
    for place, one in enumerate(started):
        one.line.listen(partial(_pass_on, heard, place), partial(_pass_on, heard, place, None))
    over, first = False, 0
    while True:
        who, place, message = heard.get()
        if who == "rank":
            with suppress(OSError):
                line.say(**(message or {"afresh": f"it {started[place].end()[0]}."}), who=f"Rank {first + place}")
        elif message is None:
            return over
        elif "refused" in message:
            raise RunError("ranks.other_machine/first", others=message["refused"])
        elif "port" in message:
            first, count = int(message["first"]), int(message["count"])
            say(f"training with {count} cards in all")
            told = {"host": meeting.host, "port": message["port"], "networks": networks(line.address)}
            for number, one in enumerate(started):
                one.line.say(rank=first + number, count=count, **told)
        else:
            over = over or bool(message.get("over"))


def _pass_on(heard: queue.SimpleQueue[Heard], place: int, message: dict[str, Any] | None) -> None:
    heard.put(("rank", place, message))
