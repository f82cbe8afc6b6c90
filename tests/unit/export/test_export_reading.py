"""Texts reach a plain tokenizer token for token as they reached training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import encoder_cases
import pytest

from core.contract.config import RunConfig
from core.contract.data import Example, Message
from core.contract.methods import Method
from core.contract.tasks import Outputs
from core.data.render.chat_tokens import ScoredText, load_tokenizer, scored_ids
from core.export.reading import reading_of
from core.machine.locations import ASSETS

STARTER = ASSETS / "starter"
QUESTION, ANSWER = Message(role="user", content="What is a bow?"), Message(role="assistant", content="A stick.")
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
OPEN = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"


def config_of(method: Method, **data: Any) -> RunConfig:
    return RunConfig.model_validate({"method": method, "data": data, "train": {"max_length": 64}})


@pytest.mark.parametrize(
    ("template", "data", "code"),
    [
        ("", {}, "tokenizer.apply_chat_template(turns, tokenize=False)"),
        ("", {"system_prompt": "Be short."}, "tokenizer.apply_chat_template(turns, tokenize=False)"),
        (CHATML, {}, "tokenizer.apply_chat_template(turns, tokenize=False).rstrip()"),
        (OPEN, {}, "tokenizer.apply_chat_template(turns, tokenize=False).rstrip() + tokenizer.eos_token"),
        ("", {"template": "none"}, '"\\n".join(turn["content"] for turn in turns) + tokenizer.eos_token'),
    ],
    ids=["its own", "system", "line break behind", "no end", "none"],
)
def test_a_conversation_is_written_as_rows_were(template: str, data: dict[str, Any], code: str) -> None:
    plain, tokenizer, config = load_tokenizer(STARTER), load_tokenizer(STARTER), config_of("reward", **data)
    for one in (plain, tokenizer):
        one.chat_template = template or one.chat_template
    row = Example(row=1, messages=(QUESTION,), chosen=ANSWER.content, rejected="No.")
    reading = reading_of(tokenizer, config, Outputs(("reward",), "regression"), [row])
    assert reading.code == code
    ((text,),) = reading.examples
    ids = scored_ids(plain, ScoredText((QUESTION, ANSWER)), config.learning, config.data, 64)
    assert tuple(tokenizer(text, add_special_tokens=reading.special).input_ids) == ids
    assert ("Be short." in reading.turns) == bool(data.get("system_prompt"))
    assert tokenizer.model_max_length == 64


def labelled(text: str, second: str) -> Example:
    asked = Message(role="user", content=f"{text}\n\n{second}")
    return Example(row=1, messages=(asked, ANSWER), label="yes", labels=("yes",), second=second)


@pytest.mark.parametrize("kind", ["starter", "bert"])
def test_a_pair_of_sentences_is_read_as_rows_were(kind: str, tmp_path: Path) -> None:
    """As a pair where the tokenizer writes something between them, else as one text with a blank line."""
    folder = STARTER if kind == "starter" else encoder_cases.save_tiny(tmp_path, "bert")
    plain, tokenizer, config = load_tokenizer(folder), load_tokenizer(folder), config_of("classify")
    reading = reading_of(tokenizer, config, Outputs(("no", "yes")), [labelled("w3 w4", "w5")])
    (texts,) = reading.examples
    assert len(texts) == (2 if kind == "bert" else 1)
    assert reading.code == ('"A text.", "A second one."' if kind == "bert" else '"A text.\\n\\nA second one."')
    asked = ScoredText((Message(role="user", content="w3 w4"),), "w5")
    ids = scored_ids(plain, asked, config.learning, config.data, 64)
    assert tuple(tokenizer(*texts).input_ids) == ids
    assert tokenizer.chat_template is None
