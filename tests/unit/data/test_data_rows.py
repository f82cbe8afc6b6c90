"""Rows of a file as a table: any file, any window, in any order; what fits a wish; and how quickly."""

import codecs
import csv
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.contract.config import DataChoice
from core.contract.data import Checkup, Finding
from core.contract.errors import DataError
from core.contract.rows import CELL_CHARACTERS, RowChange, RowTable, RowWish
from core.data.read.examples import look_at
from core.data.service.data_service import DataService
from core.data.table.changes import Changes
from core.data.table.window import Asked, OpenTable

ROWS = [
    {"q": f"why {number}", "a": ("so\n" if number % 7 == 0 else "so ") * (number % 50 + 1)} for number in range(400)
]


@pytest.fixture
def service(warm_service: DataService) -> DataService:
    return warm_service


def whole(service: DataService, path: Path, choice: DataChoice | None = None, **wish: Any) -> RowTable:
    """The window, once the file is read and every row was looked at."""
    while not (table := service.table(path, choice or DataChoice(), RowWish(**wish))).complete:
        pass
    return table


def lines(encoding: str = "utf-8") -> bytes:
    return "\n".join(f"{' ' * (n % 3)}\n{json.dumps(row, ensure_ascii=False)}" for n, row in enumerate(ROWS)).encode(
        encoding
    )


def in_csv(path: Path, **how: Any) -> None:
    with path.open("w", newline="", encoding="utf-8-sig") as stream:
        writer = csv.DictWriter(stream, ["q", "a"], **how)
        writer.writeheader()
        writer.writerows(ROWS)


def in_parquet(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(ROWS), path)


FORMS = {
    "rows.jsonl": lambda path: path.write_bytes(codecs.BOM_UTF8 + lines()),
    "wide.jsonl": lambda path: path.write_bytes(codecs.BOM_UTF16_LE + lines("utf-16-le")),
    "rows.csv": in_csv,
    "rows.tsv": lambda path: in_csv(path, delimiter="\t", lineterminator="\r", quoting=csv.QUOTE_ALL),
    "rows.json": lambda path: path.write_text(json.dumps(ROWS, indent=1)),
    "under.json": lambda path: path.write_text(json.dumps({"version": {"data": 1}, "data": ROWS})),
    "rows.parquet": in_parquet,
}


def complete(table: OpenTable, wish: RowWish) -> RowTable:
    """The window for a wish once every row was looked at: one call has little time, and a busy machine less."""
    while not (window := table.window(Asked(DataChoice(), None, wish, Changes(), (), {}))).complete:
        pass
    return window


@pytest.mark.parametrize("name", FORMS)
def test_every_window_is_that_part_of_the_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    FORMS[name](path)
    table = OpenTable(path, path, tmp_path)
    complete(table, RowWish())
    numbers = [record.row for record in look_at(path, path).source.records()]
    assert table.index.numbers.tolist() == numbers
    for place in (0, 1, 63, 64, 65, 127, 128, 200, 399):
        read = [(record.row, record.values) for record in table.index.read(place)]
        assert read == list(zip(numbers, ROWS, strict=True))[place:]
    assert [found.values for found in table.index.at([399, 3, 130, 129]).values()] == [
        ROWS[n] for n in (3, 129, 130, 399)
    ]
    longest = complete(table, RowWish(order="longest", count=8))
    sizes = [len(ROWS[numbers.index(row.row)]["a"]) for row in longest.rows]
    assert min(sizes) >= 130
    for needle, count in (("why 39", 11), ("WHY 399", 1), ("so", 400), ("nothing", 0), ("y 1\n", 0)):
        assert complete(table, RowWish(search=needle)).matching == count


def test_plain_text_and_paragraphs(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    said = [f"The {number}th paragraph " + "goes on and on " * 40 for number in range(200)]
    for text in ("\n".join(said), "\n\n".join(said), "\n\n".join([*said[:9], "x" * (5 << 20), *said[9:]])):
        path.write_text(text)
        table = OpenTable(path, path, tmp_path)
        while not table.index.complete:
            table.index.advance(0.1)
        records = list(look_at(path, path).source.records())
        for place in range(0, len(records), 7):
            assert list(table.index.read(place)) == records[place:]


def test_raw_rows_of_a_file_that_no_layout_knows(service: DataService, tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    made = [{"Alpha": f"x {n}", "Beta": [n, {"k": "v" * 900}], "Gamma": None, "Pi": 3.5} for n in range(90)]
    path.write_text("\n".join(map(json.dumps, made)) + "\n{broken\n")
    with pytest.raises(DataError, match="columns"):
        service.report(path, DataChoice())
    table = whole(service, path, first=80, count=20)
    assert (table.columns, table.matching, table.rows_in_file) == (("Alpha", "Beta", "Gamma", "Pi"), 91, 91)
    assert [row.row for row in table.rows] == list(range(81, 92))
    row = table.rows[0]
    assert row.cells["Beta"].startswith('[80, {"k": "vvv')
    assert (len(row.cells["Beta"]), row.cut, row.cells["Gamma"], row.cells["Pi"]) == (
        CELL_CHARACTERS,
        ("Beta",),
        "",
        "3.5",
    )
    assert (row.problem, row.tokens) == ("", None)
    assert table.rows[-1].problem.startswith("no JSON")
    assert len(service.row(path, DataChoice(), 81)["Beta"]) > 900
    with pytest.raises(DataError, match="row 500") as caught:
        service.row(path, DataChoice(), 500)
    assert caught.value.code == "data.no_row"
    mapped = DataChoice(columns={"prompt": "Alpha", "completion": "Gamma"})
    assert "Gamma is null" in whole(service, path, mapped).rows[0].problem


def test_objects_are_shown_as_columns_of_their_own(service: DataService, tmp_path: Path) -> None:
    path = tmp_path / "nested.jsonl"
    path.write_text(
        "\n".join(json.dumps({"id": n, "data": {"question": f"why {n}", "answer": f"so {n}"}}) for n in range(5))
    )
    table = whole(service, path)
    assert table.columns == ("id", "data.question", "data.answer")
    assert table.rows[3].cells == {"id": "3", "data.question": "why 3", "data.answer": "so 3"}
    guess = service.roles(path, DataChoice())
    assert guess.roles == {"prompt": "data.question", "completion": "data.answer"}
    choice = DataChoice(layout=guess.layout, columns=guess.roles)
    assert service.report(path, choice).usable == 5


def test_rows_that_fit_a_wish(service: DataService, tmp_path: Path, tokenizer_folder: Path) -> None:
    path = tmp_path / "marked.jsonl"
    english, german = "what is the answer to this and that", "wie ist das und was ist die Antwort auf die Frage"
    made: list[dict[str, Any]] = [
        {
            "prompt": f"{german if n % 4 == 0 else english} {n}",
            "completion": "x7 " * (n + 1),
            "label": n % 2 == 0,
        }
        for n in range(40)
    ]
    made[5]["completion"] = ""
    path.write_text("\n".join(map(json.dumps, made)))
    choice = DataChoice()

    def numbers(method: Any = None, **wish: Any) -> list[int]:
        checkup = Checkup(
            rows=40,
            findings=(
                Finding(code="markup", level="note", count=2, text="", rows=(7, 30)),
                Finding(code="leakage", level="fault", count=1, text="", rows=(20,)),
            ),
        )
        asked = RowWish(count=500, **wish)
        while not (found := service.table(path, choice, asked, tokenizer_folder, method, checkup)).complete:
            pass
        assert found.matching == len(found.rows)
        return [row.row for row in found.rows]

    assert numbers(state="left_out") == [6]
    assert numbers("sft", state="left_out") == sorted({6, *range(2, 41, 2)})
    assert len(numbers(state="used")) == 39
    assert numbers(language="German") == list(range(1, 41, 4))
    assert numbers(label="true") == list(range(1, 41, 2))
    assert numbers(finding="markup") == [7, 30]
    assert numbers(order="findings")[:4] == [20, 7, 30, 1]
    assert numbers(tokens_from=1) == [], "not tokenised yet"
    assert numbers(order="shortest")[0] == 6
    service.report(path, choice)
    assert service.tokenise(path, choice, tokenizer_folder, lambda *_: None, lambda: False)
    table = service.table(path, choice, RowWish(order="longest"), tokenizer_folder)
    lengths = [row.tokens for row in table.rows]
    assert lengths[-1] is None, "row 6 cannot be tokenised, and comes last"
    known = [length for length in lengths if length is not None]
    assert known == sorted(known, reverse=True)
    assert len(known) == 39
    middle = numbers(tokens_from=known[30], tokens_to=known[10])
    assert len(middle) >= 21
    assert table.rows[0].problem == ""
    assert service.table(path, choice, RowWish(finding="nothing"), tokenizer_folder).matching == 0


def test_a_large_file_is_shown_at_once_and_read_on(tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl"
    with path.open("w") as stream:
        stream.writelines(f'{{"q": "why {number}", "a": "so {number}"}}\n' for number in range(200_000))
    begun = time.process_time()
    table = OpenTable(path, path, tmp_path)
    first = table.window(Asked(DataChoice(), None, RowWish(), Changes(), (), {}))
    assert len(first.rows) == 60
    while not table.index.complete:
        table.index.advance(0.1)
    assert time.process_time() - begun < 3
    for place in (0, 199_940, 100_003, 64):
        begun = time.process_time()
        rows = table.window(Asked(DataChoice(), None, RowWish(first=place), Changes(), (), {})).rows
        assert time.process_time() - begun < 0.1
        assert [row.row for row in rows] == list(range(place + 1, place + 61))


def test_a_file_that_breaks_off_is_shown_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(ROWS)[:-9] + "!" * 20)
    table = complete(OpenTable(path, path, tmp_path), RowWish(count=500))
    assert (table.rows_in_file, table.complete) == (399, True)


def hostile() -> Iterator[tuple[str, str]]:
    yield "deep.jsonl", '{"a": ' + "[" * 90 + "]" * 90 + ', "b": "x"}\n'
    yield "digits.jsonl", '{"a": ' + "9" * 5000 + ', "b": "x"}\n'
    yield "name.jsonl", json.dumps({"a" * 5000: "x", "b": "y"}) + "\n"
    yield "bytes.csv", "a,b\n\udcff\udcfe,c\n"
    yield "wide.jsonl", json.dumps({f"c{n}": "x" * 500 for n in range(900)}) + "\n"


@pytest.mark.parametrize(("name", "line"), hostile())
def test_hostile_rows_are_shown_within_bounds(service: DataService, tmp_path: Path, name: str, line: str) -> None:
    path = tmp_path / name
    path.write_bytes((line * 40).encode("utf-8", "surrogateescape"))
    table = whole(service, path, count=500)
    assert table.rows
    assert sum(len(text) for row in table.rows for text in row.cells.values()) <= 8 << 20
    assert all(len(column) <= 200 for column in table.columns)
    assert service.row(path, DataChoice(), 1)


def test_what_was_read_already_is_not_read_again(service: DataService, tmp_path: Path) -> None:
    """Which rows can be used, their labels and languages are taken from the Examples of an earlier reading, but for the
    rows that were changed since."""
    path = tmp_path / "known.jsonl"
    said = ("what is the answer to this and that", "wie ist das und was ist die Antwort auf die Frage")
    made = [{"text": f"{said[n % 2]} {n}", "label": ["a", "b", "c"][n % 3], "n": n} for n in range(90)]
    made[4]["text"] = made[80]["text"] = ""
    path.write_text("\n\n".join(map(json.dumps, made)))
    wishes = [
        RowWish(count=500, state="used"), RowWish(count=500, state="left_out"), RowWish(count=500, label="b"),
        RowWish(count=500, language="German"),
    ]  # fmt: skip
    for change in (
        RowChange(rows=(9,), column="text", value="now it is the other text"),
        RowChange(rows=(11,), column="text", value=""),
        RowChange(rows=(13,), column="label", value="b"),
        RowChange(rows=(15,), excluded=True),
    ):
        service.change(path, change)
    scanned = [[row.row for row in whole(service, path, **wish.model_dump()).rows] for wish in wishes]
    copy = path.with_name("copy.jsonl")
    path.rename(copy)
    service.report(copy, DataChoice())
    known = [[row.row for row in whole(service, copy, **wish.model_dump()).rows] for wish in wishes]
    assert known == scanned
    assert scanned[1] == [11, 161]
    assert 13 in scanned[2]
    assert 15 not in scanned[0]


@pytest.mark.parametrize(
    "text",
    [
        'a,b\n"x ""y""",1\n"two\nlines",2\n\n"",3\n,\n',
        'sep=;\na;b\r\n"x;\r\n";1\r\n\r\n2;3',
        'a,b\n5" tall,1\n6" tall,2\n"x"y"z,3\nq,4\n',
        'a,b\nx, "1"\ny,"never closed\nz,3\n',
        'a,b\rx,1\r"y\rz",2\r',
        'a,b\n"x"y,1\n"p"q"r\ns",2\n',
        '\ufeffa,b\n"wär\n",1\ntoo,many,fields\none\n',
        'a\t"b"\nx\t1\n\r\ny\t2\n',
    ],
)
def test_records_are_where_the_csv_module_finds_them(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.csv"
    path.write_bytes((text + text.partition("\n")[2] * 40).encode())
    records = list(look_at(path, path).source.records())
    for read_bytes in (6, 7, 13, 64, 4 << 20):
        monkeypatch.setattr("core.data.table.index._READ_BYTES", read_bytes)
        table = OpenTable(path, path, tmp_path)
        while not table.index.complete:
            table.index.advance(0.1)
        assert table.index.numbers.tolist() == [record.row for record in records]
        for place in range(0, len(records), 9):
            assert list(table.index.read(place)) == records[place:]
