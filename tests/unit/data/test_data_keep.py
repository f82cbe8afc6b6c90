"""A chosen file is kept once under its content."""

from __future__ import annotations

import errno
import hashlib
import os
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from core.contract.errors import DataError
from core.data.files.keep import keep_file
from core.machine.locations import Locations


def test_the_same_content_is_kept_once(tmp_path: Path) -> None:
    source = tmp_path / "my rows (final).jsonl"
    source.write_bytes(b'{"text": "one"}\n')
    locations = Locations(tmp_path / "home")
    kept, again = keep_file(source, locations), keep_file(source, locations)
    assert kept == again
    assert kept.sha256 == hashlib.sha256(source.read_bytes()).hexdigest()
    assert kept.path == locations.data / kept.sha256 / "my_rows_final_.jsonl"
    assert kept.path.read_bytes() == source.read_bytes()
    assert [entry.name for entry in locations.data.iterdir()] == [kept.sha256]


@pytest.mark.parametrize("content", [None, b""])
def test_missing_and_empty_files_are_refused_in_one_line(tmp_path: Path, content: bytes | None) -> None:
    source = tmp_path / "rows.csv"
    if content is not None:
        source.write_bytes(content)
    with pytest.raises(DataError) as caught:
        keep_file(source, Locations(tmp_path / "home"))
    assert "expected" in str(caught.value).lower()
    assert "\n" not in str(caught.value)


def test_a_name_cannot_leave_its_folder(tmp_path: Path) -> None:
    source = tmp_path / "...hidden\nname.txt"
    source.write_bytes(b"text")
    kept = keep_file(source, Locations(tmp_path / "home"))
    assert kept.path.parent.parent == tmp_path / "home" / "data"
    assert kept.name == "hidden_name.txt"


@pytest.mark.parametrize(
    ("name", "kept_as"),
    [("данные.csv", "data.csv"), ("_.json", "data.json"), ("a" * 200 + ".jsonl", "a" * 100 + ".jsonl")],
)
def test_the_suffix_stays_whatever_the_stem_is(tmp_path: Path, name: str, kept_as: str) -> None:
    source = tmp_path / "in" / name
    source.parent.mkdir()
    source.write_bytes(b"a,b\n")
    assert keep_file(source, Locations(tmp_path / "home")).name == kept_as


def test_a_file_that_may_not_be_read_is_no_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "rows.csv"
    source.write_bytes(b"a,b\n")

    def refuse(*_: Any) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("core.data.files.admission.open_plain", refuse)
    with pytest.raises(DataError, match="Permission denied") as caught:
        keep_file(source, Locations(tmp_path / "home"))
    assert caught.value.code == "data.unreadable"
    assert not (tmp_path / "home").exists()


def test_what_the_disk_has_no_room_for_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "rows.csv"
    source.write_bytes(b"a,b\n")
    (tmp_path / "home").mkdir()
    usage = namedtuple("usage", "total used free")(0, 0, 200 << 20)
    monkeypatch.setattr("core.data.files.keep.shutil.disk_usage", lambda _: usage)
    with pytest.raises(DataError, match="room for a copy of rows"):
        keep_file(source, Locations(tmp_path / "home"))
    assert list((tmp_path / "home").iterdir()) == []


@pytest.mark.parametrize("place", ["pathlib.Path.mkdir", "tempfile.mkstemp"])
def test_a_full_disk_is_one_line_from_the_first_write_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    source = tmp_path / "rows.csv"
    source.write_bytes(b"a,b\n")

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(place, full)
    with pytest.raises(DataError, match="No space left") as caught:
        keep_file(source, Locations(tmp_path / "home"))
    assert caught.value.code == "data.copy"


def test_what_an_ended_process_left_on_its_way_in_is_removed(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_bytes(b"a,b\n")
    locations = Locations(tmp_path / "home").make()
    left, living = locations.data / ".incoming-999999999-x", locations.data / f".incoming-{os.getpid()}-x"
    for path in (left, living):
        path.write_bytes(b"half")
    keep_file(source, locations)
    assert (left.exists(), living.exists()) == (False, True)


def test_a_damaged_copy_is_replaced_by_what_is_chosen(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_bytes(b'{"text": "one"}\n')
    locations = Locations(tmp_path / "home")
    kept = keep_file(source, locations)
    elsewhere = tmp_path / "elsewhere.jsonl"
    elsewhere.write_bytes(source.read_bytes())
    for harm in (b'{"text": "two"}\n', b"", b'{"text": "one"}\nmore', None):
        kept.path.unlink()
        if harm is None:
            kept.path.symlink_to(elsewhere)  # what it leads to may change with every day
        else:
            kept.path.write_bytes(harm)
        assert keep_file(source, locations) == kept
        assert (kept.path.read_bytes(), kept.path.is_symlink()) == (source.read_bytes(), False)


def test_a_damaged_copy_is_no_source(tmp_path: Path) -> None:
    """A draft names the copy itself: kept under its new hash it would be trained on without a word."""
    source = tmp_path / "rows.jsonl"
    source.write_bytes(b'{"text": "one"}\n')
    locations = Locations(tmp_path / "home")
    kept = keep_file(source, locations)
    assert keep_file(kept.path, locations) == kept
    kept.path.write_bytes(b'{"text": "two"}\n')
    with pytest.raises(DataError, match="as it was kept") as caught:
        keep_file(kept.path, locations)
    assert caught.value.code == "data.damaged"
    assert "once more" in caught.value.hint
    assert [entry.name for entry in locations.data.iterdir()] == [kept.sha256], "no copy of the damaged one is left"
