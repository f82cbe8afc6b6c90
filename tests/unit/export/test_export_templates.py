"""Ollama's template of an export writes what the Jinja one writes, or there is none."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
from go_templates import in_ollama, values

from core.contract.data import Message
from core.data.render.chat_tokens import load_tokenizer, question_text
from core.data.render.renderer import renderer
from core.data.render.template import TemplateChoice
from core.export.guides.conversations import COUNT, conversations
from core.export.guides.go_template import Pieces, Write, cuts_blanks, pieces_of
from core.machine.locations import ASSETS, REPOSITORY

REAL = REPOSITORY.parent / "shared" / "data"
ASK = "{% if add_generation_prompt %}A:{% endif %}"
TURNS = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
INSTRUCTED = (
    "{% if messages[0].role == 'system' %}{% set s = '<<' + messages[0].content + '>> ' %}{% set rest = messages[1:] %}"
    "{% else %}{% set s = '' %}{% set rest = messages %}{% endif %}{% for m in rest %}{% if m.role == 'user' %}"
    "{{ '[I] ' + (s if loop.first else '') + m.content + ' [/I]' }}{% else %}{{ ' ' + m.content + '</s>' }}{% endif %}"
    "{% endfor %}"
)
MADE = {
    "turns of one kind": "{{ bos_token }}" + TURNS + ASK,
    "a system prompt of its own": "{% if messages[0].role != 'system' %}system: Be \"\"\"kind\"\"\".\n{% endif %}"
    + TURNS + ASK,
    "the system prompt in the first question": INSTRUCTED,
    "the system prompt in the last question": INSTRUCTED.replace("loop.first", "loop.last"),
    "no system prompt at all": "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('') }}{% endif %}"
    "{{ '<' + m.role + '>' + m.content | trim + '</>' }}{% endfor %}" + ASK,
    "an answer that is asked for otherwise than it stands": "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{{ 'A: ' + m.content.split('</think>')[-1] + '\n' }}{% else %}{{ m.role + ': ' + m.content + '\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}A: <think>\n{% endif %}",
    "marks that Go would read": "{% for m in messages %}{{ '{{' + m.role + '}} \"' + m.content + '\"' }}{% endfor %}"
    + ASK,
}  # fmt: skip
CAPITALS = "{% for m in messages %}{{ m.content | upper if m.role == 'user' else m.content }}\n{% endfor %}"
NEITHER = {
    "turns that are numbered": TURNS.replace("{{ m.role", "{{ loop.index ~ m.role") + ASK,
    "questions in capitals": CAPITALS + ASK,
    "a length that is told": "{{ messages | length }}\n" + TURNS + ASK,
    "texts that are told twice": TURNS + TURNS + ASK,
    "one question alone": "{% if messages | length > 2 %}{{ raise_exception('one') }}{% endif %}" + TURNS + ASK,
}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(ASSETS / "starter")


def writer(tokenizer: Any, source: str) -> Write:
    using = renderer(tokenizer, TemplateChoice("model" if source else "none", source=source))

    def write(turns: Sequence[dict[str, str]]) -> str:
        return question_text(using, [Message(**turn) for turn in turns]).removeprefix(tokenizer.bos_token or "<s>")

    return write


def agrees(pieces: Pieces | None, write: Write) -> bool:
    assert pieces is not None
    go = pieces.go()
    asked = list(conversations())
    assert len(asked) == COUNT == 50
    if oracle := os.environ.get("GO_TEMPLATES"):  # a program of Go that renders what it is given
        given = json.dumps([{"Template": go, **values(turns)} for turns in asked])
        real = json.loads(subprocess.run([oracle], input=given, capture_output=True, text=True, check=True).stdout)
        assert real == [in_ollama(go, turns) for turns in asked]
    return [in_ollama(go, turns) for turns in asked] == [write(turns) for turns in asked]


@pytest.mark.parametrize("name", [*MADE, ""])
def test_a_template_of_pieces_is_written_for_ollama(name: str, tokenizer: Any) -> None:
    write = writer(tokenizer, MADE.get(name, ""))
    assert agrees(pieces_of(write), write)
    assert cuts_blanks(write) is ("trim" in MADE.get(name, ""))


@pytest.mark.parametrize("name", NEITHER)
def test_a_template_that_is_more_than_pieces_is_not(name: str, tokenizer: Any) -> None:
    assert pieces_of(writer(tokenizer, NEITHER[name])) is None


@pytest.mark.skipif(not REAL.exists(), reason="the models' own templates lie beside the project only")
def test_templates_of_real_models(tokenizer: Any) -> None:
    files = [*REAL.glob("templates/*.jinja"), *REAL.glob("tokenizers/*/chat_template.jinja")]
    assert len(files) >= 7
    for file in files:
        write = writer(tokenizer, file.read_text("utf-8"))
        assert agrees(pieces_of(write), write), file


def test_a_long_chat_that_lost_its_first_question_and_an_answer_to_go_on_with(tokenizer: Any) -> None:
    write = writer(tokenizer, MADE["turns of one kind"])
    pieces = pieces_of(write)
    assert pieces is not None
    turns = [{"role": role, "content": text} for role, text in (("assistant", "a"), ("user", "b"), ("assistant", "c"))]
    assert in_ollama(pieces.go(), turns) == "user: \nassistant: a\nuser: b\nassistant: c"
    assert in_ollama(pieces.go(), turns[1:2], "Be brief.") == "system: Be brief.\nuser: b\nA:"
