"""The door: what comes in, what does not, and that what does not leaves no mark."""

from __future__ import annotations

import base64
import json
import stat
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.testclient import TestClient

from core.cli.commands import main as command_line
from core.machine.locations import Locations
from core.machine.sessions import revoke
from studio.server.access import guard as guard_module
from studio.server.access import sessions as door_module
from studio.server.access.address import Front
from studio.server.access.guard import Guard
from studio.server.access.sessions import COOKIE_SECONDS, AccessTokens

ROOT = "http://127.0.0.1:8765"


@pytest.fixture
def door(locations: Locations) -> AccessTokens:
    return AccessTokens(locations.sessions)


@pytest.fixture
def outside(door: AccessTokens) -> TestClient:
    """A browser that was not let in."""
    guard = Guard(
        PlainTextResponse("inside"), door, Front(8765), lambda: "the secret", command="launcher.py --home '/a <b>'"
    )
    return TestClient(guard, base_url=ROOT, follow_redirects=False)


@pytest.fixture
def inside(outside: TestClient, door: AccessTokens) -> TestClient:
    """A browser that came through the door."""
    assert outside.get("/enter", params={"token": door.token()}).status_code == 200
    return outside


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
    other = TestClient(Guard(PlainTextResponse("inside"), door, Front(8765), lambda: "s"), base_url=ROOT)
    assert other.get("/enter", params={"token": token}).status_code == 403


def test_a_start_token_grows_old(outside: TestClient, door: AccessTokens, monkeypatch: pytest.MonkeyPatch) -> None:
    token = door.token()
    later = time.monotonic() + door_module.TOKEN_SECONDS + 1
    monkeypatch.setattr(door_module.time, "monotonic", lambda: later)
    assert outside.get("/enter", params={"token": token}).status_code == 403


def test_the_cookie_outlives_the_process_and_only_its_hash_is_kept(
    inside: TestClient, door: AccessTokens, locations: Locations
) -> None:
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

    client = TestClient(Guard(behind, door, Front(8765), lambda: "s"), base_url=ROOT)
    client.get("/enter", params={"token": door.token()})
    client.get("/", headers={"x-forwarded-host": "evil.example", "X-Forwarded-Proto": "https", "forwarded": "host=e"})
    assert "host" in seen[0]
    assert not [name for name in seen[0] if "forwarded" in name.lower()]


def test_cookies_and_tokens_are_random_and_long(door: AccessTokens) -> None:
    tokens = {door.token() for _ in range(100)}
    cookies = {door.enter(token) for token in tokens}
    assert len(tokens) == len(cookies) == 100
    for made in (*tokens, *cookies):
        assert made is not None
        assert len(base64.urlsafe_b64decode(made + "=")) == 32, "256 bits"
    assert COOKIE_SECONDS == 30 * 24 * 3600


def test_at_most_fifty_browsers_are_remembered_and_those_that_came_last(door: AccessTokens) -> None:
    cookies = [str(door.enter(door.token())) for _ in range(60)]
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

    client = TestClient(Guard(StreamingResponse(counting()), door, Front(8765), lambda: "s"), base_url=ROOT)
    client.get("/enter", params={"token": door.token()})
    assert client.get("/gradio_api/queue/data").text == "0 1 2 "
