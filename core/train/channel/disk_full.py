"""A full disk is waited out: said with what is needed and what is free, and left at once by who wants to pause or stop.

    write ─► no room ─► Stage "waiting" ─► a second later: write again        pause, stop: Leave

Light: nothing of torch is imported here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from core.contract.errors import MachineError
from core.runs.log.events_log import PatientWriter
from core.train.channel.command_queue import CommandQueue
from core.train.channel.reporter import EventReporter

__all__ = ["FULL", "Room"]

FULL = frozenset({"disk.full", "disk.write"})
"""Codes of a ``MachineError`` that room on the disk cures."""
POLL_SECONDS = 1.0

T = TypeVar("T")


class Room:
    """Waits for room on the disk, as long as it takes."""

    def __init__(self, tell: EventReporter, orders: CommandQueue, writer: object = None) -> None:
        self._tell, self._orders = tell, orders
        self._writer = writer if isinstance(writer, PatientWriter) else None

    @property
    def log_is_behind(self) -> bool:
        """Whether the log lacks something that was said."""
        return self._writer is not None and self._writer.behind

    def catch_up(self) -> None:
        """Waits until the log has everything that was said.

        Raises:
            Leave: somebody asked to pause or stop meanwhile.
        """
        if self._writer is not None and self._writer.behind:
            self.until(self._writer.catch_up)

    def until(self, work: Callable[[], T]) -> T:
        """Does ``work``, again and again until the disk takes it.

        Raises:
            Leave: somebody asked to pause or stop meanwhile.
            StudioError: whatever ``work`` raises for another reason.
        """
        while True:
            try:
                return work()
            except MachineError as error:
                if error.code not in FULL:
                    raise
                self._wait(error.message)

    def _wait(self, why: str) -> None:
        self._tell.stage("waiting", f"Room on the disk. {why}")
        self._orders.wait(POLL_SECONDS)
