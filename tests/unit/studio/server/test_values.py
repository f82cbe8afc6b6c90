"""Events bring plain values: nothing that Gradio would take for a file."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from studio.server import values as values_module
from studio.server.values import PlainValues

JOIN = "/gradio_api/queue/join"
FILE = {"path": "/etc/passwd", "url": "http://evil.example/x", "meta": {"_type": "gradio.FileData"}}


async def gradio(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what it was sent."""
    body = await Request(scope, receive).body()
    await JSONResponse({"heard": body.decode("utf-8", "replace")})(scope, receive, send)


@pytest.fixture
def client() -> TestClient:
    return TestClient(PlainValues(gradio))


def event(*data: Any) -> dict[str, Any]:
    return {"data": list(data), "fn_index": 3, "session_hash": "abc", "event_data": None}


def test_plain_events_pass_word_for_word(client: TestClient) -> None:
    sent = json.dumps(event("text", 3, 0.5, True, None, ["a", "b"], '{"path": "/etc/passwd"}'))
    assert client.post(JOIN, content=sent).json()["heard"] == sent


@pytest.mark.parametrize("data", [[FILE], [[FILE]], [[[FILE]]], ["a", {"value": 1}], [[[[[["deep"]]]]]]])
def test_what_looks_like_a_file_never_reaches_gradio(client: TestClient, data: list[Any]) -> None:
    for path in (JOIN, f"{JOIN}/"):
        assert client.post(path, json=event(*data)).status_code == 403


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b'{"data": {"0": "a"}}', b'{"fn_index": 1}', b"[" * 100_000])
def test_what_is_no_event_is_refused(client: TestClient, body: bytes) -> None:
    assert client.post(JOIN, content=body).status_code == 403


def test_an_event_has_a_size(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values_module, "MOST_BYTES", 200)
    assert client.post(JOIN, json=event("a")).status_code == 200
    assert client.post(JOIN, json=event("a" * 200)).status_code == 403


def test_other_routes_are_left_alone(client: TestClient) -> None:
    assert client.post("/studio/ask", json={"data": [FILE]}).status_code == 200
