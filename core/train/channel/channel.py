"""A worker's events and commands in one value; a full disk is waited out. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from core.contract.errors import MachineError
from core.runs.log.events_log import PatientWriter
from core.train.channel.command_queue import CommandQueue, NoCommands
from core.train.channel.reporter import EventReporter

DISK_FULL = frozenset({"disk.full", "disk.write"})
"""Codes of a ``MachineError`` that free space cures."""
POLL_SECONDS = 1.0

T = TypeVar("T")


@dataclass(frozen=True)
class Channel:
    """Events out, commands in. ``writer`` is the reporter's, where that one buffers what a full disk refuses."""

    reporter: EventReporter
    commands: CommandQueue
    writer: PatientWriter | None = None

    @classmethod
    def unsteered(cls, reporter: EventReporter) -> Channel:
        """A channel without commands."""
        return cls(reporter, CommandQueue(NoCommands(), reporter))

    @property
    def log_is_behind(self) -> bool:
        """Whether events wait to be written."""
        return self.writer is not None and self.writer.behind

    def catch_up(self) -> None:
        """Waits until every event is written.

        Raises:
            Leave: somebody asked to pause or stop meanwhile.
        """
        if self.writer is not None and self.writer.behind:
            self.until_disk_takes(self.writer.catch_up)

    def until_disk_takes(self, work: Callable[[], T]) -> T:
        """Does ``work``, once a second until the disk has room for it.

        Raises:
            Leave: somebody asked to pause or stop meanwhile.
            Fault: whatever ``work`` raises for another reason.
        """
        while True:
            try:
                return work()
            except MachineError as error:
                if error.code not in DISK_FULL:
                    raise
                self.reporter.stage("waiting", f"Room on the disk. {error.message}")
                self.commands.wait(POLL_SECONDS)
