"""Writing into the log of a job that nobody serves: both of its locks in hand, the dead process tree waited for."""

from collections.abc import Iterator
from contextlib import contextmanager

from core.contract.events import Event
from core.machine.locks import FileLock
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventTail, EventWriter, LogHold
from core.runs.record.job_record import RunRecord, fold


class DeadJob:
    """A job without processes, ours for the moment."""

    def __init__(self, folder: JobFolder, lock: FileLock, hold: LogHold) -> None:
        self.folder = folder
        self.lock, self.hold = lock, hold
        self.record: RunRecord = fold(EventTail(folder.events).read())

    def say(self, attempt: int, *events: Event) -> None:
        """Appends events to the log."""
        writer = EventWriter(self.folder.events, attempt)
        try:
            for event in events:
                writer.write(event)
        finally:
            writer.close()


@contextmanager
def take_over(folder: JobFolder, seconds: float = 0.0) -> Iterator[DeadJob | None]:
    """Waits so long for the job's processes to leave; None where they live on. The supervisor lock that is passed on to
    a new supervisor stays held when the block ends; else both are let go."""
    lock, hold = FileLock(folder.supervisor_lock), LogHold(folder)
    try:
        yield DeadJob(folder, lock, hold) if lock.acquire(seconds) and hold.take(seconds) else None
    finally:
        hold.give()
        lock.release()
