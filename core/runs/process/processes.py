"""Processes of a job: identified by pid and creation time, marked in their environment, ended as a whole tree; and how
a supervisor is started.

The worker gets ``LUTHIER_JOB=FOLDER`` in its environment, which everything below it inherits. Its tree is the union of
its descendants, its process group, and whoever has the mark: children may detach themselves.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import IO

import psutil
from pydantic import TypeAdapter

from core.contract.errors import MachineError
from core.machine.disk import APPENDING, open_plain, read_plain, write_whole
from core.machine.locations import REPOSITORY, Locations
from core.machine.locks import FileLock
from core.runs.folder.flaws import MOST_BYTES
from core.runs.folder.job_folder import JobFolder

SUPERVISOR_COMMAND = (sys.executable, "-m", "core.runs.supervise.supervisor")
MARK = "LUTHIER_JOB"
LOCK_VARIABLE = "LUTHIER_SUPERVISOR_LOCK"
"""Tells a supervisor the descriptor of its job's lock."""
QUICK = {"PYDANTIC_DISABLE_PLUGINS": "1"}
"""There are none; searching the installed packages for them takes 20 ms at the start of each process."""
_LOOK_SECONDS = 0.02
_START_TICKS = 19
"""``starttime`` in /proc/PID/stat, counted from the field after the name (proc(5): field 22)."""


@dataclass(frozen=True)
class Identity:
    """One process: its pid and when it was created.

    On Linux in seconds since the boot named here: a time of day would change with every correction of the clock.
    """

    pid: int
    created: float
    boot: str = ""

    def alive(self) -> bool:
        """Whether this process lives; a zombie does not."""
        return self.process() is not None

    def process(self) -> psutil.Process | None:
        """The living process; None where it is gone, also where another has its pid."""
        try:
            process = psutil.Process(self.pid)
            dead = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
            return process if identify(self.pid) == self and process.status() not in dead else None
        except (psutil.Error, ValueError):
            return None


@dataclass(frozen=True)
class Owners:
    """Who works on a job: ``supervisor.json``."""

    supervisor: Identity | None = None
    worker: Identity | None = None
    attempt: int = 0


_OWNERS = TypeAdapter(Owners)


def identify(pid: int) -> Identity | None:
    """The identity of a living process; None where there is none."""
    with suppress(OSError, ValueError, IndexError):
        # After the process's name, which stands in brackets and may contain anything.
        ticks = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[_START_TICKS]
        return Identity(pid, int(ticks) / os.sysconf("SC_CLK_TCK"), _boot())
    with suppress(psutil.Error, ValueError):
        return Identity(pid, psutil.Process(pid).create_time())
    return None


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def read_owners(folder: JobFolder) -> Owners:
    """Who last worked on this job; nobody where the file is missing or torn."""
    try:
        return _OWNERS.validate_json(read_plain(folder.supervisor_json, MOST_BYTES["supervisor.json"]))
    except (OSError, ValueError):
        return Owners()


def write_owners(folder: JobFolder, owners: Owners) -> None:
    """Replaces ``supervisor.json`` as a whole."""
    write_whole(folder.supervisor_json, json.dumps(asdict(owners)))


def find_worker(folder: JobFolder) -> Identity | None:
    """The living worker of a job: as ``supervisor.json`` says, else the marked process that leads its group; None
    where there is none."""
    known = read_owners(folder).worker
    if known and known.alive():
        return known
    leaders = _living(lambda process: _mark(process) == str(folder.path) and os.getpgid(process.pid) == process.pid)
    return next((identity for process in leaders if (identity := identify(process.pid))), None)


def end_tree(folder: JobFolder, worker: Identity | None, grace_seconds: float) -> None:
    """Ends the worker and everything below it: SIGTERM, after the grace SIGKILL, and waits."""

    def tree() -> set[psutil.Process]:
        # A group may outlive its leader; its number is not reused while a member lives.
        members = set(_living(lambda one: _mark(one) == str(folder.path)))
        if worker:
            members.update(_living(lambda one: os.getpgid(one.pid) == worker.pid))
            if process := worker.process():
                members.add(process)
                with suppress(psutil.Error):
                    members.update(process.children(recursive=True))
        return {process for process in members if process.pid != os.getpid()}

    stubborn: set[psutil.Process] = set()
    if grace_seconds > 0:
        asked = tree()
        _signal(asked, kill=False)
        stubborn = _outlive(asked, grace_seconds)
    _kill(lambda: stubborn | tree())


def end_job(folder: JobFolder) -> None:
    """Kills all processes of a run and its exports without reading its files: a supervisor is known by its command
    line, the others by their mark."""

    def mine(word: str) -> bool:
        return word == str(folder.path) or word.startswith(f"{folder.jobs}{os.sep}")

    def supervises(process: psutil.Process) -> bool:
        return LOCK_VARIABLE in process.environ() and any(map(mine, process.cmdline()[-1:]))

    _signal(_living(supervises), kill=True)  # first: it would start another worker
    _kill(lambda: set(_living(lambda process: mine(_mark(process)) or supervises(process))))


def _mark(process: psutil.Process) -> str:
    return process.environ().get(MARK, "")


def _kill(find: Callable[[], set[psutil.Process]]) -> None:
    """Kills what ``find`` returns, and up to three times more what was started meanwhile."""
    for _ in range(4):
        if not (living := _outlive(find(), 0.0)):
            return
        _signal(living, kill=True)
        _outlive(living, 1.0)


def _living(chosen: Callable[[psutil.Process], bool]) -> Iterator[psutil.Process]:
    """The processes of the machine that are chosen, without zombies and those that cannot be read."""
    for process in psutil.process_iter():
        try:
            if not chosen(process) or process.status() == psutil.STATUS_ZOMBIE:
                continue
        except (psutil.Error, OSError):
            continue
        yield process


def _outlive(processes: Iterable[psutil.Process], seconds: float) -> set[psutil.Process]:
    """Those that still live after so long; returns as soon as none does. Zombies count as dead: in a container nobody
    may ever reap an orphan, and psutil would wait for it."""

    def lives(process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return False

    until = time.monotonic() + seconds
    while (living := {process for process in processes if lives(process)}) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
        processes = living
    return living


def _signal(processes: Iterable[psutil.Process], kill: bool) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.kill() if kill else process.terminate()


def start_detached(
    command: Sequence[str], log: IO[bytes], environment: Mapping[str, str], descriptors: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """A process in a session of its own, with these descriptors; its output goes to ``log``. Raises OSError."""
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=REPOSITORY, env=environment,
        start_new_session=True, pass_fds=descriptors,
    )  # fmt: skip


def _start_alone(command: Sequence[str], log: Path, told: Mapping[str, str], descriptors: Sequence[int] = ()) -> None:
    """Starts a detached process that is not waited for, and is ``told`` variables beside ours. Raises OSError."""
    with os.fdopen(open_plain(log, APPENDING), "ab") as file:
        process = start_detached(command, file, {**QUICK, **os.environ, **told}, descriptors)
    # So that no zombie stays where it ends before us.
    threading.Thread(target=process.wait, name=f"reap-{process.pid}", daemon=True).start()


def start_supervisor(
    folder: JobFolder, locations: Locations, lock: FileLock, command: Sequence[str], then: str
) -> None:
    """Starts ``command FOLDER`` detached, in a session of its own, and passes the job's lock on to it.

    Raises:
        MachineError: no process can be made; ``then`` is what its hint tells a person to do next.
    """
    passed = {"LUTHIER_HOME": str(locations.home), LOCK_VARIABLE: str(lock.fileno())}
    try:
        _start_alone([*command, str(folder.path)], folder.log, passed, [lock.fileno()])
    except OSError as error:
        raise MachineError("machine.process", name=folder.name, reason=error.strerror, then=then) from error
    finally:
        lock.release()


def start_follower(folder: JobFolder, name: str, locations: Locations) -> None:
    """Starts what passes a run's metrics on (``core.runs.metrics``), detached. The run does not depend on it: where no
    process can be made, there is none."""
    with suppress(OSError):
        place = folder.path / "metrics"
        place.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "core.runs.metrics.follow", str(folder.path), name]
        _start_alone(command, place / f"{name}.log", {"LUTHIER_HOME": str(locations.home)})


def inherited_lock(folder: JobFolder) -> FileLock | None:
    """The job's supervisor lock, inherited or taken here; None where another supervisor has it."""
    lock = FileLock(folder.supervisor_lock)
    passed = os.environ.pop(LOCK_VARIABLE, "")
    if passed.isdigit() and lock.inherit(int(passed)):
        return lock
    return lock if lock.acquire() else None
