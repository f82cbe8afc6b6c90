"""Writing into the log of a job without processes, under both of its locks."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from core.contract.events import Correction, Event
from core.machine.hardware import read_machine
from core.machine.locks import FileLock
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventWriter, LogHold
from core.runs.record.job_record import RunRecord, effective_config, folded


class DeadJob:
    """A job without processes, while we hold its locks."""

    def __init__(self, folder: JobFolder, lock: FileLock, hold: LogHold) -> None:
        self.folder = folder
        self.lock, self.hold = lock, hold
        self.record: RunRecord = folded(folder)

    def moved(self, cards: str | None) -> tuple[Correction, ...]:
        """That it goes on with these cards (``train.cards``); nothing where they are its own, or None.

        Raises:
            MachineError: one of them is not there.
        """
        before = effective_config(self.folder.config(), self.record.corrections).train.cards
        if cards is None or cards == before:
            return ()
        read_machine(self.folder.path).choosing(cards)
        return (Correction(key="train.cards", old=before, new=cards, reason="It was resumed on other cards."),)

    def say(self, attempt: int, *events: Event) -> None:
        """Appends events to the log."""
        with closing(EventWriter(self.folder.events, attempt)) as writer:
            for event in events:
                writer.write(event)


@contextmanager
def take_over(folder: JobFolder, seconds: float = 0.0) -> Iterator[DeadJob | None]:
    """Waits so long for the job's processes to leave; yields None where they live on. Both locks are released at the
    end, except a supervisor lock that was passed on to a new supervisor."""
    lock, hold = FileLock(folder.supervisor_lock), LogHold(folder)
    try:
        yield DeadJob(folder, lock, hold) if lock.acquire(seconds) and hold.take(seconds) else None
    finally:
        hold.give()
        lock.release()
