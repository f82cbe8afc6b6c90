"""Rows: their text, their order, their targets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from core.bench.rows import dealt, read_rows, render
from core.bench.setting import Setting
from core.contract.errors import DataError
from core.train.step.rows import TextRows

ALPACA = "### Instruction:\nAdd.\n\n### Input:\n1 1\n\n### Response:\n2"


def test_layouts_become_the_alpaca_prompt() -> None:
    assert render({"instruction": "Add.", "input": "1 1", "output": "2"}).endswith(ALPACA)
    assert "### Input:\n\n\n### Response:\n2" in render({"prompt": "Add.", "completion": "2"})
    assert render({"text": "as it is"}) == "as it is"
    talk = [
        {"role": "user", "content": "Add."}, {"role": "assistant", "content": "2"},
        {"role": "user", "content": "More."}, {"role": "assistant", "content": "3"},
    ]  # fmt: skip
    said = render({"messages": talk})
    assert said.count("### Response:") == 2
    assert said.index("Add.") < said.index("More.")


def test_unknown_columns_are_named() -> None:
    with pytest.raises(DataError, match="answer, question"):
        render({"question": "?", "answer": "!"})


def test_rows_end_and_the_first_token_is_no_target(setting: Setting) -> None:
    rows = read_rows(setting, 97)
    for row in range(len(rows.train)):
        ids, labels = rows.train.ids[row], rows.train.labels[row]
        assert ids[-1] == 2
        assert labels[0] == -100
        assert labels[1:].equal(ids[1:])
        assert rows.train.trained(row) == len(ids) - 1


def test_rows_are_cut_and_long_files_keep_whole_windows(setting: Setting) -> None:
    rows = read_rows(replace(setting, max_length=10, batch=3, accumulation=2), 97)
    assert max(rows.train.length(row) for row in range(len(rows.train))) == 10
    assert (len(rows.train), len(rows.held_out), rows.left_over) == (18, 3, 2)


def test_held_out_rows_are_not_trained(setting: Setting) -> None:
    every, rows = read_rows(replace(setting, held_out=0, batch=1, accumulation=1), 97), read_rows(setting, 97)

    def as_text(part: TextRows) -> list[str]:
        return sorted(str(part.ids[row].tolist()) for row in range(len(part)))

    aside, kept = as_text(rows.held_out), as_text(rows.train)
    assert len(aside) == 3
    assert not set(aside) & set(kept)
    assert set(aside) | set(kept) <= set(as_text(every.train))


def test_dense_rows_follow_from_the_seed() -> None:
    setting = Setting(rows="dense:32", batch=2, accumulation=1, steps=2, warm_up=1)
    one, two, other = (read_rows(now, 97) for now in (setting, setting, replace(setting, seed=1)))
    assert len(one.train) == 6
    assert {one.train.length(row) for row in range(6)} == {32}
    assert all(one.train.ids[row].equal(two.train.ids[row]) for row in range(6))
    assert not all(one.train.ids[row].equal(other.train.ids[row]) for row in range(6))
    assert all(int(one.train.ids[row].min()) >= 3 and int(one.train.ids[row].max()) < 97 for row in range(6))


def test_every_way_of_sending_them_deals_the_same_windows(setting: Setting) -> None:
    ways = [replace(setting, batch=batch, accumulation=4 // batch, steps=12) for batch in (1, 2, 4)]
    first, *others = [dealt(20, way) for way in ways]
    assert len(first) == 13
    assert all(other == first for other in others)
    assert sorted(row for window in first[:5] for row in window) == list(range(20))


def test_files_that_are_no_rows_are_named(setting: Setting, tmp_path: Path) -> None:
    broken, odd = tmp_path / "broken.jsonl", tmp_path / "odd.json"
    broken.write_text("{")
    odd.write_text(json.dumps({"text": "one row is no list"}))
    for path, word in ((broken, "broken.jsonl"), (odd, "odd.json")):
        with pytest.raises(DataError, match=word):
            read_rows(replace(setting, rows=f"file:{path}"), 97)
    with pytest.raises(DataError, match="tokenizer"):
        read_rows(replace(setting, tokenizer=""), 97)
    with pytest.raises(DataError, match="below 10"):
        read_rows(setting, 10)
