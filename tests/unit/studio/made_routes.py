"""The live routes over made runs, with a chat and a data service that answer at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysed_once import analysed_once
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.responses import PlainTextResponse

from core.contract.config import RunConfig
from core.contract.data import DataReport, Example, Message
from core.contract.errors import Fault
from core.machine.hardware import Machine
from core.machine.locations import Locations
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import JobFolder
from studio.server.access.guard import Guard
from studio.server.access.listening import Front
from studio.server.access.sessions import AccessTokens
from studio.server.pages import page_routes
from studio.services.chats import ChatClients
from studio.services.services import Studio
from studio.shell.json_routes import answer_faults

MACHINE = Machine(
    gpus=(), cpu_count=2, ram_total_bytes=2**34, ram_free_bytes=2**33, disk_free_bytes=2**35, system="Linux", wsl=False
)


@dataclass
class Said:
    side: str
    text: str
    done: bool
    scores: tuple[tuple[str, float], ...] = ()


@dataclass
class FakeChat:
    """Says whose side it is on, a word at a time; remembers what it was asked."""

    run_id: str = ""
    fault: Fault | None = None
    asked: list[Any] = field(default_factory=list)
    closed: bool = False
    turns: bool = False
    """Whether another run's checkpoint lies over the model that it has."""
    loads: int = 0
    """So many moments it takes to load."""

    def turn_to(self, config: object, run: Path, checkpoint: str) -> bool:
        if self.turns:
            self.run_id = run.name
        return self.turns

    def load(self) -> Iterator[float]:
        while self.loads:
            self.loads -= 1
            yield float(self.loads)

    def ask(
        self, messages: list[Any], sides: Sequence[str] = ("base", "tuned"), second: str = "", **how: object
    ) -> Iterator[Said]:
        self.asked.append((messages, how, sides))
        if second:
            yield Said("tuned", "good 80.0%", True, (("bad", 0.2), ("good", 0.8)))
            return
        for side in sides:
            yield Said(side, f"{side}", False)
            if self.fault:
                raise self.fault
            yield Said(side, f"{side} of {self.run_id}", True)

    def close(self) -> None:
        self.closed = True


class Reader:
    """A data service with ten rows."""

    def report(self, path: object, choice: object, method: object = None) -> DataReport:
        return DataReport(
            path="", sha256="", bytes=1, rows=10, usable=10, layout="alpaca", reason="", columns=(), mapping={},
            roles=(), method="sft",
        )  # fmt: skip

    def first_look(self, path: object, choice: object, seconds: float = 0.0) -> DataReport:
        return self.report(path, choice)

    def split_groups(self, path: object, choice: object, method: object) -> tuple[tuple[int, ...], ...]:
        return ()

    def examples(self, path: object, choice: object, indices: list[int], method: object) -> list[Example]:
        turns = (Message(role="user", content="q"), Message(role="assistant", content="a"))
        return [Example(row=index + 1, messages=turns) for index in indices]

    def numbered(self, path: object, choice: object, numbers: list[int]) -> list[Example]:
        turns = (Message(role="user", content="of the draw"), Message(role="assistant", content="b"))
        return [Example(row=number, messages=turns) for number in numbers]


@dataclass
class Routes:
    """A studio's routes without its guard; the chats that were begun, and the drafts that were made."""

    client: TestClient
    studio: Studio
    chats: list[FakeChat]
    drafts: list[RunConfig]

    def get(self, path: str, **asked: Any) -> Any:
        answer = self.client.get(f"/studio/{path}", params=asked)
        assert answer.status_code == 200, answer.text
        return answer.json()


def made_routes(locations: Locations) -> Routes:
    chats: list[FakeChat] = []
    drafts: list[RunConfig] = []

    def begin(folder: JobFolder, checkpoint: str) -> FakeChat:
        chats.append(FakeChat(folder.name))
        return chats[-1]

    studio = Studio(locations, RunStore(locations), Reader())  # type: ignore[arg-type]
    studio.machine = lambda: MACHINE  # type: ignore[method-assign]
    studio.chats = ChatClients(begin)
    studio.drafts.redraft = drafts.append  # type: ignore[method-assign]
    app = FastAPI()
    answer_faults(app)
    with analysed_once():
        for router in page_routes(studio):
            app.include_router(router)
    return Routes(TestClient(app), studio, chats, drafts)


def browser_of(
    door: AccessTokens, inside: Any = None, front: Front | None = None, enters: bool = False, **more: Any
) -> TestClient:
    """A browser before the guard of a studio with ``inside`` behind it; one that ``enters`` has spent a start token."""
    more.setdefault("secret", lambda: "the secret")
    guard = Guard(inside or PlainTextResponse("inside"), door, front or Front(8765), **more)
    client = TestClient(guard, base_url="http://127.0.0.1:8765", follow_redirects=False)
    if enters:
        assert client.get("/enter", params={"token": door.token()}).status_code == 200
    return client
