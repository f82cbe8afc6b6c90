"""The worker as its supervisor sees it: its own child, or one that a dead supervisor left behind.

It has its own session and process group, and holds the log and the card through inherited descriptors.
"""

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from core.contract.errors import Fault, MachineError, RunError
from core.machine.disk import APPENDING, open_plain
from core.machine.hardware import Machine
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import ATTEMPT_VARIABLE
from core.runs.process.activity import MemoryKills
from core.runs.process.processes import MARK, Identity, identify, start_detached
from core.runs.process.worker_log import log_tail
from core.runs.record.job_record import effective_config, folded

RESTART_EXIT_CODE = os.EX_TEMPFAIL
"""75: to be started again in a new process, from the last checkpoint (a GPU fault leaves a process unusable)."""

RESTART_NOTE = "worker.restart"
"""Code of a worker's last Note that says the same: an adopted worker's exit code is not known."""

GAVE_WAY = "worker.gave_way"
"""Code of a worker's last Note where it left the card to somebody else, to go on later in a new process."""

CARD_VARIABLE = "LUTHIER_CARD"
"""The card that was locked for a worker, which must not train on the CPU where that is missing."""

CARDS_VARIABLE = "LUTHIER_CARDS"
"""The cards of a worker that trains on several, as ``str(CardSet)``: it starts a process for each of the others."""

ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
"""Where torch reads its allocator's settings: since 2.9 the first name, and the older ones."""

_HEADING = "── attempt "
_LAST_WORDS_BYTES = 4000
_CARD_FAULT = re.compile(
    r"CUDA error|Triton Error \[CUDA\]|illegal memory access|device-side assert|unspecified launch failure"
    r"|Error .* at line \d+ in file .*\.cu"
)


class Worker:
    """A worker being watched."""

    def __init__(self, identity: Identity | None, child: subprocess.Popen[bytes] | None = None) -> None:
        self.identity, self._child = identity, child

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal; None while it lives, and for one that is not our child."""
        return self._child.poll() if self._child else None

    def gone(self) -> bool:
        """Whether the worker's own process has ended."""
        if self._child:
            return self._child.poll() is not None
        return self.identity is None or not self.identity.alive()


def chosen_machine(folder: JobFolder, machine: Machine) -> tuple[Machine, Fault | None]:
    """The machine with the cards that a training chose; or as it is, and why the choice cannot be had."""
    if folder.kind != "train":
        return machine, None
    try:
        cards = effective_config(folder.config(), folded(folder).corrections).train.cards
    except (Fault, OSError):  # the worker says what is wrong with the folder
        return machine, None
    try:
        return machine.choosing(cards), None
    except MachineError as fault:
        return machine, fault


def start_worker(
    folder: JobFolder, command: Sequence[str], environment: Mapping[str, str], descriptors: Sequence[int]
) -> Worker:
    """Starts ``command FOLDER`` detached, with these descriptors; its output goes to ``worker.log``.

    Raises:
        OSError: the process cannot be made.
    """
    with os.fdopen(open_plain(folder.log, APPENDING), "ab", buffering=0) as log:
        with suppress(OSError):  # a full disk
            log.write(f"{_HEADING}{environment.get(ATTEMPT_VARIABLE, '')}\n".encode())
        held = [descriptor for descriptor in descriptors if descriptor >= 0]
        child = start_detached([*command, str(folder.path)], log, environment, held)
    return Worker(identify(child.pid), child)


def worker_environment(
    base: Mapping[str, str], folder: JobFolder, machine: Machine, attempt: int, plain: bool
) -> dict[str, str]:
    """A worker's environment: its attempt, its mark, and ``card_environment``."""
    told = {**base, ATTEMPT_VARIABLE: str(attempt), MARK: str(folder.path), "PYTHONUNBUFFERED": "1"}
    if machine.gpu:
        told[CARD_VARIABLE] = machine.gpu.uuid
    if machine.cards.ranks > 1:
        told[CARDS_VARIABLE] = str(machine.cards)
    return told | card_environment(base, machine, plain)


def card_environment(base: Mapping[str, str], machine: Machine, plain: bool) -> dict[str, str]:
    """Environment variables for a training process beside ``base``: its card, its allocator, and whether kernels work
    here."""
    told = machine.cards.environment(base) | allocator_environment(base, machine)
    if plain:
        told["LUTHIER_KERNELS"] = "plain"
    return told


def allocator_environment(base: Mapping[str, str], machine: Machine) -> dict[str, str]:
    """Expandable segments keep torch's allocator from fragmenting when micro-batches differ in length.

    Not on WSL, whose drivers fail at the mapping that they need (pytorch issue 192330), nor where ``base`` sets the
    allocator.
    """
    if not machine.gpu or machine.wsl or any(name in base for name in ALLOCATOR_VARIABLES):
        return {}
    return {ALLOCATOR_VARIABLES[0]: "expandable_segments:True"}


def death(code: int | None, step: int | None, kills: MemoryKills) -> RunError:
    """What a worker's unexpected end means and what to do about it.

    Args:
        step: that of its last checkpoint; None for a job that trains nothing.
        kills: made before the worker was.
    """
    again = f"Resume goes on from step {step}." if step else "Start it again; no checkpoint stands yet."
    if step is None:
        again = "Start it again."
    if code == -signal.SIGKILL:
        other = kills.more is False
        return RunError(
            "worker.died/killed" if other else "worker.died/killed_for_memory", why=kills.words, again=again
        )
    if code == -signal.SIGABRT and kills.refused:
        return RunError("worker.died/refused_memory", again=again)
    if code is None:
        return RunError("worker.died/unseen", again=again)
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else "unknown"
        return RunError("worker.died/signal", number=-code, name=name, again=again)
    return RunError("worker.died/exit_code", exit_code=code, again=again)


def card_fault(log: Path) -> str:
    """The last line of the last attempt's output in which a library that ends the process itself (bitsandbytes does)
    named a fault of the card; '' where none did."""
    lines = log_tail(log, _LAST_WORDS_BYTES).decode(errors="replace").rpartition(_HEADING)[2].splitlines()
    return next((line.strip()[:200] for line in reversed(lines) if _CARD_FAULT.search(line)), "")
