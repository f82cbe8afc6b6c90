"""Well-formed files are read exactly like Python's own json and csv read them: a draw by default, 1,000 when slow."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

from core.data.read.delimited import apart
from core.data.read.layouts import KNOWN_COLUMNS
from core.data.read.sources import open_source

ENCODINGS = ("utf-8", "utf-8", "utf-8-sig", "utf-16")
LETTERS = "ab xyz019.-_'\\/<>&%$äöß漢字🦜\u2028\u2029\x85\x0b\x0c\x1f\x7f\ufeff\u200d"
HARD = ["", " ", "null", "NaN", "[]", '{"a": 1}', "-0", "1e5", "0x10", "007", "3.", "9" * 5000, "true", "\\n", "\\"]
KEYS = ["text", "prompt", "completion", "messages", "id", "", " ", "ключ", "a.b", "$ref", "__class__", "🦜"]


def letters(drawn: random.Random, extra: str = "") -> str:
    if drawn.random() < 0.15:
        return drawn.choice(HARD)
    return "".join(drawn.choices(LETTERS + extra, k=drawn.randint(0, 30)))


def value(drawn: random.Random, depth: int = 0) -> Any:
    kind = drawn.randrange(9 if depth < 5 else 7)
    if kind == 0:
        return drawn.choice([None, True, False])
    if kind == 1:
        return drawn.choice([0, -1, 10**18, -(10 ** drawn.randint(1, 400)), drawn.randint(-1000, 1000)])
    if kind == 2:
        return drawn.choice([drawn.uniform(-1e6, 1e6), 5e-324, 1.7976931348623157e308, -0.0, 1e16, float("nan"), 0.1])
    if kind < 7:
        return letters(drawn, '"\n\r\t\b\f\0\ud800')
    inner = [value(drawn, depth + 1) for _ in range(drawn.randint(0, 4))]
    return inner if kind == 7 else {f"{drawn.choice(KEYS)}{number}": one for number, one in enumerate(inner)}


def an_object(drawn: random.Random) -> dict[str, Any]:
    return {key: value(drawn) for key in drawn.sample(KEYS, drawn.randint(1, 5))}


def plain(row: dict[str, Any]) -> Any:
    """Without halves of surrogate pairs, which can stand in a file only as escapes."""
    return json.loads(json.dumps(row).replace("\\ud800", "x"))


def as_json(found: Any) -> str:
    """For comparing: NaN is itself, -0.0 is not 0, 1 is not 1.0, and the order of keys counts."""
    return json.dumps(found)


def records(path: Path, content: bytes) -> tuple[list[Any], bool]:
    path.write_bytes(content)
    source = open_source(path, KNOWN_COLUMNS)
    found = list(source.records())
    assert [record.fault for record in found if record.fault] == []
    return [record.values for record in found], source.header


def a_json_file(drawn: random.Random, path: Path) -> None:
    encoding, escaped = drawn.choice(ENCODINGS), drawn.random() < 0.5
    rows = [an_object(drawn) if escaped else plain(an_object(drawn)) for _ in range(drawn.randint(1, 12))]
    separators = drawn.choice([None, (",", ":"), (" ,\t", "\n: ")])
    text = json.dumps(rows, indent=drawn.choice([None, 0, 3]), separators=separators, ensure_ascii=escaped)
    whole = text
    if drawn.random() < 0.4:
        before, after = (json.dumps(value(drawn)) for _ in range(2))
        whole = f'{{"before": {before}, "data": {text}, "after": {after}\r\n}}'
    if drawn.random() < 0.3:
        whole = f"\n \t{whole}\r\n\n"
    found, _ = records(path.with_suffix(".json"), whole.encode(encoding))
    assert as_json(found) == as_json(json.loads(text))


def a_lines_file(drawn: random.Random, path: Path) -> None:
    escaped = drawn.random() < 0.5
    rows = [an_object(drawn) if escaped else plain(an_object(drawn)) for _ in range(drawn.randint(2, 12))]
    lines = [json.dumps(row, ensure_ascii=escaped) for row in rows]
    end = drawn.choice(["\n", "\r\n", "\n\n", " \n"])
    text = end.join(lines) + (end if drawn.random() < 0.5 else "")
    suffix = drawn.choice([".jsonl", ".ndjson", ".json"])
    found, _ = records(path.with_suffix(suffix), text.encode(drawn.choice(ENCODINGS)))
    assert as_json(found) == as_json([json.loads(line) for line in lines])


def a_table(drawn: random.Random, path: Path) -> None:
    delimiter, named = drawn.choice(",;\t|"), drawn.random() < 0.6
    quoting = drawn.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
    width = drawn.randint(2, 6)
    # Without names nothing but the fields tells what parts them: then no field holds another delimiter.
    extra = '",;\t|' if named else f'"{delimiter}'
    # Where only what must be quoted is, Python's writer leaves line ends other than its own bare, and so ends rows.
    extra += "" if quoting == csv.QUOTE_MINIMAL else "\n\r"
    rows = [[letters(drawn, extra) for _ in range(width)] for _ in range(drawn.randint(2, 15))]
    if named:
        rows.insert(0, drawn.sample(["instruction", "Input", "output", "text", "label", "prompt", "answer"], width))
    written = io.StringIO(newline="")
    end = drawn.choice(["\n", "\r\n", "\r"])
    csv.writer(written, delimiter=delimiter, quoting=quoting, lineterminator=end).writerows(rows)
    suffix = ".tsv" if delimiter == "\t" else drawn.choice([".csv", ".psv"])
    found, header = records(path.with_suffix(suffix), written.getvalue().encode(drawn.choice(ENCODINGS)))
    own = [row for row in csv.reader(io.StringIO(written.getvalue(), newline=""), delimiter=delimiter) if row]
    assert header or not named
    assert [list(row.values()) for row in found] == own[1 if header else 0 :]
    if header:
        assert list(found[0]) == list(apart(own[0]))


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_files_are_read_as_python_reads_them(tmp_path: Path, count: int) -> None:
    for number in range(count):
        drawn = random.Random(f"valid {number}")
        (a_json_file, a_lines_file, a_table)[number % 3](drawn, tmp_path / f"file-{number}")
    assert len(list(tmp_path.iterdir())) == count
