"""The processes of ranks beside the one that starts them, and which cards and machines there are. Imports no torch."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from core.machine.cards import CardSet
from core.machine.children.shared_memory import SharedMemory
from core.runs.folder.job_folder import JobFolder
from core.runs.ranks.line import Line
from core.runs.supervise.worker_process import CARDS_VARIABLE

LINE_VARIABLE = "LUTHIER_LINE"
"""The descriptor of its end of the line tells a worker that it is not rank 0."""
PLACE_VARIABLE = "LUTHIER_PLACE"
"""Its place among the ranks of its machine, and the memory that they share where they can."""
_LAUNCHERS = re.compile(r"(LOCAL_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)|(PMI|OMPI_COMM_WORLD|MV2_COMM_WORLD)_.*")
GONE_SECONDS = 2.0
"""For a rank whose line has ended to be gone, and for a line to end after its rank died."""


def forget_launchers(environment: MutableMapping[str, str]) -> None:
    """Takes out what torchrun, MPI or SLURM told this process of ranks of theirs: accelerate would wait for those."""
    for name in [name for name in environment if _LAUNCHERS.fullmatch(name)]:
        del environment[name]


def cards_here(environment: Mapping[str, str]) -> CardSet:
    """The cards of a worker that trains on several; of any other, one that stands for its own."""
    return CardSet.parse(environment.get(CARDS_VARIABLE, "cpu"))


@dataclass(frozen=True)
class Started:
    """A rank's process, and this end of the line to it."""

    process: subprocess.Popen[bytes]
    line: Line

    def end(self) -> tuple[str, bool]:
        """How it ended, once its line has; whether by SIGKILL."""
        code = None
        with suppress(subprocess.TimeoutExpired):
            code = self.process.wait(GONE_SECONDS)
        how = f"was killed ({signal.Signals(-code).name})" if code and code < 0 else f"ended (exit code {code})"
        return how, code == -signal.SIGKILL


def start_rank(
    folder: JobFolder, cards: CardSet, place: int, log: Path | None = None, shared: SharedMemory | None = None
) -> Started:
    """The worker of the card at this place of ``cards``. Its output goes where ours does, or to ``log``. It inherits
    what we inherited, the locks of the cards, and ``shared``.

    Raises:
        OSError: no process can be made.
    """
    mine, its = socket.socketpair()
    os.set_inheritable(its.fileno(), True)
    told = {LINE_VARIABLE: str(its.fileno()), CARDS_VARIABLE: str(cards)}
    told[PLACE_VARIABLE] = f"{place} {shared.words if shared else ''}"
    environment = {**os.environ, **cards.environment(os.environ, place), **told}
    command = [sys.executable, "-m", "core.worker", str(folder.path)]
    output = log.open("ab") if log else None
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, close_fds=False, env=environment
        )
    finally:
        its.close()
        if output:
            output.close()
    return Started(process, Line(mine))
