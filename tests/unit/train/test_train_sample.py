"""A question in mid-run: laid out as rows are, ended where answers end, and never the end of the run."""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from core.contract.commands import Command
from core.contract.config import DataChoice, LoraChoice, ModelChoice
from core.contract.data import Message
from core.data.render.chat_tokens import question_ids
from core.model.adapters import Trained, add_adapter
from core.model.loading.load import load_base
from core.train.channel.channel import Channel
from core.train.channel.reporter import EventReporter
from core.train.evaluate.sample import Laid, answer

NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
ASKED = Command(id="s", verb="sample", prompt="the cat", max_new_tokens=4)
COMMANDS: Any = SimpleNamespace(leaving=False)


@pytest.fixture(scope="module")
def loaded(tiny_model: Path) -> tuple[Any, Any]:
    base = load_base(tiny_model, ModelChoice(quantization="none", dtype="float32"), torch.device("cpu"))
    return Trained(add_adapter(base.model, LoraChoice(r=4), 1)), base.tokenizer


@pytest.fixture
def ask(loaded: tuple[Any, Any], said: Any) -> Callable[..., None]:
    """Puts a question to the model of a running job."""

    def put(laid: Laid = Laid(), command: Command = ASKED) -> None:  # noqa: B008 - frozen
        answer(*loaded, laid, Channel(EventReporter(said), COMMANDS), command)

    return put


def test_a_template_without_a_system_role_gets_it_in_the_question(
    loaded: tuple[Any, Any], ask: Any, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _model, tokenizer = loaded
    monkeypatch.setattr(tokenizer, "chat_template", NO_SYSTEM)
    data = DataChoice(system_prompt="be small")
    ids = question_ids(tokenizer, (Message(role="user", content="the cat"),), data, 100)
    assert tokenizer.decode(ids) == "<|user|>be small\n\nthe cat<|end|><|assistant|>"
    ask(Laid(data))
    assert [(event.side, event.done, bool(event.text)) for event in said.of("sample")] == [
        ("base", True, True),
        ("tuned", True, True),
    ]
    assert not said.of("note")


def test_an_answer_ends_at_the_templates_end_of_turn(
    loaded: tuple[Any, Any], ask: Any, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = loaded[0].model, loaded[1]
    seen: list[Any] = []
    monkeypatch.setattr(tokenizer, "chat_template", NO_SYSTEM.replace("<|end|>", "<|system|>"))
    monkeypatch.setattr(model, "generate", lambda **given: seen.append(given["eos_token_id"]) or given["input_ids"])
    ask()
    assert seen == [[tokenizer.convert_tokens_to_ids("<|system|>"), tokenizer.eos_token_id]] * 2


def test_what_fails_is_noted_and_closed_and_the_run_goes_on(
    loaded: tuple[Any, Any], ask: Any, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loaded[0].model

    def fail(**_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")

    monkeypatch.setattr(model, "generate", fail)
    model.train()
    ask()
    assert model.training
    assert [(event.command_id, event.side, event.text, event.done) for event in said.of("sample")] == [
        ("s", "base", "", True),
        ("s", "tuned", "", True),
    ]
    (note,) = said.of("note")
    assert (note.code, "memory ran out" in note.text) == ("sample.failed", True)


def test_a_fault_of_the_card_is_not_caught(loaded: Any, ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(**_: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(loaded[0].model, "generate", fault)
    with pytest.raises(RuntimeError, match="CUDA error"):
        ask()


def test_a_question_longer_than_any_row_is_refused_before_the_model_sees_it(
    loaded: tuple[Any, Any], ask: Any, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte stalled a run for over a minute; the mailbox takes questions that the studio did not check."""
    asked: list[int] = []
    monkeypatch.setattr(
        loaded[0].model, "generate", lambda **given: asked.append(given["input_ids"].shape[1]) or given["input_ids"]
    )
    start = time.monotonic()
    for prompt in ("the cat " * 130_000, "a " * 500):
        ask(Laid(longest=64), ASKED.model_copy(update={"prompt": prompt}))
    assert time.monotonic() - start < 5
    assert asked == []
    assert ["less than" in note.text or "at most 64 tokens" in note.text for note in said.of("note")] == [True, True]
    assert [bool(event.text) for event in said.of("sample")] == [False] * 4
    ask(Laid(longest=64))
    assert len(asked) == 2
