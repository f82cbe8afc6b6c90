"""Files as records: read exactly like Python's own json and csv, in every encoding, and one bad row is one bad row."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from whole_rows import read_report

from core.contract.config import DataChoice
from core.contract.errors import DataError
from core.data.read import jsonstream
from core.data.read.delimited import recognise
from core.data.read.examples import read_columns, read_examples
from core.data.read.layouts import KNOWN_COLUMNS
from core.data.read.sources import open_source

ENCODINGS = st.sampled_from(["utf-8", "utf-8-sig", "utf-16"])
HARD = ["", " ", "null", "NaN", "[]", '{"a": 1}', "-0", "0x10", "007", "9" * 5000, "true", "\\n", "\u2028\x85\x0b\r\n"]
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20) | st.sampled_from(HARD)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(-(10**400)) | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ROWS = st.lists(st.dictionaries(TEXT, VALUES, min_size=1, max_size=4), min_size=2, max_size=8)


def read_as(folder: Path, name: str, content: bytes) -> list[dict[str, Any]]:
    """The records of a file of which every row can be read."""
    (folder / name).write_bytes(content)
    found = list(open_source(folder / name, KNOWN_COLUMNS, folder / name).records())
    assert [record.fault for record in found if record.fault] == []
    return [record.values for record in found]


def same(found: Any, expected: Any) -> bool:
    """NaN is itself, -0.0 is not 0, 1 is not 1.0, and the order of keys counts."""
    return json.dumps(found) == json.dumps(expected)


@given(ROWS)
@draws(12)
def test_an_array_is_read_alike_through_the_smallest_buffer(rows: list[dict[str, Any]]) -> None:
    class Drip(io.StringIO):
        def read(self, size: int | None = -1) -> str:
            return super().read(3)

    found = jsonstream.array_rows(Drip(json.dumps(rows, ensure_ascii=False)), "rows.json")
    assert same([row for row, _, _ in found], rows)


@given(ROWS, VALUES, st.booleans(), st.booleans(), st.sampled_from([None, 0, 3]), ENCODINGS)
@draws(25)
def test_an_array_is_read_as_python_reads_it(
    tmp_path_factory: Any, rows: list[Any], more: Any, wrapped: bool, escaped: bool, indent: int | None, encoding: str
) -> None:
    rows = [*rows, {"half a pair": "\ud800"}] if escaped else rows  # can stand in a file only as an escape
    separators = (" ,\t", "\n: ") if indent == 3 else None
    text = json.dumps(rows, indent=indent, separators=separators, ensure_ascii=escaped)
    if wrapped:
        around = json.dumps(more)
        text = f'\n \t{{"before": {around}, "data": {text}, "after": {around}\r\n}}\r\n\n'
    assert same(read_as(tmp_path_factory.getbasetemp(), "rows.json", text.encode(encoding)), rows)


@given(
    ROWS, st.booleans(), st.sampled_from(["\n", "\r\n", "\n\n", " \n"]), st.sampled_from(["jsonl", "json"]), ENCODINGS
)
@draws(25)
def test_lines_are_read_as_python_reads_them(
    tmp_path_factory: Any, rows: list[Any], escaped: bool, end: str, suffix: str, encoding: str
) -> None:
    text = end.join(json.dumps(row, ensure_ascii=escaped) for row in rows)
    found = read_as(tmp_path_factory.getbasetemp(), f"rows.{suffix}", (text + end * escaped).encode(encoding))
    assert same(found, rows)


@given(
    st.lists(st.lists(TEXT, min_size=3, max_size=3), min_size=1, max_size=10),
    st.sampled_from(",;\t|"),
    st.sampled_from([(csv.QUOTE_MINIMAL, "\r\n"), (csv.QUOTE_ALL, "\n"), (csv.QUOTE_ALL, "\r")]),
    ENCODINGS,
)
@draws(25)
def test_a_table_is_read_as_python_wrote_it(
    tmp_path_factory: Any, rows: list[list[str]], delimiter: str, style: tuple[Any, str], encoding: str
) -> None:
    written, names = io.StringIO(newline=""), ["instruction", "Input", "output"]
    writer = csv.writer(written, delimiter=delimiter, quoting=style[0], lineterminator=style[1])
    writer.writerows([names, *rows])
    found = read_as(tmp_path_factory.getbasetemp(), "rows.csv", written.getvalue().encode(encoding))
    assert found == [dict(zip(names, row, strict=True)) for row in rows]


def test_a_broken_line_is_one_problem(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    good = '{"prompt": "a", "completion": "b"}\n'
    path.write_bytes((good + "\n" + '{"prompt": "a", \n' + good).encode() + b'{"prompt": "\xff", "completion": "b"}\n')
    report = read_report(path, DataChoice())
    assert (report.rows, report.usable) == (4, 2)
    assert [(problem.row, problem.code) for problem in report.problems] == [(3, "row.unreadable"), (5, "row.encoding")]
    assert [example.row for example in read_examples(path, DataChoice())] == [1, 4]


TORN = ("prompt,completion\n" + f"{'a' * 97},b\n" * 4_000).encode("utf-16") + b"x"  # more than is looked at first


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rows.jsonl", b"", "empty file"),
        ("rows.csv", b" \n\n", "white space"),
        ("rows.json", b"[]", "found none"),
        ("rows.json", b'{\n"rows": [1, 2]}', "array of rows"),
        ("rows.json", b"[[[[", "line 1"),
        ("rows.json", b"[" * 200_000, "line 1"),
        ("rows.xlsx", b"PK\x03\x04\0\0\0", "binary"),
        ("rows.bin", bytes(range(256)), "JSONL, JSON, CSV"),
        ("rows.parquet", b"PAR1 and then nothing", "Parquet"),
        ("rows.weird", b"just words", "found .weird"),
        ("rows.csv", b"a,b,c\n1,2,3\n", "columns: a, b, c"),
        ("rows.csv", b"prompt,completion\nquestion,\n", "completion is empty"),
        ("rows.json", '[{"text": "a"}]'.encode("utf-16-le"), "binary"),
        ("rows.jsonl", b"\xff\xfe\x00", "UTF-16"),
        ("rows.csv", "prompt,completion\na,b\n".encode("utf-32"), "UTF-8"),
        ("rows.csv", TORN, "rows.csv behind row 4,000."),
        ("rows.json", b'[\n {"prompt": "a", "completion": "b"},\n {"prompt": "a" "completion": "b"}\n]', "line 3"),
        ("rows.json", b'[{"text": "a"}] and more', "line 1: 'and more'"),
        ("rows.json", b'[{"text": "a"}]\n[{"text": "b"}]', "line 2: "),
        ("rows.json", b'{"data": [{"text": "a"}], "data": [{"text": "b"}]}', "one list under data"),
        ("rows.json", b'{"data": [{"text": "a"}], "more": }', "line 1"),
        ("rows.json", b'{"data": [{"text": "a"}]', "the end of the file"),
        ("rows.json", b'{"data": [{"text": "a"}] {"more": 1}', "','"),
        ("rows.json", b'[{"text": "a"},\n{"text": "b"},\n{"text": "c"', "line 3 (row 3)"),
    ],
)
def test_bad_files_get_one_line(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_report(path, DataChoice())
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_deep_and_long_lines_are_problems_of_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.data.read.sources.ROW_LIMIT", 2_000_000)
    path = tmp_path / "rows.jsonl"
    bad = ['{"text": ' + "[" * 100_000, '{"text": ' + "1" * 5000 + "}", '"' + "x" * 3_000_000 + '"']
    path.write_text("\n".join(['{"text": "good"}', *bad, '{"text": "good too"}']))
    report = read_report(path, DataChoice())
    assert [problem.row for problem in report.problems] == [2, 3, 4]
    assert [example.row for example in read_examples(path, DataChoice())] == [1, 5]


@pytest.mark.parametrize(
    ("text", "delimiter", "header", "columns"),
    [
        ("question,answer\nhi,hello\n", ",", True, ("question", "answer")),
        ("a film, long, yet good\t1\nbad, bad\t0\n", "\t", False, ("column 1", "column 2")),
        ("frage|antwort\nwas ist das denn hier|ein Haus, ein Baum\n", "|", True, ("frage", "antwort")),
        ("text;text\na long line of text;b\n", ";", True, ("text", "text (2)")),
        (
            "From,Body (plain),Re: Our answer,CSAT\nkim@b.cd,My tent is torn.,We send another.,4\n",
            ",",
            True,
            ("From", "Body (plain)", "Re: Our answer", "CSAT"),
        ),
        (
            "What is this?,A tent.\nWhat is that thing over there behind it?,It is a bird.\n",
            ",",
            False,
            ("column 1", "column 2"),
        ),
        ("yes;no\nno;yes\n", ";", False, ("column 1", "column 2")),
    ],
)
def test_dialects(text: str, delimiter: str, header: bool, columns: tuple[str, ...]) -> None:
    dialect = recognise(text, KNOWN_COLUMNS, tabs=delimiter == "\t", whole=True)
    assert (dialect.delimiter, dialect.header, dialect.columns) == (delimiter, header, columns)


@pytest.mark.parametrize("told", ["sep=;\r\n", "SEP=;\n", '"sep=;"\r\n', "\ufeffsep=;\r\n"])
def test_a_line_that_tells_excel_the_separator_is_no_row(tmp_path: Path, told: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(f"{told}prompt;completion\r\na, b, c;d\r\ne, f, g;h\r\n".encode())
    report = read_report(path, DataChoice())
    assert (report.rows, report.usable, report.columns) == (2, 2, ("prompt", "completion"))
    assert [example.messages[0].content for example in read_examples(path, DataChoice())] == ["a, b, c", "e, f, g"]
    path.write_bytes(b"sep=;\r\nhi;hello\r\nsep=;\r\n")
    assert read_report(path, DataChoice(layout="prompt_completion")).rows == 2


def test_a_row_with_other_fields_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("prompt,completion\na,b\na,b,c\n\nd,e\n")
    report = read_report(path, DataChoice())
    assert (report.rows, report.usable) == (3, 2)
    assert report.problems[0].row == 2
    assert report.problems[0].text == "expected 2 fields, found 3"


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    pq.write_table(pa.table({"messages": [turns, None, turns], "id": [1, 2, 3]}), path)
    report = read_report(path, DataChoice())
    assert (report.rows, report.usable, report.layout) == (3, 2, "messages")
    assert report.problems[0].row == 2
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="broken"):
        read_columns(path)


def test_plain_text(tmp_path: Path) -> None:
    path = tmp_path / "book.md"
    path.write_text("First line.\r\nSecond line.\r\n")
    assert [example.text for example in read_examples(path, DataChoice())] == ["First line.", "Second line."]
    paragraphs = [f"# Part {number}\n" + "words and more words " * 60 for number in range(12)]
    path.write_text("\n\n".join(paragraphs))
    texts = [example.text for example in read_examples(path, DataChoice())]
    assert 2 <= len(texts) < 12
    assert "\n\n".join(texts).split() == path.read_text().split()


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl", "rows.ndjson"])
@pytest.mark.parametrize(
    "text",
    ['[{"text": "a"}, {"text": "b"}]', '[\n{"text": "a"},\n{"text": "b"}\n]\n', '{"text": "a"}\n{"text": "b"}\n'],
)
def test_content_counts_more_than_the_suffix(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert [example.text for example in read_examples(path, DataChoice())] == ["a", "b"]


def test_a_long_line_of_text_is_a_problem_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    for parts in ("one\n{}\ntwo\n", "# One\n\nwords\n\n{}\n\ntwo\n"):
        path.write_text(parts.format("x" * (jsonstream.ROW_LIMIT + 5)))
        report = read_report(path, DataChoice())
        assert (report.rows, report.usable) == (3, 2)
        assert [problem.row for problem in report.problems] == [2]
        assert "longer than" in report.problems[0].text


def test_lines_of_text_are_numbered_as_an_editor_counts(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    line = "one and the same" * 16 + "\n"
    path.write_text(line * 1100 + "\n\nlast\n")  # blank lines behind what is looked at first
    assert [example.row for example in read_examples(path, DataChoice())][-2:] == [1100, 1103]


def test_parquet_values_that_cannot_be_told_are_faults_of_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    text = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xffc")]
    )
    days = pa.array([10**18, 0, 0], pa.timestamp("us"))
    pq.write_table(pa.Table.from_arrays([text, days, text], ["text", "day", "text"]), path)
    report = read_report(path, DataChoice())
    assert report.columns == ("text", "day", "text (2)")
    assert (report.rows, report.usable) == (3, 1)
    assert [(problem.row, problem.text) for problem in report.problems] == [
        (1, "day holds no timestamp[us] of ours"),
        (2, "text holds bytes that are no UTF-8 text"),
    ]


def test_names_that_break_lines_break_no_message(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"a\nb\x1b[2J": 1, "c" * 5000: 2}) + "\n" + '{"\\ud800": 1}\n')
    with pytest.raises(DataError) as caught:
        read_report(path, DataChoice())
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400
    assert path.name in str(caught.value)
