"""Results that are none of ours: each is shown as unreadable, and the list of the others stays whole."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from core.contract.events import Event, Finished, Hello, Queued, Stage, Starting
from core.machine.locations import Locations
from core.proof.store import KINDS
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventWriter
from studio.pages.proof.routes import routes
from studio.services.services import Studio

BEGUN = (Queued(), Starting(), Hello(), Stage(stage="verifying"))


def write(home: Locations, kind: str, number: int) -> Path:
    folder = JobFolder(home.proofs / f"2026-11-21_11{number:02}00_{kind}_k3f9")
    folder.path.mkdir(parents=True)
    folder.proof_yaml.write_text(f"kind: {kind}\nflags: []\n")
    writer = EventWriter(folder.events, 1)
    events: tuple[Event, ...] = (*BEGUN, Finished(seconds=1.0))
    for event in events:
        writer.write(event)
    writer.close()
    return folder.path / "result.json"


ROW = {"op": "x", "dtype": "y", "error": 1, "plain_error": 1, "allowed": 1, "agrees": True}
RESULTS: dict[str, Any] = {
    "wrong kinds": {"rows": 5, "rungs": "x", "table": {"a": 1}, "losses": [], "versions": [], "outside": 7, "judge": 3},
    "texts for numbers": {"rows": [{**ROW, "error": "a"}], "rungs": [{"name": 1}], "table": [{"step": {}}]},
    "rows of nothing": {"rows": [None], "rungs": [[]], "table": [0], "losses": {"a": 1}},
    "no text": {"rows": [{**ROW, "op": "\ud800"}], "device": "\ud800", "rungs": [], "table": []},
    "no numbers": {
        "rows": [{**ROW, "error": float("nan")}],
        "rungs": [],
        "table": [],
        "held_out": {"fast": float("inf")},
    },
    "long": {"rows": [{**ROW, "op": "x" * 1_000_000}] * 3, "device": "d" * 1_000_000, "rungs": [], "table": []},
    "endless": {"rows": [{**ROW, "error": 10**400}], "rungs": [], "table": [], "outside": [], "agrees": [[]]},
}
FILES: dict[str, Callable[[Path], object]] = {
    "deep": lambda path: path.write_text("[" * 100_000),
    "deep object": lambda path: path.write_text('{"a":' * 100_000),
    "huge": lambda path: (path.write_text("{"), os.truncate(path, 6 << 30)),
    "a pipe": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "no text at all": lambda path: path.write_bytes(b"\xff\xfe\0"),
}


@pytest.fixture
def home(tmp_path: Path) -> Locations:
    return Locations(tmp_path / "home").make()


def test_no_result_closes_the_list(home: Locations) -> None:
    number = 0
    for kind in KINDS:
        for result in RESULTS.values():
            write(home, kind, number := number + 1).write_text(json.dumps(result))
        for make in FILES.values():
            make(write(home, kind, number := number + 1))
    app = FastAPI()
    app.include_router(routes(Studio(home, store=None, data=None)))  # type: ignore[arg-type]
    answer = TestClient(app).get("/studio/proofs")
    assert answer.status_code == 200
    told = json.loads(answer.content, parse_constant=pytest.fail)
    assert len(told["proofs"]) == number
    assert len(answer.content) < 200_000
    unreadable = [proof for proof in told["proofs"] if proof["verdict"] == "Unreadable"]
    assert len(unreadable) >= 6
    assert all(proof["note"] and not proof["rows"] for proof in unreadable)
