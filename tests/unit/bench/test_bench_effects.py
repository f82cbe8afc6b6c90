"""Held-out questions of a bench: which part of a row is the answer, and which answers are the rows' own."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from core.bench.effects import right_answers
from core.bench.rows import ANSWER, read_rows, render
from core.bench.setting import Setting
from core.contract.config import ModelChoice
from core.machine.locations import ASSETS
from core.model.generation import Generator
from core.model.loading.load import load_base
from core.models.catalog import STARTER
from core.train.step.rows import TextRows


@pytest.fixture(scope="module")
def subject() -> Any:
    """The built-in model as an attempt holds it."""
    choice = ModelChoice.model_validate({"source": "folder", "name": str(STARTER), "quantization": "none"})
    loaded = load_base(STARTER, choice, torch.device("cpu"))
    trained = SimpleNamespace(model=loaded.model.train())
    return SimpleNamespace(trainer=SimpleNamespace(trained=trained), tokenizer=loaded.tokenizer)


def test_only_answers_that_are_the_rows_own_to_the_last_token_count(
    subject: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, given = TextRows(), {}
    for prompt, answer, said in (((5, 6), (7, 8), (7, 8)), ((5, 9), (7, 8), (7, 6)), ((9, 9), (4,), (4,))):
        rows.append([*prompt, *answer], [*[-100] * len(prompt), *answer])
        given[prompt] = said

    def generate(_self: Any, ids: torch.Tensor, most: int, _asked: Any) -> torch.Tensor:
        said = given[tuple(ids[0].tolist())]
        assert most == len(said)
        return torch.tensor([[*ids[0].tolist(), *said]])

    monkeypatch.setattr(Generator, "generate", generate)
    assert right_answers(subject, rows) == {"asked": 3, "right": 2}
    assert subject.trainer.trained.model.training, "as it was"


def test_a_row_is_asked_up_to_its_last_answer_which_the_model_completes(subject: Any) -> None:
    path = ASSETS / "samples" / "chat.jsonl"
    setting = Setting(model=str(STARTER), rows=f"file:{path}", held_out=3, batch=1, accumulation=1)
    rows = read_rows(setting, int(subject.trainer.trained.model.config.vocab_size), subject.tokenizer)
    texts = [render(json.loads(line)) for line in path.read_text("utf-8").splitlines()]
    assert len(rows.asked) == len(rows.held_out) == 3
    for number in range(3):
        prompt, answer = (subject.tokenizer.decode(part) for part in rows.asked.question(number))
        whole = next(text for text in texts if text.startswith(prompt))
        assert prompt.endswith(ANSWER)
        assert answer == whole[len(prompt) :] + subject.tokenizer.eos_token
        assert ANSWER not in answer
    found = right_answers(subject, rows.asked)
    assert found == {"asked": 3, "right": 0}, "the workshop's voice is what a training teaches"
