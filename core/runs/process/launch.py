"""Starts a supervisor, detached: it has its own session and outlives whoever starts it.

The starter holds the job's ``supervisor.lock`` already and passes the open descriptor on, so that from the first
moment there is exactly one supervisor, and the job is never seen as lost.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence

from core.contract.errors import MachineError
from core.machine.disk import APPENDING, open_plain
from core.machine.locations import REPOSITORY, Locations
from core.machine.locks import FileLock
from core.runs.folder.job_folder import JobFolder
from core.runs.process.processes import LOCK_VARIABLE

SUPERVISOR_COMMAND = (sys.executable, "-m", "core.runs.supervise.supervisor")
QUICK = {"PYDANTIC_DISABLE_PLUGINS": "1"}
"""We have none; looking for them among all that is installed costs every small process 20 ms at its start."""


def start_supervisor(
    folder: JobFolder, locations: Locations, lock: FileLock, command: Sequence[str], then: str
) -> None:
    """Starts ``command FOLDER`` with the job's lock in its hands, and lets go of it here.

    Raises:
        MachineError: no process can be made; ``then`` is what a person does once there is room for one.
    """
    passed = {"LUTHIER_HOME": str(locations.home), LOCK_VARIABLE: str(lock.fileno())}
    try:
        with os.fdopen(open_plain(folder.log, APPENDING), "ab") as log:
            process = subprocess.Popen(
                [*command, str(folder.path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=REPOSITORY,
                env={**QUICK, **os.environ, **passed},
                start_new_session=True,
                pass_fds=[lock.fileno()],
            )
    except OSError as error:
        raise MachineError("machine.process", name=folder.name, reason=error.strerror, then=then) from error
    finally:
        lock.release()
    # Reaped when it ends before us, so that no zombie stays; it does not mind when we end first.
    threading.Thread(target=process.wait, name=f"reap-{process.pid}", daemon=True).start()


def inherited_lock(folder: JobFolder) -> FileLock | None:
    """The job's supervisor lock: inherited from the starter, or taken here; None where another supervisor has it."""
    lock = FileLock(folder.supervisor_lock)
    passed = os.environ.pop(LOCK_VARIABLE, "")
    if passed.isdigit() and lock.inherit(int(passed)):
        return lock
    return lock if lock.acquire() else None
