"""Downloading the base model, however often the network goes away in the middle of it.

    downloading ─► the hub no longer answers ─► Stage "waiting" ─► ten seconds later: goes on where it stood
         └──────► no room on the disk ─► core.train.channel.disk_full

A hub that does not answer at the first word is a fault at once: nothing has been spent yet, and a person can cure it.
Light: nothing of torch is imported here.
"""

from __future__ import annotations

from pathlib import Path

from core.contract.catalogue import ModelSpec
from core.contract.errors import HubError
from core.models.hub.client import FetchStopped, fetch
from core.train.channel.command_queue import CommandQueue
from core.train.channel.disk_full import Room
from core.train.channel.reporter import EventReporter

__all__ = ["fetch_base"]

RETRY_SECONDS = 10.0


def fetch_base(spec: ModelSpec, tell: EventReporter, orders: CommandQueue) -> Path:
    """The folder of a hub model, whole.

    Raises:
        Leave: somebody asked to pause or stop; what was fetched is kept.
        StudioError: as ``core.models.hub.client.fetch``, but for a network and a disk that may come back.
    """
    answered = False

    def fetching(done: int, total: int) -> None:
        nonlocal answered
        answered = True
        tell.stage("downloading", spec.title, done, total, "bytes")

    while True:
        try:
            return Room(tell, orders).until(lambda: fetch(spec.name, spec.revision, fetching, lambda: orders.leaving))
        except FetchStopped:
            orders.check()
            raise
        except HubError as error:
            if error.code != "hub.unreachable" or not answered:
                raise
            tell.stage("waiting", f"The network. {error.message} {error.hint}")
            orders.wait(RETRY_SECONDS)
