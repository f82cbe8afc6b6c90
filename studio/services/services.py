"""What every page gets: locations, the store of runs, the data service, drafts, chats, and the machine."""

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from core.chat.client import ChatClient
from core.data.service.data_service import DataService
from core.machine.hardware import Machine, read_machine
from core.machine.locations import Locations
from core.runs.control import trash
from core.runs.control.store import RunStore
from studio.services.chats import ChatClients
from studio.services.session import Drafts

MACHINE_SECONDS = 3.0
TRASH_SECONDS = 5.0
"""How often deleted runs are looked at while one may still be taken back."""
WAKE_SECONDS = 1.5
"""So long the first page and the starting browser need the cores of a small machine."""


@dataclass
class Studio:
    """One studio process. Pages get it as their first argument: ``build(studio)``, ``page(studio)``."""

    locations: Locations
    store: RunStore
    data: DataService
    port: int = 0
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    kept: dict[str, Any] = field(default_factory=dict)
    """What pages keep for their handlers and routes, each under its name."""
    _machine: tuple[float, Machine] | None = None

    def __post_init__(self) -> None:
        self.drafts = Drafts(self.locations)
        self.chats = ChatClients(
            lambda folder, name: ChatClient(self.locations, folder.config(), folder.path, checkpoint=name)
        )

    def machine(self) -> Machine:
        """The machine, as read in the last ``MACHINE_SECONDS``."""
        now = time.monotonic()
        if self._machine is None or now - self._machine[0] > MACHINE_SECONDS:
            self._machine = (now, read_machine(self.locations.home))
        return self._machine[1]

    def landing(self) -> str:
        """The first page: Watch where a run is at work, else New run."""
        at_work = any(run.state in ("starting", "training") for run in self.store.list())
        return "/watch" if at_work else "/"

    def wake(self) -> None:
        """Starts what must not delay the first page: data children, supervision of running runs."""

        def work() -> None:
            time.sleep(WAKE_SECONDS)
            self.data.warm()
            self.store.adopt()
            self.empty_trash()

        threading.Thread(target=work, daemon=True).start()

    def empty_trash(self) -> None:
        """Deletes for good, now and until nothing is left of them, the runs whose time to be taken back is over."""
        if trash.empty(self.locations):
            timer = threading.Timer(TRASH_SECONDS, self.empty_trash)
            timer.daemon = True
            timer.start()


@contextlib.contextmanager
def opened(locations: Locations, port: int) -> Iterator[Studio]:
    """A studio whose children end with it."""
    studio = Studio(locations, RunStore(locations), DataService(locations, guarded=True), port)
    try:
        yield studio
    finally:
        studio.chats.leave()
        studio.data.close()
