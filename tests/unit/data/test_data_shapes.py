"""Shapes of real files: parts of contents, joined columns, system prompts in several places, pictures and sound."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from core.contract.config import DataChoice
from core.contract.data import DataReport, Example
from core.contract.errors import DataError
from core.contract.rows import RoleGuess
from core.data.read.dialogue import read_turns
from core.data.read.examples import Tally, look_at, open_reading
from core.data.read.roles import guess_roles

ASKED, ANSWERED = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


def read(path: Path, rows: list[dict[str, Any]], **chosen: Any) -> tuple[DataReport, list[Example]]:
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    tally = Tally(open_reading(path, DataChoice(**chosen)))
    examples = []
    for row in tally.reading.rows():
        tally.add(row)
        examples += [row] if isinstance(row, Example) else []
    return tally.report("", complete=bool(examples)), examples


def said(example: Example) -> list[tuple[str, str]]:
    return [(turn.role, turn.content) for turn in example.messages]


def guess(path: Path) -> RoleGuess:
    look = look_at(path, path)
    return guess_roles(look.columns, look.sample, DataChoice(), look.header)


def part(text: str, kind: str = "text", key: str = "text") -> dict[str, str]:
    return {"type": kind, key: text}


def test_parts_of_a_content_stand_in_any_column(tmp_path: Path) -> None:
    made = [
        {"question": [part(f"Why {n}"), part("?", key="value")], "answer": [part("So."), part("It is.")]}
        for n in range(5)
    ]
    for path in (tmp_path / "parts.jsonl", tmp_path / "parts.parquet"):
        _, examples = read(path, made)
        assert said(examples[1]) == [("user", "Why 1?"), ("assistant", "So.It is.")]
    _, examples = read(tmp_path / "alpaca.jsonl", [{"instruction": [part("Do")], "output": [part("Done")]}])
    assert said(examples[0]) == [("user", "Do"), ("assistant", "Done")]
    _, examples = read(tmp_path / "label.jsonl", [{"text": [part("Good!")], "label": n % 2} for n in range(4)])
    assert examples[0].texts == ("Good!",)
    path = tmp_path / "guessed.jsonl"
    mapped = {"prompt": "Kundin", "completion": "Berater"}
    rows = [{"Kundin": [part(f"Wie {n}?")], "Berater": [part("So geht es, und zwar gut.")]} for n in range(5)]
    read(path, rows, columns=mapped)
    assert guess(path).roles == mapped


def test_parts_of_other_kinds_are_read_as_what_they_are(tmp_path: Path) -> None:
    asked = {"type": "tool_use", "id": "1", "name": "look", "input": {"at": "Ulm"}}
    given = {"type": "tool_result", "tool_use_id": "1", "content": [part("rain")]}
    turns = [
        {"role": "user", "content": [part("Weather?", "input_text")]},
        {"role": "assistant", "content": [part("I look it up.", "thinking", "thinking"), asked]},
        {"role": "user", "content": [given, part("And?")]},
        {"role": "assistant", "content": [part("It rains.", "output_text")]},
    ]
    _, (example,) = read(tmp_path / "kinds.jsonl", [{"messages": turns}])
    assert [turn.role for turn in example.messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert [turn.content for turn in example.messages] == ["Weather?", "", "rain", "And?", "It rains."]
    assert example.messages[1].reasoning == "I look it up."
    assert json.loads(example.messages[1].tool_calls) == [{"name": "look", "arguments": {"at": "Ulm"}}]
    report, _ = read(
        tmp_path / "file.jsonl",
        [{"prompt": [part("x", kind)], "completion": "y"} for kind in ("text", "input_file", "odd")],
    )
    assert [row.code for row in report.problems] == ["row.media", "row.part"]
    report, _ = read(
        tmp_path / "thought.jsonl",
        [{"instruction": "x", "output": [part("hm", kind)]} for kind in ("text", "reasoning")],
    )
    assert [row.code for row in report.problems] == ["row.part"], "a thought is not taken for an answer"


def test_thousands_of_tool_results_in_a_turn_take_no_time() -> None:
    """Each part is looked at by itself, not compared with every result."""
    results = [{"type": "tool_result", "content": f"{number}"} for number in range(8_000)]
    turns = [{"role": "user", "content": [*results, *(part(f"{number}") for number in range(8_000))]}, ANSWERED]
    begun = time.process_time()
    read_turns(turns, "messages")
    assert time.process_time() - begun < 1


def test_turns_kept_as_lists(tmp_path: Path) -> None:
    made = [{"dialog": {"from": ["human", "gpt"], "value": [f"Hi {n}", "Hello"]}, "id": n} for n in range(4)]
    for path in (tmp_path / "lists.jsonl", tmp_path / "lists.parquet"):
        report, examples = read(path, made)
        assert (report.layout, said(examples[2])) == ("sharegpt", [("user", "Hi 2"), ("assistant", "Hello")])
    uneven = [*made, {"dialog": {"from": ["human", "gpt"], "value": ["Hi"]}, "id": 5}]
    assert [row.row for row in read(tmp_path / "uneven.jsonl", uneven)[0].problems] == [5]


def system(*prompts: str) -> list[dict[str, str]]:
    return [*({"role": "system", "content": prompt} for prompt in prompts), ASKED, ANSWERED]


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        ({"system": "Be brief.", "messages": system()}, "Be brief."),
        ({"messages": system("Be brief.", "Be kind.")}, "Be brief.\n\nBe kind."),
        ({"system": "Be brief.", "messages": system("Be kind.")}, "Be brief.\n\nBe kind."),
        ({"system": "Be kind.", "messages": system("Be kind. Be brief.")}, "Be kind. Be brief."),
        ({"system": "Be kind.", "messages": system("")}, "Be kind."),
    ],
)
def test_no_system_prompt_is_lost(tmp_path: Path, row: dict[str, Any], prompt: str) -> None:
    _, (example,) = read(tmp_path / "system.jsonl", [row])
    assert said(example) == [("system", prompt), ("user", "Hi"), ("assistant", "Hello")]


def test_several_columns_are_one_role(tmp_path: Path) -> None:
    made = [
        {"persona": "A sailor.", "rules": {"tone": "Be brief."}, "title": f"T {n}", "body": f"Why {n}?", "a": "So."}
        for n in range(3)
    ]
    made[2]["title"] = ""
    columns = {"system": "persona + rules.tone", "prompt": "title + body", "completion": "a"}
    report, examples = read(tmp_path / "several.jsonl", made, columns=columns)
    assert said(examples[0]) == [("system", "A sailor.\n\nBe brief."), ("user", "T 0\n\nWhy 0?"), ("assistant", "So.")]
    assert said(examples[2])[1] == ("user", "Why 2?")
    assert report.unread == ()
    for wrong, word in (("title + bodi", "bodi"), ("title + a", "'a' for all")):
        with pytest.raises(DataError, match=word):
            read(tmp_path / "several.jsonl", made, columns={**columns, "prompt": wrong})


@pytest.mark.parametrize(
    "picture",
    [
        {"shot": PNG},
        {"shot": {"bytes": PNG, "path": None}},
        {"shot": {"bytes": None, "path": "a.png"}},
        {"clip": {"array": [0.1, 0.2], "sampling_rate": 16000}},
        {"scans": [{"bytes": PNG, "path": "a.png"}]},
        {"photo": "a.png"},
    ],
)
def test_rows_with_pictures_or_sound_are_left_out_and_counted(tmp_path: Path, picture: dict[str, Any]) -> None:
    empty = dict.fromkeys(picture)
    rows = [{"prompt": f"Why {n}?", "completion": "So.", **(picture if n % 3 == 0 else empty)} for n in range(9)]
    report, examples = read(tmp_path / "pictures.parquet", rows)
    assert [example.row for example in examples] == [2, 3, 5, 6, 8, 9]
    assert [(one.code, one.rows) for one in report.skipped] == [("row.media", 3)]
    assert "cannot see or hear" in report.skipped[0].text


def test_bytes_that_are_no_picture_leave_no_row_out(tmp_path: Path) -> None:
    rows = [{"prompt": "Why?", "completion": "So.", "digest": bytes(range(16)), "note": b"words " * 90}]
    assert len(read(tmp_path / "bytes.parquet", rows)[1]) == 1


def test_a_picture_within_a_text_is_no_text(tmp_path: Path) -> None:
    rows = [{"prompt": f"What is ![this](data:image/png;base64,{'iVBOR' * n})?", "completion": "So."} for n in (1, 90)]
    report, examples = read(tmp_path / "embedded.jsonl", rows)
    assert [example.row for example in examples] == [1]
    assert report.problems[0].code == "row.media"
