"""How a question is laid out: as rows were trained."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from core.chat.messages import Ask, Setup
from core.contract.config import DataChoice, ModelChoice
from core.contract.data import Message
from core.contract.errors import Fault
from core.machine.locations import ASSETS


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from core.data.render.chat_tokens import load_tokenizer

    return load_tokenizer(ASSETS / "starter")


def prompt(tokenizer: Any, data: DataChoice, *contents: tuple[str, str]) -> str:
    from core.chat.generator import ChatModel

    setup = Setup(folder="", model=ModelChoice(), data=data, home="")
    ask = Ask.model_validate({"id": "a", "messages": [{"role": role, "content": said} for role, said in contents]})
    return str(tokenizer.decode(ChatModel(None, tokenizer, setup)._prompt(ask)[0]))


SHORT = DataChoice(system_prompt="Be short.")


@pytest.mark.parametrize(
    ("data", "turns", "expected"),
    [
        (
            DataChoice(), [("user", "Hello."), ("assistant", "Hi."), ("user", "Bye.")],
            "<|bos|><|user|>Hello.<|end|><|assistant|>Hi.<|end|><|user|>Bye.<|end|><|assistant|>",
        ),
        (SHORT, [("user", "Hello.")], "<|bos|><|system|>Be short.<|end|><|user|>Hello.<|end|><|assistant|>"),
        (  # the run's own system prompt stands before it once
            SHORT, [("system", "Be short."), ("user", "Hello.")],
            "<|bos|><|system|>Be short.<|end|><|user|>Hello.<|end|><|assistant|>",
        ),
        (DataChoice(layout="text"), [("user", "Monday. The sun")], "Monday. The sun"),
    ],
)  # fmt: skip
def test_a_question_is_laid_out_as_rows_were_trained(
    tokenizer: Any, data: DataChoice, turns: list[tuple[str, str]], expected: str
) -> None:
    assert prompt(tokenizer, data, *turns) == expected


def test_the_template_that_was_chosen_is_the_one_that_is_used(tokenizer: Any) -> None:
    assert prompt(tokenizer, DataChoice(template="chatml"), ("user", "Hello.")).endswith("<|im_start|>assistant\n")


def test_a_template_that_refuses_the_question_says_so() -> None:
    from core.data.render.chat_tokens import load_tokenizer

    strict = load_tokenizer(ASSETS / "starter")
    strict.chat_template = (
        "{% for m in messages %}{% if loop.index0 > 1 %}{{ raise_exception('two turns at most') }}{% endif %}"
        "{{ m['role'] + ':' + m['content'] + '<|end|>' }}{% endfor %}"
    )
    with pytest.raises(Fault, match="two turns at most"):
        prompt(strict, DataChoice(), ("user", "a"), ("assistant", "b"), ("user", "c"))


def test_an_answer_ends_at_every_end_token_of_the_model(tokenizer: Any) -> None:
    """As ``generate()`` does: of its generation config, of its config, and at the template's end of turn."""
    from transformers import GenerationConfig, LlamaConfig

    from core.chat.generator import ChatModel
    from core.model.adapters import Trained
    from core.train.channel.command_queue import CommandQueue
    from core.train.evaluate.sample import continued

    told: list[Any] = []

    class Model:
        generation_config = GenerationConfig(eos_token_id=[4, 5])
        config = LlamaConfig(eos_token_id=6)

        def parameters(self) -> Iterator[torch.Tensor]:
            yield torch.zeros(1)

        def generate(self, **options: Any) -> torch.Tensor:
            told.append(options["eos_token_id"])
            return torch.zeros(1, 3, dtype=torch.long)

    setup = Setup(folder="", model=ModelChoice(), data=DataChoice(), home="")
    ask = Ask.model_validate({"id": "a", "messages": [{"role": "user", "content": "Hello."}]})
    chat_model = ChatModel(Model(), tokenizer, setup)
    chat_model._generate(torch.zeros(1, 1, dtype=torch.long), ask, "base", None, lambda: False)
    continued(
        cast(Trained, SimpleNamespace(model=Model())),
        tokenizer,
        ([1], 8),
        cast(CommandQueue, None),
        DataChoice(),
        "tuned",
    )
    end = tokenizer.convert_tokens_to_ids("<|end|>")
    assert told[0] == told[1]
    assert set(told[0]) == {end, tokenizer.eos_token_id, 4, 5, 6}


def test_a_question_is_no_longer_than_the_model_can_look_back(tokenizer: Any) -> None:
    from core.data.render.chat_tokens import question_ids

    def ask(text: str, most: int) -> int:
        return len(question_ids(tokenizer, (Message(role="user", content=text),), DataChoice(), most))

    assert ask("Hello. " * 20, 512) < 512
    for text in ("x" * (1 << 20), "Hello. " * 600):
        with pytest.raises(Fault) as caught:
            ask(text, 512)
        assert caught.value.code == "question.long"
