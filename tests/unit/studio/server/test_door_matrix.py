"""Every door, tried from every side: host × origin × route of the living application × cookie, some 6,000 requests.

The routes are asked of the application as it is built, Gradio's among them. Behind the guard stands a probe, so "runs
nothing" is counted and not hoped for.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from waiting import run_apart

from core.machine.locations import Locations
from studio.server.access.guard import Guard
from studio.server.access.listening import Front
from studio.server.access.routes import READ, WRITE, is_allowed
from studio.server.access.sessions import AccessTokens
from studio.server.app import application
from studio.server.window import new_run_app
from studio.services.services import Studio
from studio.shell.responses import Sealed

PORT = 8765
HOSTS = {
    "good": "127.0.0.1:8765",
    "name": "localhost:8765",
    "evil": "evil.example:8765",
    "ipv6": "[::1]:8765",
    "dot": "localhost.:8765",
    "capitals": "LOCALHOST:8765",
    "number": "2130706433:8765",
    "other port": "127.0.0.1:80",
    "no port": "127.0.0.1",
    "longer": "localhost.evil.example:8765",
    "malformed": "127.0.0.1:8765@evil.example",
}
ORIGINS = ("none", "own", "http://evil.example", "null", "https://127.0.0.1:8765", "127.0.0.1:8765")
AT_THE_DOOR = {"GET /enter", "POST /enter", "POST /studio/token"}
"""Answered by the guard itself."""


def walk(routes: Iterable[Any], before: str = "") -> Iterator[str]:
    """``METHOD /path/{}`` of every route, through mounts and included routers."""
    for route in routes:
        if inner := getattr(route, "original_router", None):
            yield from walk(inner.routes, before)
            continue
        path = before + getattr(route, "path", "")
        if inner := getattr(route, "routes", None):
            yield from walk(inner, path)
        elif path:
            plain = re.sub(r"\{[^}]*\}", "{}", path)
            short = plain if plain == "/" else plain.rstrip("/")
            files = not hasattr(route, "methods")  # a folder of files that is mounted
            yield from (f"{method} {short}{'/{}' if files else ''}" for method in getattr(route, "methods", ["GET"]))


def allowed(route: str) -> bool:
    """Whether a browser that was let in may ask it."""
    return route not in AT_THE_DOOR and is_allowed(*route.replace("{}", "a1").split(" "))


@pytest.fixture(scope="module")
def live_routes(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The route table of the application as it is served."""
    locations = Locations(tmp_path_factory.mktemp("home")).make()
    studio = Studio(locations, store=None, data=None, port=PORT)  # type: ignore[arg-type]
    mounted = application(studio, failed=pytest.fail).routes
    return set(walk(mounted)) | set(walk(new_run_app(studio).routes)) - {"GET /studio/{}"}


def test_a_session_uses_our_routes_and_of_gradios_what_its_page_needs(live_routes: set[str]) -> None:
    ours = {route for route in live_routes if "/studio/" in route}
    assert len(ours) > 30
    assert [route for route in sorted(ours) if not allowed(route)] == []
    needed = {f"GET {path}" for path in READ} | {f"{verb} {path}" for verb, paths in WRITE.items() for path in paths}
    named = {re.sub(r"\{\w+\}", "{}", route) for route in needed} - {"GET /studio/{}", "POST /studio/{}"}
    assert sorted(named - live_routes) == [], "these do not exist any more"
    assert sorted(route for route in live_routes - ours - named if allowed(route)) == [], "nobody named these"
    refused = {route.split(" ")[1] for route in live_routes if not allowed(route)}
    assert {"/config", "/login", "/gradio_api/file={}", "/gradio_api/proxy={}", "/gradio_api/upload"} <= refused


@dataclass
class Probe:
    """Stands where the window is, and counts who came through."""

    entered: list[str] = field(default_factory=list)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.entered.append(f"{scope['type']} {scope.get('method')} {scope['path']}")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"inside"})


@dataclass
class Knocking:
    """A studio with a probe inside, and a browser that may hold its cookie."""

    sealed: Any
    probe: Probe
    cookie: str

    async def ask(
        self, method: str, path: str, headers: Iterable[tuple[str, str]], kind: str = "http"
    ) -> tuple[int, dict[str, str]]:
        """Status and headers of the answer; a WebSocket that is closed counts as 403."""
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request" if kind == "http" else "websocket.connect", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        raw = [(name.encode(), value.encode()) for name, value in headers]
        scope = {"type": kind, "method": method, "path": path, "query_string": b"", "headers": raw}
        await self.sealed(scope, receive, send)
        if kind == "websocket":
            return (403 if sent[0]["type"] == "websocket.close" else 101), {}
        return sent[0]["status"], {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}


@pytest.fixture
def knocking(door: AccessTokens) -> Knocking:
    probe = Probe()
    guard = Guard(probe, door, Front(PORT), lambda: "the secret")
    return Knocking(Sealed(guard), probe, f"luthier_{PORT}={door.enter(door.token())}")


def headers_of(host: str, origin: str, cookie: str) -> list[tuple[str, str]]:
    given = {"host": HOSTS[host], "accept": "text/html"}
    if origin != "none":
        given["origin"] = f"http://{HOSTS[host]}" if origin == "own" else origin
    return [*given.items(), *([("cookie", cookie)] if cookie else [])]


def may(host: str, origin: str, cookie: str, route: str) -> bool:
    """What the table of the issue allows: our hosts, our pages, a known browser, a route of a session."""
    at_home = host in ("good", "name") and (origin == "own" or (origin == "none" and route.startswith("GET ")))
    return at_home and bool(cookie) and (allowed(route) or route == "GET /enter")


def test_every_cell_that_is_not_allowed_is_refused_and_runs_nothing(knocking: Knocking, live_routes: set[str]) -> None:
    async def all_cells() -> int:
        count = 0
        for route in sorted(live_routes | AT_THE_DOOR):
            method, path = route.replace("{}", "a1").split(" ")
            for host in HOSTS:
                for origin in ORIGINS:
                    for cookie in (knocking.cookie, ""):
                        knocking.probe.entered.clear()
                        status, headers = await knocking.ask(method, path, headers_of(host, origin, cookie))
                        cell = (route, host, origin, bool(cookie), status)
                        if may(host, origin, cookie, route):
                            assert status == 200, cell
                            assert len(knocking.probe.entered) == allowed(route), cell
                        else:
                            assert status in (401, 403), cell
                            assert not knocking.probe.entered, cell
                            assert "set-cookie" not in headers, cell
                        assert headers["x-content-type-options"] == "nosniff", cell
                        assert "frame-ancestors 'none'" in headers["content-security-policy"], cell
                        count += 1
        return count

    assert run_apart(all_cells()) > 3000


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_the_browser_says_is_of_another_site_is_refused(
    knocking: Knocking, live_routes: set[str], site: str
) -> None:
    """Also where the cookie came along: another port of this machine is of the same site for SameSite."""

    async def all_routes() -> None:
        for route in sorted(live_routes):
            method, path = route.replace("{}", "a1").split(" ")
            for origin in ORIGINS[:2]:
                given = [*headers_of("good", origin, knocking.cookie), ("sec-fetch-site", site)]
                status, _ = await knocking.ask(method, path, given)
                assert status == 403, (route, origin)

    run_apart(all_routes())
    assert not knocking.probe.entered


def test_no_socket_and_no_odd_method_opens_anywhere(knocking: Knocking, live_routes: set[str]) -> None:
    async def all_routes() -> None:
        given = headers_of("good", "own", knocking.cookie)
        for path in sorted({route.replace("{}", "a1").split(" ")[1] for route in live_routes}):
            assert (await knocking.ask("GET", path, given, "websocket"))[0] == 403, path
            for method in ("OPTIONS", "TRACE", "PATCH", "DELETE", "CONNECT", "HEAD", "get", "PROPFIND"):
                assert (await knocking.ask(method, path, given))[0] == 403, (method, path)

    run_apart(all_routes())
    assert not knocking.probe.entered


@pytest.mark.parametrize(
    "hosts", [[], ["127.0.0.1:8765", "evil.example:8765"], ["evil.example:8765", "127.0.0.1:8765"], [""]]
)
def test_a_request_names_its_host_once(knocking: Knocking, hosts: list[str]) -> None:
    given = [*(("host", host) for host in hosts), ("cookie", knocking.cookie)]
    assert run_apart(knocking.ask("GET", "/", given))[0] == 403
    assert not knocking.probe.entered
