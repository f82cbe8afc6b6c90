"""A run keeps rows that belong together on one side of its split, also where it leaves out rows that others count."""

import json
from pathlib import Path
from typing import Any

import pytest

from core.data.render.chat_tokens import load_tokenizer
from core.data.service.data_service import DataService
from core.machine.locations import Locations
from core.runs.folder.held_out_rows import draw_path, kept_draw
from core.train.channel.channel import Channel
from core.train.channel.command_queue import Leave
from core.train.keep.depends import KeptRows
from core.train.step.rows import PairRows, TextRows


def words(number: int) -> str:
    return " ".join(
        f"{name}{number * 7919}" for name in ("ship", "harbour", "tide", "rope", "mast", "gull", "crew", "net")
    )


def twice(answer: str) -> list[dict[str, Any]]:
    """Rows 0 to 29 and again 0 to 29; the third cannot be read, the sixth is cut away whole."""
    rows: list[dict[str, Any]] = [{"prompt": f"ask {n % 30}", answer: words(n % 30)} for n in range(60)]
    if answer == "chosen":
        rows = [{**row, "rejected": f"no {n % 30}"} for n, row in enumerate(rows)]
    rows[2] = {**rows[2], "prompt": 5}
    rows[5] = {**rows[5], "prompt": "long " * 400}
    return rows


@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_no_row_is_held_out_whose_like_is_trained_on(
    run_config: Any, read: Any, tmp_path: Path, own_home: Path, method: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, twice("chosen" if method == "dpo" else "completion"))))
    layout = "preference" if method == "dpo" else "auto"
    config = run_config(
        method=method, data__path=str(path), data__eval_fraction=0.3, data__layout=layout, train__max_length=300
    )
    data = read(config)
    assert len(data.train) + len(data.held_out) == 58
    assert len(data.held_out) == 17
    asked = [_rows(side) for side in (data.train, data.held_out)]
    assert not set(asked[0]) & set(asked[1])
    assert len(set(asked[1])) <= len(asked[1]) // 2 + 2  # pairs, and the two whose like was left out
    assert list((Locations.find().cache / "data").glob("groups-*.json"))


def test_the_draw_that_is_kept_names_the_held_out_rows_as_the_file_numbers_them(
    run_config: Any, read: Any, channel: Channel, tmp_path: Path, own_home: Path
) -> None:
    """Two rows are left out, one that cannot be read and one that is cut away whole: places are not numbers."""
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, twice("completion"))))
    config = run_config(data__path=str(path), data__eval_fraction=0.3, data__layout="auto", train__max_length=300)
    data = read(config, KeptRows(draw_path(tmp_path), config, channel))
    tokenizer = load_tokenizer(Path(config.model.name))
    draw = kept_draw(tmp_path)
    assert draw
    assert (draw.rows, len(draw.numbers)) == (58, len(data.held_out))
    assert draw.held_out_sha256 == data.held_out.sha256()
    assert isinstance(data.held_out, TextRows)
    said_there = [tokenizer.decode(data.held_out.ids[row]) for row in range(len(data.held_out))]
    examples = DataService(Locations(own_home)).numbered(path, config.data, draw.numbers)
    assert [example.row for example in examples] == draw.numbers
    assert all(example.messages[0].content in text for example, text in zip(examples, said_there, strict=True))
    assert any(place + 1 != number for place, number in zip(draw.held_out, draw.numbers, strict=True))


@pytest.mark.usefixtures("real_children")
@pytest.mark.parametrize("at", ["Reading the data", "Looking for repeated rows"])
def test_who_asks_to_stop_is_heard_while_children_read_and_compare(
    run_config: Any, read: Any, tmp_path: Path, channel: Channel, at: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"ask {n}", "completion": words(n)}) for n in range(6_000)))
    config = run_config(data__path=str(path), data__eval_fraction=0.1, data__layout="auto")
    stage = channel.reporter.stage

    def asks(kind: Any, text: str = "", done: int = 0, *rest: Any) -> None:
        if text == at and done:
            channel.commands._leaving = "stop"
        stage(kind, text, done, *rest)

    channel.reporter.stage = asks  # type: ignore[method-assign]
    with pytest.raises(Leave):
        read(config)
    assert not list((Locations.find().cache / "data").glob("groups-*.json"))


def _rows(side: TextRows | PairRows) -> list[tuple[int, ...]]:
    ids = side.prompts if isinstance(side, PairRows) else side.ids
    return [tuple(ids[row].tolist()) for row in range(len(ids))]
