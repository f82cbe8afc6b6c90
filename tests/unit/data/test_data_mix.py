"""Mixtures: each row as often as its weight says, read under its own choice, in an order that a seed decides."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from whole_rows import read_report

from core.contract.config import DataChoice
from core.contract.errors import DataError
from core.data.files.made import origin_of
from core.data.files.mix import parts_of
from core.data.service.data_service import DataService


@pytest.fixture
def service(warm_service: DataService) -> DataService:
    return warm_service


def written(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return written(tmp_path / "questions.jsonl", [{"ask": f"q{n}", "tell": f"a{n}", "no": n} for n in range(40)])


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    turns = [[{"from": "human", "value": f"h{n}"}, {"from": "gpt", "value": f"g{n}"}] for n in range(10)]
    rows: list[Any] = [{"conversations": one, "tools": "[]"} for one in turns]
    return written(tmp_path / "chats.jsonl", [*rows, {"conversations": None}])


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return written(tmp_path / "pairs.jsonl", [{"prompt": "q", "chosen": "a", "rejected": f"b{n}"} for n in range(6)])


def test_each_row_is_seen_as_often_as_its_weight_says(
    service: DataService, questions: Path, chats: Path, request: pytest.FixtureRequest
) -> None:
    mapped = DataChoice(layout="prompt_completion", columns={"prompt": "ask", "completion": "tell"})
    told: list[tuple[int, int, int]] = []
    parts = [(questions, mapped, 0.5), (chats, DataChoice(), 2.5)]
    kept = service.mix(parts, "my mixture", 7, lambda *so_far: told.append(so_far))
    rows = [json.loads(line) for line in kept.path.read_text().splitlines()]
    seen = Counter(row["messages"][0]["content"] for row in rows)
    assert Counter(row["source"] for row in rows) == {"questions.jsonl": 20, "chats.jsonl": 25}
    assert [seen[f"q{n}"] <= 1 for n in range(40)] == [True] * 40
    assert sorted(seen[f"h{n}"] for n in range(10)) == [2] * 5 + [3] * 5
    assert told[-1] == (45, 45, 45)
    report = service.report(kept.path, DataChoice())
    assert (report.rows, report.usable, report.layout) == (45, 45, "messages")
    assert kept.path.name == "my_mixture.jsonl"
    origin = origin_of(kept.path)
    assert [(part["name"], part["weight"], part["rows"]) for part in origin["parts"]] == [
        ("questions.jsonl", 0.5, 40),
        ("chats.jsonl", 2.5, 10),
    ]
    assert origin["parts"][0]["sha256"] == read_report(questions, mapped).sha256
    request.getfixturevalue("makes_here")  # the first went through a child
    again = service.mix(parts, "my mixture", 7)
    assert again == kept
    assert service.mix(parts, "my mixture", 8).sha256 != kept.sha256


def test_kinds_are_not_mixed_and_weights_are_weights(
    service: DataService, pairs: Path, chats: Path, tmp_path: Path
) -> None:
    text = tmp_path / "book.txt"
    text.write_text("one\ntwo\n")
    for other, kind in ((chats, "conversations in chats.jsonl"), (text, "raw text in book.txt")):
        with pytest.raises(DataError) as caught:
            service.mix([(pairs, DataChoice(), 1), (other, DataChoice(), 1)], "no", 1)
        assert f"found pairs of answers in pairs.jsonl and {kind}" in str(caught.value)
    for weight in (0, -1, float("nan"), float("inf"), 1000):
        with pytest.raises(DataError, match="weight"):
            service.mix([(chats, DataChoice(), weight)], "no", 1)
    with pytest.raises(DataError, match="found none"):
        parts_of([])
    with pytest.raises(DataError, match=r"found that 0\.04 of its 10 are none"):
        service.mix([(chats, DataChoice(), 1), (chats, DataChoice(), 0.04)], "no", 1)


@pytest.mark.usefixtures("makes_here")
def test_parts_of_one_name_are_told_apart(service: DataService, tmp_path: Path) -> None:
    first = written(tmp_path / "a" / "rows.jsonl", [{"text": "one"}])
    second = written(tmp_path / "b" / "rows.jsonl", [{"text": "two"}])
    kept = service.mix([(first, DataChoice(), 1), (second, DataChoice(), 1)], "both", 1)
    rows = {row["source"]: row["text"] for row in map(json.loads, kept.path.read_text().splitlines())}
    assert rows == {"rows.jsonl": "one", "rows.jsonl (2)": "two"}


def test_a_stopped_mixture_leaves_nothing(service: DataService, questions: Path) -> None:
    mapped = DataChoice(layout="prompt_completion", columns={"prompt": "ask", "completion": "tell"})
    before = set(service._locations.data.glob("*"))
    with pytest.raises(DataError) as caught:
        service.mix([(questions, mapped, 1)], "stopped", 99, cancelled=lambda: True)
    assert caught.value.code == "data.stopped"
    assert set(service._locations.data.glob("*")) == before
