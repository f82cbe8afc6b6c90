"""The live routes over made runs, with a conversation that answers at once: for tests of the history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from core.contract.config import RunConfig
from core.machine.hardware import Machine
from core.machine.locations import Locations
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import JobFolder
from studio.figures.held_out import HeldOut
from studio.pages.try_it.asking import ChatClients
from studio.server.live import Live, routes

MACHINE = Machine(
    gpus=(), cpu_count=2, ram_total_bytes=2**34, ram_free_bytes=2**33, disk_free_bytes=2**35, system="Linux", wsl=False
)


@dataclass
class Said:
    side: str
    text: str
    done: bool = True


@dataclass
class Echo:
    """Says whose side it is on; remembers which sides were asked."""

    run_id: str
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def ask(self, *_: object, sides: tuple[str, ...] = ("base", "tuned")) -> Iterator[Said]:
        self.asked.append(sides)
        yield from (Said(side, f"{side} of {self.run_id}") for side in sides)

    def close(self) -> None:
        return


@dataclass
class Desk:
    client: TestClient
    live: Live
    talks: list[Echo]
    drafts: list[RunConfig]

    def get(self, path: str, **asked: Any) -> Any:
        answer = self.client.get(f"/studio/{path}", params=asked)
        assert answer.status_code == 200, answer.text
        return answer.json()


def made_desk(locations: Locations) -> Desk:
    talks: list[Echo] = []
    drafts: list[RunConfig] = []

    def begin(folder: JobFolder, checkpoint: str) -> Echo:
        talks.append(Echo(folder.name))
        return talks[-1]

    live = Live(locations, RunStore(locations), ChatClients(begin), HeldOut(None), drafts.append, lambda: MACHINE)  # type: ignore[arg-type]
    app = FastAPI()
    app.include_router(routes(live))
    return Desk(TestClient(app), live, talks, drafts)
