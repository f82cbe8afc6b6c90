"""While New run is being built: its outline stands, what asks for Gradio waits, and a fault ends the server."""

from __future__ import annotations

import threading

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from studio.server import opening as opening_module
from studio.server.opening import Opening


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_module, "HOLD_SECONDS", 0.02)


def served(opening: Opening) -> FastAPI:
    app = FastAPI(lifespan=opening.lifespan)
    app.get("/standing")(opening.built)
    app.mount("/", opening)
    return app


def page() -> FastAPI:
    app = FastAPI()
    app.get("/")(lambda: "the page")
    app.get("/theme.css")(lambda: "a style")
    return app


def test_the_outline_stands_until_the_page_is_built_and_other_questions_wait() -> None:
    go_on, waited = threading.Event(), []

    def build() -> FastAPI:
        assert go_on.wait(20)
        return page()

    with TestClient(served(Opening(build, lambda: "the outline", failed=pytest.fail))) as client:
        assert client.get("/").text == "the outline"
        assert client.get("/standing").json() is False
        asking = threading.Thread(target=lambda: waited.append(client.get("/theme.css").json()))
        asking.start()
        asking.join(0.2)
        assert waited == []
        go_on.set()
        asking.join(20)
        assert waited == ["a style"]
        assert client.get("/standing").json() is True
        assert client.get("/").json() == "the page"


def test_a_page_that_cannot_be_built_ends_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    failed = threading.Event()

    def build() -> FastAPI:
        raise RuntimeError("no such page")

    with TestClient(served(Opening(build, lambda: "the outline", failed=failed.set))) as client:
        assert failed.wait(20)
        assert client.get("/standing").json() is False
    assert "no such page" in capsys.readouterr().err
