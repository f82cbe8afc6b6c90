"""The door: what comes in, what does not, and that what does not leaves no mark."""

import base64
import json
import os
import socket
import stat
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from made_routes import browser_of
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.testclient import TestClient

from core.cli.commands import main as command_line
from core.machine.locations import Locations
from core.machine.sessions import revoke
from studio.server.access import guard as guard_module
from studio.server.access import sessions as door_module
from studio.server.access.peer import is_anothers, owners
from studio.server.access.sessions import COOKIE_SECONDS, AccessTokens

ROOT = "http://127.0.0.1:8765"


@pytest.fixture
def outside(door: AccessTokens) -> TestClient:
    """A browser that was not let in."""
    return browser_of(door, command="launcher.py --home '/a <b>'")


@pytest.fixture
def inside(door: AccessTokens) -> TestClient:
    """A browser that came through the door."""
    return browser_of(door, enters=True)


def test_without_a_cookie_there_is_a_page_that_says_how_to_get_in(outside: TestClient) -> None:
    answer = outside.get("/", headers={"accept": "text/html"})
    assert answer.status_code == 403
    assert "launcher.py --home &#x27;/a &lt;b&gt;&#x27;" in answer.text
    assert outside.get("/studio/points").json()["code"] == "door.closed"


def test_a_start_token_opens_once(outside: TestClient, door: AccessTokens) -> None:
    token = door.token()
    first = outside.get("/enter", params={"token": token})
    assert 'http-equiv="refresh"' in first.text
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert outside.get("/").text == "inside"
    assert browser_of(door).get("/enter", params={"token": token}).status_code == 403


def test_a_start_token_grows_old(outside: TestClient, door: AccessTokens, monkeypatch: pytest.MonkeyPatch) -> None:
    token = door.token()
    later = time.monotonic() + door_module.TOKEN_SECONDS + 1
    monkeypatch.setattr(door_module.time, "monotonic", lambda: later)
    assert outside.get("/enter", params={"token": token}).status_code == 403


def test_the_cookie_outlives_the_process_and_only_its_hash_is_kept(inside: TestClient, locations: Locations) -> None:
    cookie = inside.cookies["luthier_8765"]
    assert cookie not in locations.sessions.read_text("utf-8")
    assert stat.S_IMODE(locations.sessions.stat().st_mode) == 0o600
    assert AccessTokens(locations.sessions).knows(cookie)
    kept = json.loads(locations.sessions.read_text("utf-8"))
    ended = dict.fromkeys(kept["browsers"], time.time() - 1)
    locations.sessions.write_text(json.dumps({**kept, "browsers": ended}))
    assert not AccessTokens(locations.sessions).knows(cookie)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/docs"),
        ("GET", "/assets/../core/cli/commands.py"),
        ("GET", "/studio/assets/%2e%2e/starter/model.safetensors"),
        ("GET", "/studio/.hidden"),
        ("POST", "/"),
        ("PATCH", "/studio/upload"),
        ("PUT", "/studio/ask"),
    ],
)
def test_what_a_session_does_not_use_does_not_exist(inside: TestClient, method: str, path: str) -> None:
    assert inside.request(method, path, headers={"origin": ROOT}).status_code == 403
    assert inside.put("/studio/upload", headers={"origin": ROOT}).text == "inside"


def test_a_second_start_gets_a_token_for_the_secret_and_no_page_does(outside: TestClient, door: AccessTokens) -> None:
    shown = {"authorization": "Bearer the secret"}
    token = outside.post("/studio/token", headers=shown).json()["token"]
    assert door.enter(token)
    assert outside.post("/studio/token", headers={"authorization": "Bearer guess"}).status_code == 403
    assert outside.post("/studio/token", headers={**shown, "origin": ROOT}).status_code == 403
    assert outside.get("/studio/token", headers=shown).status_code == 403


def test_other_programs_cookies_on_this_host_do_not_lock_us_out(inside: TestClient) -> None:
    """Cookies know no ports: what another local page keeps is sent to us too, however it is written."""
    ours = inside.cookies["luthier_8765"]
    inside.cookies.clear()
    strange = f'settings={{"a": "x y", é: [1;2]}}; luthier_8765={ours}; =; broken'
    assert inside.get("/", headers={"cookie": strange.encode()}).text == "inside"


def test_what_a_proxy_might_say_is_not_handed_on(door: AccessTokens) -> None:
    seen: list[list[str]] = []

    async def behind(scope: dict[str, Any], receive: Any, send: Any) -> None:
        seen.append([name.decode() for name, _ in scope["headers"]])
        await PlainTextResponse("inside")(scope, receive, send)

    told = {"x-forwarded-host": "evil.example", "X-Forwarded-Proto": "https", "forwarded": "host=e"}
    browser_of(door, behind, enters=True).get("/", headers=told)
    assert "host" in seen[0]
    assert not [name for name in seen[0] if "forwarded" in name.lower()]


def test_cookies_and_tokens_are_long_and_those_of_the_last_fifty_browsers_are_kept(door: AccessTokens) -> None:
    tokens = [door.token() for _ in range(60)]
    cookies = [str(door.enter(token)) for token in tokens]
    assert len({*tokens, *cookies}) == 120
    assert {len(base64.urlsafe_b64decode(made + "=")) for made in (*tokens, *cookies)} == {32}, "256 bits"
    assert COOKIE_SECONDS == 30 * 24 * 3600
    assert [door.knows(cookie) for cookie in cookies] == [False] * 10 + [True] * 50


def test_revoke_ends_cookies_and_unspent_tokens_of_a_living_studio(
    inside: TestClient, door: AccessTokens, locations: Locations, capsys: pytest.CaptureFixture[str]
) -> None:
    unspent = door.token()
    assert inside.get("/").text == "inside"
    assert command_line(["doctor", "--revoke", "--home", str(locations.home)]) == 0
    assert "(1)" in capsys.readouterr().out
    assert inside.get("/").status_code == 403
    assert inside.get("/enter", params={"token": unspent}).status_code == 403
    assert stat.S_IMODE(locations.sessions.stat().st_mode) == 0o600
    assert inside.get("/enter", params={"token": door.token()}).status_code == 200
    assert inside.get("/").text == "inside", "who starts the studio again is let in again"


def test_revoke_cuts_an_answer_that_goes_on(
    door: AccessTokens, locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event stream that a browser holds open ends with its session."""
    monkeypatch.setattr(guard_module, "_LOOK_SECONDS", 0.0)

    async def counting() -> AsyncIterator[str]:
        for number in range(100):
            if number == 3:
                revoke(locations)
            yield f"{number} "

    client = browser_of(door, StreamingResponse(counting()), enters=True)
    assert client.get("/gradio_api/queue/data").text == "0 1 2 "


# ── another user of this machine, who may read a start token from a browser's command line ───────────────────────────

TABLE = """\
   0: 0100007F:223D 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1
   1: 0100007F:C001 0100007F:223D 01 00000000:00000000 00:00000000 00000000  1001        0 12 1
   2: 0100007F:223D 0100007F:C001 01 00000000:00000000 00:00000000 00000000  1000        0 13 1
   3: 0200007F:C001 0100007F:223D 01 00000000:00000000 00:00000000 00000000  1000        0 14 1
   4: 0100007F:C002 0100007F:223D 06 00000000:00000000 03:00000000 00000000     0        0 0 3
   5: 0000000000000000FFFF00000100007F:C003 0000000000000000FFFF00000100007F:223D 01 0:0 00:0 0  1002        0 15 1
""".splitlines()


@pytest.mark.skipif(sys.byteorder != "little", reason="the table above was written by such a machine")
@pytest.mark.parametrize(("port", "users"), [(0xC001, {1001}), (0xC002, {-1}), (0xC003, {1002}), (0xC004, set())])
def test_the_kernels_table_names_the_owner_of_the_other_end(port: int, users: set[int]) -> None:
    assert owners(TABLE, ("127.0.0.1", port), 8765) == users


@pytest.mark.skipif(sys.platform != "linux", reason="the table is Linux's")
def test_who_we_are_ourselves_is_no_other() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as one:
            assert not is_anothers(one.getsockname(), port)
    assert not is_anothers(None, port)
    assert not is_anothers(("203.0.113.7", 50000), port)


def test_another_user_does_not_even_spend_the_token(
    outside: TestClient, door: AccessTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = door.token()
    with monkeypatch.context() as other:
        other.setattr(guard_module, "is_anothers", lambda *_: True)
        answer = outside.get("/enter", params={"token": token})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
    assert outside.get("/enter", params={"token": token}).status_code == 200


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize(("user", "another"), [(65533, True), (1000, False), (0, False)])
def test_a_real_connection_has_an_owner(monkeypatch: pytest.MonkeyPatch, user: int, another: bool) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        os.seteuid(user)
        try:
            one = socket.create_connection(("127.0.0.1", port))
        finally:
            os.seteuid(0)
        with one:
            assert is_anothers(one.getsockname(), port) is another
