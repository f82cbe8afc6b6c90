"""What the tests of runs ask of living processes, and supervisors in the test's own process."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

import psutil

from core.contract.config import RunConfig
from core.contract.events import Evaluation, Finished, Plan, Starting, Step
from core.machine.hardware import Gpu, Machine
from core.machine.locations import Locations
from core.machine.locks import FileLock, is_held
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventWriter
from core.runs.process.processes import MARK, Identity, read_owners
from core.runs.record.job_record import RunRecord, folded
from core.runs.supervise.supervisor import Supervisor
from tests.bare_run import bare_run

Config = Callable[[str], RunConfig]
Until = Callable[..., RunRecord]
WORKER = (sys.executable, "-S", str(Path(__file__).with_name("fake_worker.py")))
"""Without site-packages, which it does not need."""
SUPERVISOR = (sys.executable, str(Path(__file__).with_name("fake_supervisor.py")))
"""The real one, whose workers are these."""
CARD = Machine((Gpu(0, "GPU-1", "Card", None, None, None),), 2, 0, 0, None, "Linux", False)
BARE = Machine((), 2, 0, 0, None, "Linux", False)


def chosen(wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    """The processes of this machine that are wanted, zombies left out."""
    living = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if wanted(process) and process.status() != psutil.STATUS_ZOMBIE:
                living.append(process)
    return living


def marked(folder: JobFolder) -> list[int]:
    return [process.pid for process in chosen(lambda one: one.environ().get(MARK) == str(folder.path))]


def gone(check: Callable[[], object], seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class RunsHere(RunStore):
    """Its supervisors are threads of the test's own process, which spares half a second of the processor for each; what
    becomes of a supervisor's process is for tests with a ``store``, which may look at the same runs."""

    def __init__(self, locations: Locations) -> None:
        super().__init__(locations, ())
        self._threads: list[Thread] = []

    def _spawn(self, folder: JobFolder, lock: FileLock) -> None:
        held = os.dup(lock.fileno())  # the lock goes on with it, as with the descriptor that a process inherits
        lock.release()
        self._threads.append(Thread(target=self._supervise, args=(folder, held)))
        self._threads[-1].start()

    def _supervise(self, folder: JobFolder, held: int) -> None:
        try:
            Supervisor(folder, self.locations, BARE, WORKER).run()
        finally:
            os.close(held)

    def close(self) -> None:
        """Takes the folders away, which ends whoever is still at work."""
        shutil.rmtree(self.locations.runs, ignore_errors=True)
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


def bereaved(folder: JobFolder) -> tuple[Identity, Identity]:
    """Ends the supervisor and not its worker; both of them."""
    owners = read_owners(folder)
    assert owners.supervisor is not None
    assert owners.worker is not None
    os.kill(owners.supervisor.pid, signal.SIGKILL)
    assert gone(lambda: is_held(folder.supervisor_lock))
    return owners.supervisor, owners.worker


def codes(record: RunRecord) -> list[str]:
    return [note.code for note in record.notes]


def finished(store: RunStore, config: RunConfig, steps: int = 3) -> JobFolder:
    """A run that finished, made without processes."""
    folder = bare_run(store, config)
    writer = EventWriter(folder.events, 1)
    trained = (Step(step=step, loss=1 / step) for step in range(1, steps + 1))
    for event in (
        Starting(),
        Plan(total_steps=steps),
        *trained,
        Evaluation(step=steps, loss=0.25),
        Finished(step=steps),
    ):
        writer.write(event)
    writer.close()
    return folder


def run(folder: JobFolder, locations: Locations, machine: Machine = BARE) -> RunRecord:
    """A supervisor of this run in the test's own process, to its end."""
    lock = FileLock(folder.supervisor_lock)
    assert lock.acquire()
    try:
        Supervisor(folder, locations, machine, WORKER).run()
    finally:
        lock.release()
    return folded(folder)
