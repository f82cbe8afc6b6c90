"""A person's changes of rows: kept over the untouched file, undone and made again, and the data set that they make."""

import csv
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from core.contract.config import DataChoice
from core.contract.errors import DataError
from core.contract.rows import RowChange, RowTable, RowWish
from core.data.files.keep import keep_file
from core.data.files.made import origin_of
from core.data.service.data_service import DataService
from core.data.table.changes import add_change, changes_in, step

CHOICE = DataChoice()


@pytest.fixture
def service(warm_service: DataService) -> DataService:
    return warm_service


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n")
    return path


def look(service: DataService, path: Path, **wish: Any) -> RowTable:
    while not (table := service.table(path, CHOICE, RowWish(**wish))).complete:
        pass
    return table


def test_changes_lie_over_an_untouched_file(service: DataService, tmp_path: Path) -> None:
    made = [
        {"prompt": f"why {n}", "completion": f"so {n} changes", "tags": [n], "n": n, "d": {"e": "f"}} for n in range(9)
    ]
    path = write(tmp_path / "changes.jsonl", *made)
    before = path.read_bytes()
    assert look(service, path, search="other").matching == 0
    for change in (
        RowChange(rows=(3,), column="completion", value="an Other answer"),
        RowChange(rows=(3,), column="n", value="17"),
        RowChange(rows=(4,), column="tags", value="[1, 2"),
        RowChange(rows=(5,), column="d.e", value="g"),
        RowChange(rows=(1, 2), excluded=True),
    ):
        service.change(path, change)
    table = look(service, path)
    assert (table.changes, table.undone, path.read_bytes()) == (5, 0, before)
    assert [row.row for row in table.rows if row.excluded] == [1, 2]
    assert (table.rows[2].edited, table.rows[2].cells["n"]) == (("completion", "n"), "17")
    assert look(service, path, search="other").matching == 1
    assert look(service, path, search="so 2 changes").matching == 0, "it was searched for as it is now"
    assert [row.row for row in look(service, path, state="edited").rows] == [3, 4, 5]
    assert [row.row for row in look(service, path, state="excluded").rows] == [1, 2]
    assert look(service, path, state="used").matching == 7
    assert service.row(path, CHOICE, 5)["d.e"] == "g"
    for _ in range(4):
        service.undo(path)
    table = look(service, path)
    assert (table.changes, table.undone, table.rows[2].cells["n"]) == (1, 4, "2")
    service.redo(path)
    assert look(service, path).rows[2].cells["n"] == "17"
    service.change(path, RowChange(rows=(1,), column="prompt", value=""))
    service.redo(path)
    table = look(service, path)
    assert (table.changes, table.undone) == (3, 0), "what was undone before a new change is gone"
    assert "is empty" in table.rows[0].problem
    with pytest.raises(DataError, match="row 77"):
        service.change(path, RowChange(rows=(77,), excluded=True))


def test_the_data_set_that_changes_make(service: DataService, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    rows = [
        {"prompt": f"wäre {n}", "completion": f"so {n}", "n": n / 3, "big": 12345678901234567890} for n in range(200)
    ]
    path = write(tmp_path / "mine.jsonl", *rows)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\n\n", 3) + b"{broken\n")
    kept = keep_file(path, service._locations)
    assert service.changed(kept.path, CHOICE, lambda *_: None, lambda: False) == kept
    service.change(kept.path, RowChange(rows=(9, 201), column="completion", value="“new”"))
    service.change(kept.path, RowChange(rows=(10, 12), excluded=True))
    service.change(path, RowChange(rows=(12,), excluded=False))  # the same content, and so the same changes
    made = service.changed(kept.path, CHOICE, lambda *_: None, lambda: False)
    assert made.name == "mine-edited.jsonl"
    origin = origin_of(made.path)
    assert {name: origin[name] for name in ("made", "edited", "excluded")} == {
        "made": "edited",
        "edited": 2,
        "excluded": 1,
    }
    assert origin["from"] == {"name": "mine.jsonl", "sha256": kept.sha256, "layout": "auto"}
    before, after = (service.report(one, CHOICE) for one in (kept.path, made.path))
    assert (before.rows - after.rows, before.mapping, before.columns) == (1, after.mapping, after.columns)
    assert [(one.row, one.code) for one in after.problems] == [(one.row, one.code) for one in before.problems]
    told = {one.row: one for one in service.examples(made.path, CHOICE, range(300))}
    was = {one.row: one for one in service.examples(kept.path, CHOICE, range(300))}
    assert told.keys() == was.keys() - {10}
    assert [row for row in told if told[row] != was[row]] == [9, 201]
    assert told[9].messages[1].content == "“new”"
    assert b"12345678901234567890" in made.path.read_bytes()
    assert service.source_of(made.path) == kept.path == service.source_of(kept.path)
    table = look(service, made.path)
    assert (table.changes, table.rows_in_file) == (3, 201), "the table shows the source"
    service.undo(made.path)
    request.getfixturevalue("makes_here")  # the first went through a child
    again = service.changed(made.path, CHOICE, lambda *_: None, lambda: False)
    assert origin_of(again.path)["excluded"] == 2


@pytest.mark.usefixtures("makes_here")
@pytest.mark.parametrize("kind", ["csv", "json", "txt", "parquet", "bare"])
def test_rows_of_any_file_keep_their_columns_and_numbers(service: DataService, tmp_path: Path, kind: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"question": f"why\n{n}?", "answer": f"so “{n}”"} for n in range(70)]
    path = tmp_path / f"{kind}.{'csv' if kind == 'bare' else kind}"
    if kind in ("csv", "bare"):
        with path.open("w", newline="", encoding="utf-16" if kind == "csv" else "utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerows(([["question", "answer"]] if kind == "csv" else []) + [list(row.values()) for row in rows])
            stream.write("too,many,fields\n")
    elif kind == "json":
        path.write_text(json.dumps({"data": rows}))
    elif kind == "txt":
        path.write_text("\n".join(row["question"].replace("\n", " ") for row in rows))
    else:
        pq.write_table(pa.table({"image": [b"png"] + [None] * 69, **{k: [r[k] for r in rows] for k in rows[0]}}), path)
    service.change(path, RowChange(rows=(3,), excluded=True))
    service.change(path, RowChange(rows=(5,), column=look(service, path).columns[-1], value="other"))
    made = service.changed(path, CHOICE, lambda *_: None, lambda: False)
    before, after = (service.report(one, CHOICE) for one in (path, made.path))
    assert (after.layout, after.mapping, after.columns) == (before.layout, before.mapping, before.columns)
    assert after.usable == before.usable - 1
    told, was = ({one.row: one for one in service.examples(one, CHOICE, range(99))} for one in (made.path, path))
    assert told.keys() == was.keys() - {3}
    assert [row for row in told if told[row] != was[row]] == [5]
    if kind == "parquet":
        assert [one.code for one in after.problems] == ["row.media"], "a picture does not become a row to train on"


@pytest.mark.usefixtures("makes_here")
def test_without_any_row_left_nothing_is_made(service: DataService, tmp_path: Path) -> None:
    path = write(tmp_path / "few.jsonl", {"prompt": "why few", "completion": "so"})
    service.change(path, RowChange(rows=(1,), excluded=True))
    with pytest.raises(DataError) as caught:
        service.changed(path, CHOICE, lambda *_: None, lambda: False)
    assert caught.value.key == "data.nothing/made"


def test_only_what_may_be_read_as_data_is_changed(service: DataService, tmp_path: Path) -> None:
    """An endless file is not read for its hash, and a file that is gone is said to be."""
    service._locations.changes.mkdir(exist_ok=True)
    for path in (Path("/dev/zero"), tmp_path / "gone.jsonl", service._locations.home / "studio.json"):
        for ask in (
            lambda path=path: service.change(path, RowChange(rows=(1,), excluded=True)),
            lambda path=path: service.undo(path),
            lambda path=path: service.table(path, CHOICE, RowWish()),
            lambda path=path: service.changed(path, CHOICE),
        ):
            with pytest.raises(DataError) as caught:
                ask()
            assert caught.value.code in ("data.missing", "data.ours")


def test_two_windows_lose_nothing_of_each_other(tmp_path: Path) -> None:
    path = tmp_path / "changes" / "list.jsonl"

    def edit(first: int) -> None:
        for row in range(first, first + 50):
            add_change(path, RowChange(rows=(row,), column="a", value="x" * 50))

    windows = [threading.Thread(target=edit, args=(1 + 50 * number,)) for number in range(4)]
    for window in windows:
        window.start()
    for window in windows:
        window.join()
    assert sorted(changes_in(path).edits) == list(range(1, 201))
    with path.open("ab") as torn:
        torn.write(b'{"rows":[1],"col')
    add_change(path, RowChange(rows=(500,), excluded=True))
    assert (changes_in(path).count, changes_in(path).excluded) == (201, {500})
    step(path, "undo")
    step(path, "undo")
    assert (changes_in(path).count, changes_in(path).undone) == (199, 2)


def test_a_killed_window_leaves_whole_changes(tmp_path: Path) -> None:
    path = tmp_path / "list.jsonl"
    endless = (
        "from itertools import count; from pathlib import Path; import sys; from core.contract.rows import RowChange; "
        "from core.data.table.changes import add_change\n"
        "for row in count(1): add_change(Path(sys.argv[1]), RowChange(rows=(row,), column='a', value='y' * 5000))"
    )
    child = subprocess.Popen([sys.executable, "-c", endless, str(path)])
    deadline = time.monotonic() + 20
    while changes_in(path).count < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    child.kill()
    child.wait()
    add_change(path, RowChange(rows=(1,), column="a", value="z"))
    known = changes_in(path)
    assert known.edits[1] == {"a": "z"}
    assert {len(cells["a"]) for row, cells in known.edits.items() if row > 1} == {5000}
    assert known.count == len(known.edits) + 1
