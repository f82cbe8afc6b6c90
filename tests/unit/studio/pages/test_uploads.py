"""Uploads: where they lie, what their names cannot do, and how many there may be."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from desks import made_desk
from fastapi import FastAPI
from starlette.testclient import TestClient

from core.contract.errors import DataError
from core.machine.locations import Locations
from studio.pages.new_run.data import upload as upload_module
from studio.pages.new_run.data.upload import uploaded, uploads
from studio.services.services import Studio
from studio.shell.json_routes import answer_faults


@pytest.fixture
def studio(locations: Locations) -> Studio:
    return made_desk(locations).studio


@pytest.fixture
def client(studio: Studio) -> TestClient:
    app = FastAPI()
    answer_faults(app)
    app.include_router(uploads(studio))
    return TestClient(app)


def put(client: TestClient, name: str, content: bytes) -> dict[str, str]:
    return client.put("/studio/upload", content=content, headers={"X-File-Name": name}).json()


def test_an_upload_lies_privately_under_an_id_of_ours(client: TestClient, locations: Locations) -> None:
    answer = put(client, "Meine%20Daten%20%C3%A4.jsonl", b'{"a": 1}\n')
    sent = uploaded(locations, answer["id"])
    file = sent.path
    assert file.read_bytes() == b'{"a": 1}\n'
    assert sent.name == "Meine Daten ä.jsonl"
    assert file.name == "rows.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "name", ["../../../../etc/cron.jsonl", "..%2F..%2Fx.jsonl", "C:\\Users\\me\\x.jsonl", "/x.jsonl"]
)
def test_the_sent_name_is_never_a_path(client: TestClient, locations: Locations, name: str) -> None:
    sent = uploaded(locations, put(client, name, b"{}")["id"])
    assert sent.path.parent.parent == locations.uploads
    assert sent.name in ("cron.jsonl", "x.jsonl")
    assert sent.path.name == "rows.jsonl"


def test_faulty_uploads_say_why_and_leave_nothing(
    client: TestClient, locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert put(client, "model.bin", b"x")["code"] == "data.ending"
    assert put(client, "empty.jsonl", b"")["code"] == "data.empty"
    monkeypatch.setattr(upload_module.shutil, "disk_usage", lambda _: type("Usage", (), {"free": (200 << 20) + 3}))
    assert put(client, "big.jsonl", b"12345")["code"] == "disk.full"
    assert list(locations.uploads.iterdir()) == []


def test_a_disk_that_refuses_an_upload_is_one_line_and_leaves_nothing(
    client: TestClient, locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(upload_module.os, "fdopen", full)
        answer = put(client, "rows.jsonl", b"12345")
    assert answer["code"] == "disk.write"
    assert "No space left on device" in answer["message"]
    assert list(locations.uploads.iterdir()) == []


@pytest.mark.parametrize(("code", "stays"), [("data.format", False), ("data.layout", True)])
def test_of_an_upload_that_is_no_data_nothing_stays(
    client: TestClient, studio: Studio, monkeypatch: pytest.MonkeyPatch, code: str, stays: bool
) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise DataError.told_by(
            {"code": code, "message": f"Expected rows, found a binary file: {path.name}.", "hint": "Save it again."}
        )

    monkeypatch.setattr(studio.data, "first_look", refuse)
    key = put(client, "mine.jsonl", b"\x7fELF")["id"]
    if stays:
        assert upload_module.taken(studio, key).path.is_file()
    else:
        with pytest.raises(DataError, match=r"found a binary file: mine\.jsonl"):
            upload_module.taken(studio, key)
    assert any(studio.locations.data.iterdir()) is stays
    assert not any(studio.locations.uploads.iterdir())


def test_a_person_at_this_machine_may_send_one_file_after_another(
    client: TestClient, studio: Studio, locations: Locations
) -> None:
    """Who comes from elsewhere is held to so many within ten minutes; what is chosen waits no longer."""
    here = TestClient(client.app, client=("127.0.0.1", 5000))
    for number in range(upload_module._MOST_WAITING):
        (locations.uploads / f"waiting-{number}").mkdir()
    assert put(client, "rows.jsonl", b"{}")["code"] == "upload.count"
    kept = upload_module.taken(studio, put(here, "rows.jsonl", b"{}")["id"])
    assert kept.path.read_bytes() == b"{}"
    assert len(list(locations.uploads.iterdir())) == upload_module._MOST_WAITING


def test_so_many_files_may_be_on_their_way_at_once(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_module.asyncio.Semaphore, "locked", lambda _: True)
    assert put(client, "rows.jsonl", b"{}")["code"] == "upload.busy"


def test_a_disk_that_fills_up_meanwhile_ends_an_upload(
    client: TestClient, locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = iter([1 << 40, 1 << 20])
    monkeypatch.setattr(upload_module, "_LOOK_BYTES", 4)
    monkeypatch.setattr(upload_module.shutil, "disk_usage", lambda _: type("Usage", (), {"free": next(free)}))
    assert put(client, "rows.jsonl", b"12345")["code"] == "disk.full"
    assert list(locations.uploads.iterdir()) == []


@pytest.mark.parametrize("key", ["", "..", "../data", "a" * 20])
def test_an_unknown_upload_is_one_line(locations: Locations, key: str) -> None:
    with pytest.raises(DataError, match="gone"):
        uploaded(locations, key)
