"""What is sent to wear the door down: connections that say nothing, bodies without end, a file that cannot be read."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from core.contract.errors import MachineError
from core.machine.locations import Locations
from core.machine.sessions import remember_browser, revoke
from studio.server import connections, unheard
from studio.server.access import bodies
from studio.server.access import sessions as door_module
from studio.server.access.address import Front
from studio.server.access.bodies import Bounded
from studio.server.access.guard import Guard
from studio.server.access.listening import Wish, front_of
from studio.server.access.password import Password
from studio.server.access.sessions import AccessTokens, _digest
from studio.server.app import bind
from studio.server.connections import Connection
from studio.server.living import living_studio, remember, secret_of

# ── connections ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def serving(locations: Locations, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a guard that has room for sixteen connections and a second of patience."""
    monkeypatch.setattr(connections, "MOST", 16)
    monkeypatch.setattr(connections, "HEADER_SECONDS", 1.0)
    listener = bind(0)
    port = int(listener.getsockname()[1])
    guard = Guard(PlainTextResponse("inside"), AccessTokens(locations.sessions), Front(port), lambda: "s")
    config = uvicorn.Config(guard, log_level="error", lifespan="off", http=Connection, **connections.OPTIONS)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield port
    server.should_exit = True
    thread.join(10)
    listener.close()


def asked(port: int) -> tuple[bytes, float]:
    """What the door answers, and after how long."""
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=5) as one:
        one.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
        return one.recv(100), time.monotonic() - start


def is_closed(one: socket.socket, seconds: float) -> bool:
    one.settimeout(seconds)
    try:
        return one.recv(100) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_silent_connections_lock_nobody_out(serving: int) -> None:
    silent = [socket.create_connection(("127.0.0.1", serving), timeout=5) for _ in range(60)]
    try:
        answer, took = asked(serving)
        assert answer.startswith(b"HTTP/1.1 403")
        assert took < 1
        assert sum(is_closed(one, 0.01) for one in silent[:40]) == 40, "those that were silent longest are gone"
        assert all(is_closed(one, 3) for one in silent), "and after a while all of them"
    finally:
        for one in silent:
            one.close()


def test_a_header_that_comes_a_byte_at_a_time_does_not_come(serving: int) -> None:
    with socket.create_connection(("127.0.0.1", serving), timeout=5) as one:
        one.sendall(b"GET / HTTP/1.1\r\n")
        until = time.monotonic() + 3
        with pytest.raises(OSError, match=r"reset|pipe|abort"):
            drip(one, until)


def drip(one: socket.socket, until: float) -> None:
    while time.monotonic() < until:
        one.sendall(b"x")
        time.sleep(0.05)


def test_a_connection_that_is_kept_alive_answers_again_and_then_goes(serving: int) -> None:
    with socket.create_connection(("127.0.0.1", serving), timeout=5) as one:
        for _ in range(3):
            one.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{serving}\r\n\r\n".encode())
            time.sleep(0.4)
            assert one.recv(65536).startswith(b"HTTP/1.1 403")
        assert is_closed(one, 3)


# ── bodies ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    await JSONResponse({"bytes": len(await Request(scope, receive).body())})(scope, receive, send)


@pytest.mark.parametrize("path", ["/studio/ask", "/gradio_api/queue/join", "/studio/run/x/export", "/anything"])
def test_no_route_takes_a_body_of_any_size(path: str) -> None:
    client = TestClient(Bounded(echo))
    assert client.post(path, content=b"x" * bodies.MOST_BYTES).json() == {"bytes": bodies.MOST_BYTES}
    assert client.post(path, content=b"x" * (bodies.MOST_BYTES + 1)).status_code == 413
    pieces = (b"x" * 65536 for _ in range(10_000))
    assert client.post(path, content=pieces).status_code == 413
    assert client.put("/studio/upload", content=b"x" * (bodies.MOST_BYTES + 1)).status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SECONDS", 0.1)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.03)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/studio/ask", "headers": []}
    asyncio.run(Bounded(echo)(scope, receive, send))
    assert sent[0]["status"] == 413


# ── what is remembered ───────────────────────────────────────────────────────────────────────────────────────────────


def test_who_was_let_in_stays_so_when_the_file_cannot_be_read_once(
    locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    cookie = str((door := AccessTokens(locations.sessions)).enter(door.token()))
    door = AccessTokens(locations.sessions)

    def refuse(_: Path) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(door_module, "read_sessions", refuse)
        assert not door.knows(cookie)
        guard = Guard(PlainTextResponse("inside"), door, Front(8765), lambda: "s")
        client = TestClient(guard, base_url="http://127.0.0.1:8765")
        assert client.post("/studio/token", headers={"authorization": "Bearer s"}).status_code == 503
    assert door.knows(cookie)


def test_what_cannot_be_read_is_not_written_over(locations: Locations) -> None:
    remember_browser(locations.sessions, _digest("a"), 1000)
    kept = locations.sessions.read_bytes()
    locations.sessions.rename(locations.home / "elsewhere")
    locations.sessions.mkdir()
    with pytest.raises(OSError, match=r"\S"):
        remember_browser(locations.sessions, _digest("b"), 1000)
    locations.sessions.rmdir()
    locations.sessions.write_bytes(kept)
    assert AccessTokens(locations.sessions).knows("a")


@pytest.mark.parametrize(
    "content", ["[" * 60_000, '{"era": [], "browsers": 1}', "\ud800".encode("utf-8", "surrogatepass")]
)
def test_a_file_that_is_none_of_ours_lets_nobody_in(locations: Locations, content: str | bytes) -> None:
    locations.sessions.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert not AccessTokens(locations.sessions).knows("a")


def test_revoke_makes_another_secret(locations: Locations) -> None:
    with remember(locations, Front(1), "the old one"):
        guard = Guard(
            PlainTextResponse("in"), AccessTokens(locations.sessions), Front(8765), lambda: secret_of(locations)
        )
        client = TestClient(guard, base_url="http://127.0.0.1:8765")

        def token(secret: str) -> int:
            return client.post("/studio/token", headers={"authorization": f"Bearer {secret}"}).status_code

        assert token("the old one") == 200
        revoke(locations)
        assert token("the old one") == 403
        assert token(json.loads(locations.studio.read_text("utf-8"))["secret"]) == 200, "a second start finds it"
        assert locations.studio.stat().st_mode & 0o777 == 0o600
    assert not locations.studio.exists()
    assert token("") == 403
    assert living_studio(locations) is None


@pytest.mark.parametrize("words", [" " * 12, "\t\n" * 8, "a" + " " * 20])
def test_a_blank_password_is_none(locations: Locations, words: str) -> None:
    with pytest.raises(MachineError, match="at least 10 characters"):
        Password(locations.password).keep(words)
    assert not locations.password.exists()


def test_a_password_file_without_a_password_is_said(
    locations: Locations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Password(locations.password).keep("three or four words")
    (tmp_path / "password").write_text("\n")
    monkeypatch.setenv("LUTHIER_PASSWORD_FILE", str(tmp_path / "password"))
    with pytest.raises(MachineError, match="it cannot be read"):
        front_of(Wish("127.0.0.1", without_tls=True), 8765, locations)


class EverybodysFiles:
    """``os`` on a disk that keeps no permissions."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fstat(self, _: int) -> os.stat_result:
        return os.stat_result([0o100666, *[0] * 9])


@pytest.mark.parametrize(
    ("mode", "taken"), [(0o700, True), (0o755, True), (0o775, True), (0o777, False), (0o1777, False)]
)
def test_a_root_folder_that_everybody_may_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, taken: bool
) -> None:
    locations = Locations(tmp_path / "home")
    locations.home.mkdir()
    locations.home.chmod(mode)
    if taken:
        assert locations.make().runs.is_dir()
        return
    with pytest.raises(MachineError, match="that only you may write to"):
        locations.make()
    assert list(locations.home.iterdir()) == []
    monkeypatch.setattr("core.machine.locations.os", EverybodysFiles())  # Windows' disk, seen from WSL
    assert locations.make().runs.is_dir()


# ── answers to nobody ────────────────────────────────────────────────────────────────────────────────────────────────


class FakeQueue:
    """Gradio's queue, as far as it is used."""

    def __init__(self, marks: tuple[str, ...]) -> None:
        self.pending_messages_per_session = dict.fromkeys(marks, "what was said")
        self.pending_event_ids_session: dict[str, set[str]] = {mark: {"a"} for mark in marks}
        self.ended: list[str] = []

    async def clean_events(self, *, session_hash: str) -> None:
        self.ended.append(session_hash)


def test_what_nobody_listens_to_is_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unheard, "SECONDS", 0.2)
    queue = FakeQueue(("heard", "listening", "nobody", "other", "again"))

    async def gradio(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].endswith("data"):
            await asyncio.sleep(1.0 if b"listening" in scope["query_string"] else 0.05)
        else:
            await receive()

    app = unheard.Unheard(gradio, queue)

    async def ask(path: str, mark: str) -> None:
        body = json.dumps({"data": [], "session_hash": mark}).encode()
        scope = {"type": "http", "path": f"/gradio_api/queue/{path}", "query_string": f"session_hash={mark}".encode()}

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        await app(scope, receive, None)  # type: ignore[arg-type]

    async def all_of_them() -> None:
        listening = asyncio.create_task(ask("data", "listening"))
        await asyncio.sleep(0.01)
        await asyncio.gather(*(ask("join", mark) for mark in ("heard", "listening", "nobody", "again")))
        await ask("data", "heard")
        await asyncio.sleep(0.1)
        await ask("join", "again")  # before the first question's patience ends; listened to after it
        await asyncio.sleep(0.1)
        await ask("data", "again")
        await asyncio.sleep(0.4)
        await listening

    asyncio.run(all_of_them())
    assert queue.ended == ["nobody"]
    assert set(queue.pending_messages_per_session) == {"heard", "listening", "other", "again"}
    assert set(queue.pending_event_ids_session) == {"heard", "listening", "other", "again"}
