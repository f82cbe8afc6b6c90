"""What the reader remembers between two requests: whole checks and first looks, of files that do not stay as they are.

Its handlers are called here as its pipe calls them, with slices of no time at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.contract.errors import DataError
from core.data.files.checking import HEAD_ROWS
from core.data.service import reader_child

ROWS = 1_500


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    yield
    for check in reader_child._checks.values():
        check.close()
    reader_child._checks.clear()


def asked(path: Path, **more: Any) -> dict[str, Any]:
    return {"path": str(path), "cache": str(path.parent / "cache"), "choice": {}, "seconds": 0.0, **more}


def texts(path: Path, word: str, count: int = ROWS) -> Path:
    path.write_text("".join(f'{{"text": "{word} {number}"}}\n' for number in range(count)))
    return path


def checked(path: Path) -> dict[str, Any]:
    answer = reader_child.check(asked(path))
    while not answer["done"]:
        answer = reader_child.check(asked(path, begun=True))
    return answer


def test_a_file_written_anew_after_its_first_look_is_another_file(tmp_path: Path) -> None:
    path = texts(tmp_path / "rows.jsonl", "first")
    before = reader_child.look(asked(path))
    assert not before["report"]["complete"]
    assert reader_child.look(asked(path)) == before
    texts(path, "second", 30)
    after = reader_child.look(asked(path, seconds=9.0))
    assert (after["report"]["complete"], after["report"]["rows"]) == (True, 30)
    assert "second 29" in Path(after["examples"]).read_text()
    assert checked(path)["report"]["usable"] == 30


def test_a_file_that_changes_between_two_slices_is_a_fault(tmp_path: Path) -> None:
    path = texts(tmp_path / "rows.jsonl", "first")
    assert not reader_child.check(asked(path))["done"]
    texts(path, "another")
    with pytest.raises(DataError, match="found that it changed"):
        reader_child.check(asked(path, begun=True))
    assert checked(path)["report"]["usable"] == ROWS


def test_a_file_that_is_gone_after_its_first_look_is_missing(tmp_path: Path) -> None:
    path = texts(tmp_path / "rows.jsonl", "first")
    reader_child.look(asked(path))
    path.unlink()
    for ask in (reader_child.look, reader_child.check):
        with pytest.raises(DataError, match="No such file") as caught:
            ask(asked(path))
        assert caught.value.code == "data.missing"


def test_more_checks_at_once_than_are_remembered_all_come_to_an_end(tmp_path: Path) -> None:
    files = [texts(tmp_path / f"{number}.jsonl", f"of {number}", 40) for number in range(reader_child._CHECKS + 3)]
    waiting = dict.fromkeys(files, asked(files[0]))
    for _ in range(60 * len(files)):  # each in its turn, as a pipe serves those who ask at once
        for path in list(waiting):
            if reader_child.check(asked(path))["done"]:
                del waiting[path]
        assert len(reader_child._checks) <= reader_child._CHECKS
        if not waiting:
            return
    pytest.fail(f"{len(waiting)} of {len(files)} were never read to their end")


def test_first_looks_that_nobody_went_on_with_make_room(tmp_path: Path) -> None:
    for number in range(reader_child._CHECKS):
        reader_child.look(asked(texts(tmp_path / f"look {number}.jsonl", f"of {number}")))
    path = texts(tmp_path / "rows.jsonl", "wanted", 40)
    slices = 1
    while not reader_child.check(asked(path))["done"]:
        slices += 1
        assert slices < 60
    assert len(reader_child._checks) == reader_child._CHECKS - 1


@pytest.mark.parametrize("torn", ["report-*.json", "examples-*.jsonl"])
def test_what_was_kept_and_is_torn_is_read_again(tmp_path: Path, torn: str) -> None:
    path = texts(tmp_path / "rows.jsonl", "first", 30)
    whole = checked(path)
    (kept,) = (tmp_path / "cache").glob(torn)
    content = kept.read_bytes()
    for left in (b"", content[:-20], content[: len(content) // 2]):
        kept.write_bytes(left)
        assert checked(path)["report"] == whole["report"]
        assert kept.read_bytes() == content


def test_what_was_kept_and_has_other_letters_is_read_again(tmp_path: Path) -> None:
    path = texts(tmp_path / "rows.jsonl", "first", 30)
    whole = checked(path)
    for place in (tmp_path / "cache").iterdir():
        content = place.read_bytes()
        place.write_bytes(content.replace(b"first", b"worst").replace(b'"usable": 30', b'"usable": 29'))
        assert place.read_bytes() != content
        assert checked(path) == whole
        assert place.read_bytes() == content


def test_a_first_look_with_other_letters_is_taken_again(tmp_path: Path) -> None:
    path = texts(tmp_path / "rows.jsonl", "first")
    kept = Path(reader_child.look(asked(path))["examples"])
    kept.write_bytes(kept.read_bytes().replace(b"first", b"worst"))
    assert b"worst" not in Path(reader_child.look(asked(path))["examples"]).read_bytes()


def test_a_first_look_that_is_torn_is_taken_again(tmp_path: Path) -> None:
    path = texts(tmp_path / "rows.jsonl", "first")
    head = reader_child.look(asked(path))
    rows = head["report"]["rows"]
    assert 0 < rows <= HEAD_ROWS
    for kept in (Path(head["examples"]), Path(head["examples"]).with_suffix(".json")):
        os.truncate(kept, 10)
        again = reader_child.look(asked(path))
        assert len(Path(again["examples"]).read_text().splitlines()) == min(again["report"]["rows"], HEAD_ROWS)
