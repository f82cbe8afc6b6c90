"""A chosen file is kept once under its content."""

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


@pytest.mark.parametrize(
    ("name", "kept_as"),
    [
        ("...hidden\nname.txt", "hidden_name.txt"), ("данные.csv", "data.csv"), ("_.json", "data.json"),
        ("a" * 200 + ".jsonl", "a" * 100 + ".jsonl"),
    ],
)  # fmt: skip
def test_a_name_stays_in_its_folder_and_keeps_its_suffix(tmp_path: Path, name: str, kept_as: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(b"a,b\n")
    kept = keep_file(tmp_path / "in" / name, Locations(tmp_path / "home"))
    assert (kept.name, kept.path.parent.parent) == (kept_as, tmp_path / "home" / "data")


@pytest.mark.parametrize(
    ("place", "fault", "code", "said"),
    [
        ("core.data.files.admission.open_plain", PermissionError(errno.EACCES, "Permission denied"), "data.unreadable",
         "Permission denied"),
        ("core.data.files.keep.shutil.disk_usage", None, "data.copy", "room for a copy of rows"),
        ("pathlib.Path.mkdir", OSError(errno.ENOSPC, "No space left on device"), "data.copy", "No space left"),
        ("tempfile.mkstemp", OSError(errno.ENOSPC, "No space left on device"), "data.copy", "No space left"),
    ],
)  # fmt: skip
def test_what_the_disk_refuses_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, fault: OSError | None, code: str, said: str
) -> None:
    source = tmp_path / "rows.csv"
    source.write_bytes(b"a,b\n")
    (tmp_path / "home").mkdir()

    def refuse(*_: Any, **__: Any) -> Any:
        if fault:
            raise fault
        return namedtuple("usage", "total used free")(0, 0, 200 << 20)

    monkeypatch.setattr(place, refuse)
    with pytest.raises(DataError, match=said) as caught:
        keep_file(source, Locations(tmp_path / "home"))
    assert caught.value.code == code
    assert not [one for one in (tmp_path / "home").rglob("*") if one.is_file()]


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
