"""How a question is laid out: as rows were trained."""

from __future__ import annotations

from typing import Any

import pytest

from core.contract.config import DataChoice, ModelChoice
from core.contract.errors import StudioError
from core.locations import ASSETS
from core.talk.words import Ask, Setup


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from core.data.render import load_tokenizer

    return load_tokenizer(ASSETS / "starter")


def prompt(tokenizer: Any, data: DataChoice, *contents: tuple[str, str]) -> str:
    from core.talk.speaker import Speaker

    setup = Setup(folder="", model=ModelChoice(), data=data, home="", lock_name="cpu")
    ask = Ask.model_validate({"id": "a", "messages": [{"role": role, "content": said} for role, said in contents]})
    return str(tokenizer.decode(Speaker(None, tokenizer, setup)._prompt(ask)[0]))


def test_a_chat_goes_through_the_template(tokenizer: Any) -> None:
    said = prompt(tokenizer, DataChoice(), ("user", "Hello."), ("assistant", "Hi."), ("user", "Bye."))
    assert said == "<|bos|><|user|>Hello.<|end|><|assistant|>Hi.<|end|><|user|>Bye.<|end|><|assistant|>"


def test_the_system_prompt_of_the_run_stands_before_it_once(tokenizer: Any) -> None:
    data = DataChoice(system_prompt="Be short.")
    expected = "<|bos|><|system|>Be short.<|end|><|user|>Hello.<|end|><|assistant|>"
    assert prompt(tokenizer, data, ("user", "Hello.")) == expected
    assert prompt(tokenizer, data, ("system", "Be short."), ("user", "Hello.")) == expected


def test_after_raw_text_the_prompt_is_raw_text(tokenizer: Any) -> None:
    assert prompt(tokenizer, DataChoice(layout="text"), ("user", "Monday. The sun")) == "Monday. The sun"


def test_the_template_that_was_chosen_is_the_one_that_is_used(tokenizer: Any) -> None:
    assert prompt(tokenizer, DataChoice(template="chatml"), ("user", "Hello.")).endswith("<|im_start|>assistant\n")


def test_a_template_that_refuses_the_question_says_so() -> None:
    from core.data.render import load_tokenizer

    strict = load_tokenizer(ASSETS / "starter")
    strict.chat_template = (
        "{% for m in messages %}{% if loop.index0 > 1 %}{{ raise_exception('two turns at most') }}{% endif %}"
        "{{ m['role'] + ':' + m['content'] + '<|end|>' }}{% endfor %}"
    )
    with pytest.raises(StudioError, match="two turns at most"):
        prompt(strict, DataChoice(), ("user", "a"), ("assistant", "b"), ("user", "c"))
