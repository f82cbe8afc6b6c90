"""What the tests of runs ask of living processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from core.contract.config import RunConfig
from core.machine.locks import is_held
from core.runs.folder.job_folder import JobFolder
from core.runs.process.processes import MARK, Identity, read_owners
from core.runs.record.job_record import RunRecord

Config = Callable[[str], RunConfig]
Until = Callable[..., RunRecord]


def chosen(wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    """The processes of this machine that are wanted, zombies left out."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if wanted(process) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def marked(folder: JobFolder) -> list[int]:
    return [process.pid for process in chosen(lambda one: one.environ().get(MARK) == str(folder.path))]


def gone(check: Callable[[], object], seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


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
