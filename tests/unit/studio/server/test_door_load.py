"""What is sent to wear the studio down: silent connections, endless bodies, files for Gradio, unreadable files."""

import asyncio
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_routes import browser_of
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send
from waiting import run_apart

from core.contract.errors import MachineError
from core.machine.locations import Locations
from core.machine.sessions import remember_browser, revoke
from studio.server import connections, unheard
from studio.server.access import bodies
from studio.server.access import sessions as door_module
from studio.server.access.bodies import Bounded
from studio.server.access.guard import Guard
from studio.server.access.listening import Front
from studio.server.access.sessions import AccessTokens, _digest
from studio.server.connections import Connection
from studio.server.living import living_studio, remember, secret_of

# ── connections ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def serving(door: AccessTokens, serve: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> int:
    """The port of a guard that has room for sixteen connections and a second of patience."""
    monkeypatch.setattr(connections, "MOST", 16)
    monkeypatch.setattr(connections, "HEADER_SECONDS", 1.0)
    make = lambda port: Guard(PlainTextResponse("inside"), door, Front(port), lambda: "s")  # noqa: E731
    return serve(make, http=Connection, **connections.OPTIONS)


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def is_closed(one: socket.socket, seconds: float) -> bool:
    one.settimeout(seconds)
    try:
        return one.recv(100) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_silent_connections_lock_nobody_out(serving: int) -> None:
    silent = [connected(serving) for _ in range(60)]
    try:
        start = time.monotonic()
        with connected(serving) as one:
            one.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{serving}\r\nConnection: close\r\n\r\n".encode())
            assert one.recv(100).startswith(b"HTTP/1.1 403")
        assert time.monotonic() - start < 1
        assert sum(is_closed(one, 0.01) for one in silent[:40]) == 40, "those that were silent longest are gone"
        assert all(is_closed(one, 3) for one in silent), "and after a while all of them"
    finally:
        for one in silent:
            one.close()


def test_a_header_that_comes_a_byte_at_a_time_does_not_come(serving: int) -> None:
    def drip(one: socket.socket) -> None:
        for _ in range(60):
            one.sendall(b"x")
            time.sleep(0.05)

    with connected(serving) as one:
        one.sendall(b"GET / HTTP/1.1\r\n")
        with pytest.raises(OSError, match=r"reset|pipe|abort"):
            drip(one)


def test_a_connection_that_is_kept_alive_answers_again_and_then_goes(serving: int) -> None:
    with connected(serving) as one:
        for _ in range(3):
            one.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{serving}\r\n\r\n".encode())
            time.sleep(0.4)
            assert one.recv(65536).startswith(b"HTTP/1.1 403")
        assert is_closed(one, 3)


# ── bodies ───────────────────────────────────────────────────────────────────────────────────────────────────────────

JOIN = "/gradio_api/queue/join"
FILE = {"path": "/etc/passwd", "url": "http://evil.example/x", "meta": {"_type": "gradio.FileData"}}


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what it was sent."""
    body = await Request(scope, receive).body()
    await JSONResponse({"heard": body.decode("utf-8", "replace")})(scope, receive, send)


@pytest.fixture
def client() -> TestClient:
    return TestClient(Bounded(echo))


def event(*data: Any) -> dict[str, Any]:
    return {"data": list(data), "fn_index": 3, "session_hash": "abc", "event_data": None}


def test_no_route_but_uploads_takes_a_body_of_any_size(client: TestClient) -> None:
    most, piece = bodies.MOST_BYTES, b"x" * (1 << 18)
    assert len(client.post("/studio/ask", content=b"x" * most).json()["heard"]) == most
    assert client.post("/studio/ask", content=b"x" * (most + 1)).status_code == 413
    assert client.post("/studio/run/x/export", content=(piece for _ in range(10))).status_code == 413
    assert client.post(JOIN, json=event("a" * most)).status_code == 413
    assert client.put("/studio/upload", content=(piece for _ in range(5))).status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SECONDS", 0.1)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.03)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/studio/ask", "headers": []}
    run_apart(Bounded(echo)(scope, receive, send))
    assert sent[0]["status"] == 413


def test_plain_events_pass_word_for_word_and_other_routes_take_any_json(client: TestClient) -> None:
    sent = json.dumps(event("text", 3, 0.5, True, None, ["a", "b"], '{"path": "/etc/passwd"}'))
    assert client.post(JOIN, content=sent).json()["heard"] == sent
    assert client.post("/studio/ask", json={"data": [FILE]}).status_code == 200


@pytest.mark.parametrize("data", [[FILE], [[FILE]], [[[FILE]]], ["a", {"value": 1}], [[[[[["deep"]]]]]]])
def test_what_looks_like_a_file_never_reaches_gradio(client: TestClient, data: list[Any]) -> None:
    for path in (JOIN, f"{JOIN}/"):
        assert client.post(path, json=event(*data)).status_code == 403


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b'{"data": {"0": "a"}}', b'{"fn_index": 1}', b"[" * 100_000])
def test_what_is_no_event_is_refused(client: TestClient, body: bytes) -> None:
    assert client.post(JOIN, content=body).status_code == 403


# ── what is remembered ───────────────────────────────────────────────────────────────────────────────────────────────


def test_who_was_let_in_stays_so_when_the_file_cannot_be_read_once(
    door: AccessTokens, locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    cookie = str(door.enter(door.token()))
    door = AccessTokens(locations.sessions)

    def refuse(_: Path) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(door_module, "read_sessions", refuse)
        assert not door.knows(cookie)
        asked = browser_of(door).post("/studio/token", headers={"authorization": "Bearer the secret"})
        assert asked.status_code == 503
    assert door.knows(cookie)


def test_what_cannot_be_read_is_not_written_over(door: AccessTokens, locations: Locations) -> None:
    remember_browser(locations.sessions, _digest("a"), 1000)
    kept = locations.sessions.read_bytes()
    locations.sessions.rename(locations.home / "elsewhere")
    locations.sessions.mkdir()
    with pytest.raises(OSError, match="file"):
        door.admit()
    locations.sessions.rmdir()
    locations.sessions.write_bytes(kept)
    assert door.knows("a")


@pytest.mark.parametrize(
    "content", ["[" * 60_000, '{"era": [], "browsers": 1}', "\ud800".encode("utf-8", "surrogatepass")]
)
def test_a_file_that_is_none_of_ours_lets_nobody_in(
    door: AccessTokens, locations: Locations, content: str | bytes
) -> None:
    locations.sessions.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert not door.knows("a")


def test_revoke_makes_another_secret(door: AccessTokens, locations: Locations) -> None:
    client = browser_of(door, secret=lambda: secret_of(locations))

    def token(secret: str) -> int:
        return client.post("/studio/token", headers={"authorization": f"Bearer {secret}"}).status_code

    with remember(locations, Front(1), "the old one"):
        assert token("the old one") == 200
        revoke(locations)
        assert token("the old one") == 403
        assert token(json.loads(locations.studio.read_text("utf-8"))["secret"]) == 200, "a second start finds it"
        assert locations.studio.stat().st_mode & 0o777 == 0o600
    assert not locations.studio.exists()
    assert token("") == 403
    assert living_studio(locations) is None


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

    run_apart(all_of_them())
    assert queue.ended == ["nobody"]
    assert set(queue.pending_messages_per_session) == {"heard", "listening", "other", "again"}
    assert set(queue.pending_event_ids_session) == {"heard", "listening", "other", "again"}
