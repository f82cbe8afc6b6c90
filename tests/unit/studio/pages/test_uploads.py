"""Uploads: where they lie, what their names cannot do, and how many there may be."""

import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_routes import Routes
from starlette.testclient import TestClient

from core.contract.errors import DataError
from core.machine.locations import Locations
from studio.pages.new_run.data import upload as upload_module
from studio.pages.new_run.data.upload import uploaded


@pytest.fixture
def client(routes: Routes) -> TestClient:
    return routes.client


def put(client: TestClient, name: str, content: bytes) -> dict[str, str]:
    return client.put("/studio/upload", content=content, headers={"X-File-Name": name}).json()


def test_an_upload_lies_privately_under_an_id_of_ours(client: TestClient, locations: Locations) -> None:
    sent = uploaded(locations, put(client, "Meine%20Daten%20%C3%A4.jsonl", b'{"a": 1}\n')["id"])
    assert sent.path.read_bytes() == b'{"a": 1}\n'
    assert (sent.name, sent.path.name) == ("Meine Daten ä.jsonl", "rows.jsonl")
    assert stat.S_IMODE(sent.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(sent.path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["../../../etc/x.jsonl", "..%2F..%2Fx.jsonl", "C:\\Users\\me\\x.jsonl", "/x.jsonl"])
def test_the_sent_name_is_never_a_path(client: TestClient, locations: Locations, name: str) -> None:
    sent = uploaded(locations, put(client, name, b"{}")["id"])
    assert sent.path.parent.parent == locations.uploads
    assert (sent.name, sent.path.name) == ("x.jsonl", "rows.jsonl")


def disk_with(monkeypatch: pytest.MonkeyPatch, *free: int) -> None:
    """A disk with so much free, each time that it is looked at."""
    each = iter(free)
    monkeypatch.setattr(upload_module.shutil, "disk_usage", lambda _: SimpleNamespace(free=next(each)))


MIB = 1 << 20


@pytest.mark.parametrize(
    ("name", "content", "free", "code"),
    [
        ("model.bin", b"x", (1 << 40,), "data.ending"),
        ("empty.jsonl", b"", (1 << 40,), "data.empty"),
        ("big.jsonl", b"12345", (200 * MIB + 3,), "disk.full"),
        ("rows.jsonl", b"12345", (1 << 40, MIB), "disk.full"),  # others fill it up meanwhile
    ],
)
def test_faulty_uploads_say_why_and_leave_nothing(
    client: TestClient, locations: Locations, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes,
    free: tuple[int, ...], code: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(upload_module, "_LOOK_BYTES", 4)
    disk_with(monkeypatch, *free)
    assert put(client, name, content)["code"] == code
    assert list(locations.uploads.iterdir()) == []


def test_a_file_that_is_too_large_to_send_is_told_the_limit_before_it_is_sent(
    client: TestClient, locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_with(monkeypatch, 1 << 40)
    sizes = {"X-File-Name": "rows.jsonl", "Content-Length": str(100 * 10**9)}
    said = client.put("/studio/upload", content=b"{}", headers=sizes).json()
    assert said["code"] == "upload.size"
    assert "The file has 100 GB. Up to 64 GB can be sent." in said["message"]
    assert "Type its path" in said["hint"]
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
    routes: Routes, monkeypatch: pytest.MonkeyPatch, code: str, stays: bool
) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise DataError.told_by({"code": code, "message": f"Expected rows, found a binary file: {path.name}."})

    studio = routes.studio
    monkeypatch.setattr(studio.data, "first_look", refuse)
    key = put(routes.client, "mine.jsonl", b"\x7fELF")["id"]
    if stays:
        assert upload_module.taken(studio, key).path.is_file()
    else:
        with pytest.raises(DataError, match=r"found a binary file: mine\.jsonl"):
            upload_module.taken(studio, key)
    assert any(studio.locations.data.iterdir()) is stays
    assert not any(studio.locations.uploads.iterdir())


def test_a_person_at_this_machine_may_send_one_file_after_another(routes: Routes, locations: Locations) -> None:
    """Who comes from elsewhere is held to so many within ten minutes; what is chosen waits no longer."""
    here = TestClient(routes.client.app, client=("127.0.0.1", 5000))
    for number in range(upload_module._MOST_WAITING):
        (locations.uploads / f"waiting-{number}").mkdir()
    assert put(routes.client, "rows.jsonl", b"{}")["code"] == "upload.count"
    kept = upload_module.taken(routes.studio, put(here, "rows.jsonl", b"{}")["id"])
    assert kept.path.read_bytes() == b"{}"
    assert len(list(locations.uploads.iterdir())) == upload_module._MOST_WAITING


def test_so_many_files_may_be_on_their_way_at_once(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_module.asyncio.Semaphore, "locked", lambda _: True)
    assert put(client, "rows.jsonl", b"{}")["code"] == "upload.busy"
