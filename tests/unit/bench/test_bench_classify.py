"""The ladder of BERT: every rung trains the same rows, and says what it did."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig

from core.bench.__main__ import main
from core.bench.children import Outcome, own_process
from core.bench.classify import ladder, rows, rung
from core.bench.classify.ladder import RUNGS, climb, settings_of, table
from core.bench.classify.reviews import LABELS, reviews
from core.bench.classify.rung import measure
from core.bench.classify.setting import ClassifySetting
from core.bench.setting import flags_of
from core.contract.errors import Fault
from core.model.encoders.load import new_classifier

TINY = ClassifySetting(model="random:tiny", batch=4, steps=3, warm_up=1, held_out=12, learning_rate=1e-3)


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no C++ compiler behind torch.compile."""
    monkeypatch.setattr(rows, "MADE_UP", 60)
    monkeypatch.setattr(rung, "BACKEND", "eager")


def in_process(setting: Any, say: Callable[[str], None], every: int) -> Outcome:
    return Outcome(measure(setting, say, every))


@pytest.mark.slow
def test_the_whole_ladder_is_climbed() -> None:
    kept: list[dict[str, Any]] = []
    result = climb(settings_of(TINY, 8), in_process, lambda _: None, kept.append)
    json.dumps(result, allow_nan=False)
    found = result["rungs"]
    assert [row["name"] for row in found] == list(RUNGS)
    assert {row["status"] for row in found} == {"measured"}
    assert [row["rows_a_step"] for row in found] == [4] * 6 + [8] * 4
    assert [row["padding_per_cent"] > 0 for row in found] == [True] * 7 + [False] * 3
    assert [row["compile_seconds"] is not None for row in found] == [name.startswith("torch.compile") for name in RUNGS]
    assert found[0]["times_first"] == 1.0
    packed = max(row["samples_per_second"] for row in found[7:])
    padded = max(row["samples_per_second"] for row in found[:7])
    assert result["packed_times_best_padded"] == pytest.approx(packed / padded, abs=0.01)
    assert len(kept) == len(RUNGS)
    said = table(result)
    assert len(said.splitlines()) == 2 + len(RUNGS) + 4
    assert "drawn at random" in said


def test_what_only_computes_faster_learns_the_same() -> None:
    """Without dropout every rung in float32 has the losses of the first, padded or packed."""
    sizes = {**rung.SHAPES["tiny"][1], "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(rung.SHAPES, "tiny", ("bert", sizes))
        wanted = measure(TINY)["losses"]
        for changes in (
            {"optim": "fused"},
            {"attention": "sdpa"},
            {"layout": "packed"},
            {"layout": "packed", "norm": "fused"},
        ):
            assert measure(replace(TINY, **changes))["losses"] == pytest.approx(wanted, rel=1e-4), changes
    assert wanted[-1] != wanted[0]


def test_steps_go_on_into_the_next_epoch() -> None:
    setting = replace(TINY, batch=8, epochs=2, steps=0)
    assert [len(rows.dealt(20, replace(setting, steps=steps))) for steps in (0, 1, 7)] == [4, 1, 7]
    epochs = [sorted(row for step in rows.dealt(20, replace(setting, steps=4))[at : at + 2] for row in step)
              for at in (0, 2)]  # fmt: skip
    assert epochs == [list(range(16))] * 2


def test_reviews_can_be_learned_and_come_again() -> None:
    made = reviews(400, 5)
    assert made == reviews(400, 5)
    assert {label for _, label in made} == set(LABELS)
    lengths = sorted(len(text.split()) for text, _ in made)
    assert lengths[0] >= 10
    assert lengths[-1] > 4 * lengths[len(lengths) // 2] / 2
    assert measure(replace(TINY, steps=1))["weights"] == "drawn at random"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain.tsv", 'a "fine film\t1\na bad film\t0\n'),
        ("named.tsv", 'label\tidx\tsentence\n1\t7\ta "fine film\n0\t8\ta bad film\n'),
        ("named.csv", 'text,label\n"a ""fine film",1\na bad film,0\n'),
        ("rows.jsonl", '{"text": "a \\"fine film", "label": 1}\n{"text": "a bad film", "label": 0}\n'),
        ("rows.json", '[{"label": 1, "review": "a \\"fine film"}, {"label": 0, "review": "a bad film"}]'),
    ],
)
def test_files_of_texts_and_labels_are_read(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert rows._read(tmp_path / name) == [('a "fine film', "1"), ("a bad film", "0")]


@pytest.mark.parametrize(
    ("changes", "text", "word"),
    [
        ({"model": "random:gpt"}, "", "bert-base"),
        ({"model": "nowhere"}, "", "a model folder"),
        ({"batch": 0}, "", "--batch"),
        ({"norm": "fused"}, "", "packed rows"),
        ({"optim": "sgd"}, "", "single, foreach, fused"),
        ({"data": "/nowhere.tsv"}, "", "/nowhere.tsv"),
        ({"data": "one.tsv"}, "a text\tgood\n" * 30, "two labels"),
        ({"data": "short.tsv"}, "a text\tgood\nalone\n" * 30, "a row of 1"),
        ({"data": "few.tsv"}, "a text\tgood\nmore\tbad\n", "found 2"),
        ({"data": "broken.json"}, "{", "JSON"),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    changes: dict[str, Any], text: str, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text:
        (tmp_path / changes["data"]).write_text(text)
        changes = {"data": str(tmp_path / changes["data"])}
    wrong = replace(TINY, **changes)
    with pytest.raises(Fault):
        measure(wrong)
    assert main([*wrong.command, *flags_of(wrong)]) == 1
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert word in said[0]


@pytest.mark.parametrize("words", [["--task", "translate"], ["--task", "classify", "--rungs", "3-99"]])
def test_a_task_or_a_rung_that_is_not_there(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ladder", *words]) == 1
    assert "expected" in capsys.readouterr().err


def test_some_rungs_are_climbed_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.bench.classify.commands.own_process", in_process)
    place = tmp_path / "ladder.json"
    told = ["ladder", "--task", "classify", *flags_of(replace(TINY, steps=2)), "--rungs", "7-8", "--larger-batch", "6"]
    assert main([*told, "--json", str(place)]) == 0
    found = json.loads(place.read_text())["rungs"]
    assert [row["name"] for row in found] == list(RUNGS)[6:8]
    assert {row["rows_a_step"] for row in found} == {6}
    assert ladder.LARGER in capsys.readouterr().out


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_weights_of_a_folder_are_trained(layout: str, tmp_path: Path, tokenizer_folder: Path) -> None:
    """Its classes come from the file, whatever they were; its head is drawn."""
    config = AutoConfig.for_model("bert", **rung.SHAPES["tiny"][1], vocab_size=60, num_labels=5)
    new_classifier(config, torch.device("cpu")).save_pretrained(str(tmp_path))
    result = measure(replace(TINY, model=str(tmp_path), tokenizer=str(tokenizer_folder), layout=layout))
    assert result["weights"] == f"of {tmp_path.name}"
    assert result["rows"]["labels"] == list(LABELS)
    assert result["losses"][0] < 1.0  # of two classes, not of five


@pytest.mark.slow
def test_a_rung_is_measured_in_a_process_of_its_own() -> None:
    outcome = own_process(replace(TINY, steps=2), lambda _: None, 0)
    assert outcome.result is not None, outcome.error
    assert len(outcome.result["losses"]) == 2


@pytest.mark.parametrize("command", ["step", "ladder"])
def test_help_names_the_tasks_flags(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--task", "classify", "--help"])
    said = capsys.readouterr().out
    assert "--data" in said
    assert "--quantization" not in said
    assert ("--precision" in said) is (command == "step")
