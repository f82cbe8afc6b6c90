"""What the reader remembers between two requests: whole checks and first looks, of files that do not stay as they are.

Its handlers are called here as its pipe calls them, with slices of no time at all.
"""

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
    request = {"path": str(path), "named": str(path), "cache": str(path.parent / "cache"), "choice": {}}
    return {**request, "seconds": 0.0, **more}


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


def test_a_file_that_is_gone_after_its_first_look_is_missing(tmp_path: Path) -> None:
    path = texts(tmp_path / "rows.jsonl", "first")
    reader_child.look(asked(path))
    path.unlink()
    for ask in (reader_child.look, reader_child.check):
        with pytest.raises(DataError, match="No such file") as caught:
            ask(asked(path))
        assert caught.value.code == "data.missing"


def test_more_checks_at_once_than_are_remembered_all_come_to_an_end(tmp_path: Path) -> None:
    for number in range(reader_child._CHECKS):  # first looks that nobody goes on with make room
        reader_child.look(asked(texts(tmp_path / f"look {number}.jsonl", f"of {number}")))
    waiting = [texts(tmp_path / f"{number}.jsonl", f"of {number}", 40) for number in range(reader_child._CHECKS + 3)]
    for _ in range(60 * len(waiting)):  # each in its turn, as a pipe serves those who ask at once
        waiting = [path for path in waiting if not reader_child.check(asked(path))["done"]]
        assert len(reader_child._checks) <= reader_child._CHECKS
    assert waiting == [], "these were never read to their end"


@pytest.mark.parametrize("whole", [True, False])
def test_what_was_kept_and_is_torn_or_has_other_letters_is_read_again(tmp_path: Path, whole: bool) -> None:
    path = texts(tmp_path / "rows.jsonl", "first", 30 if whole else ROWS)
    read = (lambda: checked(path)) if whole else (lambda: reader_child.look(asked(path)))
    before = read()
    kept = [place for place in (tmp_path / "cache").iterdir() if place.suffix in (".json", ".jsonl")]
    assert len(kept) == 2
    for place in kept:
        content = place.read_bytes()
        for harm in (b"", content[:-20], content.replace(b"first", b"worst").replace(b'"usable": ', b'"usable": 1')):
            assert harm != content
            place.write_bytes(harm)
            again = read()
            assert b"worst" not in Path(again["examples"]).read_bytes()
            lines = Path(again["examples"]).read_text().splitlines()
            assert len(lines) == min(again["report"]["rows"], HEAD_ROWS)
            if whole:
                assert (again, place.read_bytes()) == (before, content)
