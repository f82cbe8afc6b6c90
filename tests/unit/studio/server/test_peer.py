"""A start token is worth nothing to another user of the machine, who may read it from a browser's command line."""

from __future__ import annotations

import os
import socket
import sys

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from core.machine.locations import Locations
from studio.server.access import guard as guard_module
from studio.server.access.address import Front
from studio.server.access.guard import Guard
from studio.server.access.peer import is_anothers, owners
from studio.server.access.sessions import AccessTokens

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


def test_another_user_does_not_even_spend_the_token(locations: Locations, monkeypatch: pytest.MonkeyPatch) -> None:
    door = AccessTokens(locations.sessions)
    browser = TestClient(
        Guard(PlainTextResponse("inside"), door, Front(8765), lambda: "s"), base_url="http://127.0.0.1:8765"
    )
    token = door.token()
    with monkeypatch.context() as other:
        other.setattr(guard_module, "is_anothers", lambda *_: True)
        answer = browser.get("/enter", params={"token": token})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
    assert browser.get("/enter", params={"token": token}).status_code == 200


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
