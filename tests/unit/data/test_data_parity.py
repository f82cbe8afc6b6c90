"""Ids and masks under many templates, against transformers' own rendering and a slow reference that anyone can check.

The reference looks at whole renderings only. An answer begins where the rendering of all turns before it, asking for
it, ends: there the model begins to write. It ends where the rendering stops to differ from one in which the answer is
another one (of a call: before the tool answers it). Behind it stands the family's end of turn, which is trained too. A
token that holds any of these characters is trained.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parity_conversations import conversations
from parity_templates import MARKS, OWN, PUBLISHED, Family
from parity_vocabularies import VOCABULARIES, sentencepiece_tokenizer

from core.contract.config import DataChoice
from core.contract.data import Example
from core.contract.errors import DataError
from core.data.render.renderer import renderer
from core.data.render.rendering import encode
from core.data.render.template import layout_turns, tools_of

Spans = list[tuple[int, int]]
_OTHER = "\ue000"
_loaded: dict[str, Any] = {}


def reference(render: Callable[..., str], turns: list[dict[str, Any]], end: str) -> Spans:
    """Character ranges of the answers through their ends of turn."""
    whole = render(turns)
    found = []
    for number, turn in enumerate(turns):
        if turn["role"] != "assistant":
            continue
        before = render(turns[:number], generation=True)
        assert whole.startswith(before)
        if turn.get("tool_calls"):
            # Every call drawn is answered: the end before that answer is the call's.
            other = render([*turns[: number + 1], {**turns[number + 1], "content": _OTHER}])
            stop = whole.rindex(end, len(before), same_start(whole, other))
        else:
            other = render([*turns[:number], {**turn, "content": _OTHER}, *turns[number + 1 :]])
            stop = len(whole) - same_end(whole, other)
            stop += len(whole[stop:]) - len(whole[stop:].lstrip()) if not end[:1].isspace() else 0
        assert whole.startswith(end, stop), (number, whole[stop : stop + 40])
        found.append((len(before), stop + len(end)))
    return found


def same_end(one: str, other: str) -> int:
    """How many characters at their ends are the same."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return next((number for number, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def same_start(one: str, other: str) -> int:
    """How many characters at their beginnings are the same."""
    return same_end(one[::-1], other[::-1])


def wanted(spans: Spans, turns: list[dict[str, Any]], train_on: str, example: Example) -> Spans:
    """Of the answers those that are trained."""
    if train_on == "last_answer":
        return spans[-1:]
    if train_on == "tool_calls":
        answers = [message for message in example.messages if message.role == "assistant"]
        return [span for span, message in zip(spans, answers, strict=True) if message.tool_calls]
    return spans


def check(tokenizer: Any, family: Family, example: Example, train_on: str) -> bool:
    """One conversation, one thing to learn. False where the template itself refuses the conversation."""
    system = "Be kind." if example.row % 7 == 0 else ""
    using = renderer(tokenizer, DataChoice(train_on=train_on, system_prompt=system))  # type: ignore[arg-type]
    source = using.choice.source
    turns, tools = layout_turns(example, using.choice), tools_of(example, using.choice)

    def render(some: list[dict[str, Any]], generation: bool = False) -> str:
        return tokenizer.apply_chat_template(
            copy.deepcopy(some),
            chat_template=source,
            tools=copy.deepcopy(tools),
            tokenize=False,
            add_generation_prompt=generation,
        )

    try:
        whole = render(turns)
    except Exception:
        with pytest.raises(DataError):
            encode(tokenizer, example, using.choice, 1_000_000)
        return False
    row = encode(tokenizer, example, using.choice, 1_000_000)
    own = tokenizer.apply_chat_template(
        copy.deepcopy(turns), chat_template=source, tools=copy.deepcopy(tools), tokenize=True, return_dict=False
    )
    assert list(row.input_ids) == own
    made = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
    ranges = wanted(reference(render, turns, family.end), turns, train_on, example)
    expected = [
        token if train_on == "everything" or any(low < stop and high > start for start, stop in ranges) else -100
        for token, (low, high) in zip(made["input_ids"], made["offset_mapping"], strict=True)
    ]
    assert list(row.labels) == expected
    if family.begins:
        said = sum(turn["content"].count(family.bos) for turn in turns)
        assert own.count(tokenizer.bos_token_id) == 1 + said
        assert own[0] == tokenizer.bos_token_id
    return True


def with_family(tokenizer: Any, name: str, family: Family, source: str) -> Any:
    """The tokenizer as one of this family."""
    tokenizer.chat_template = source or None
    tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token = family.bos, family.eos, family.eos
    return tokenizer


def vocabulary(shared: Path, name: str) -> Any:
    """A real vocabulary that knows the marks of every family."""
    if name not in _loaded:
        if name.startswith("mistral"):
            tokenizer = sentencepiece_tokenizer(shared / "tokenizers" / VOCABULARIES[name])
        else:
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(str(shared / "tokenizers" / name))
        tokenizer.add_special_tokens({"additional_special_tokens": list(MARKS)})
        _loaded[name] = tokenizer
    return _loaded[name]


def source_of(shared: Path, name: str) -> tuple[Family, str]:
    if name in OWN:
        return OWN[name], OWN[name].source
    return PUBLISHED[name], (shared / "templates" / f"{name}.jinja").read_text()


LEARNED = ("answers", "answers", "last_answer", "tool_calls", "everything")


def run(tokenizer: Any, family: Family, count: int, seed: int) -> tuple[int, int]:
    """(conversations equal, refused by the template) of ``count`` drawn ones."""
    done = [
        check(tokenizer, family, example, LEARNED[example.row % len(LEARNED)]) for example in conversations(count, seed)
    ]
    return sum(done), len(done) - sum(done)


@pytest.mark.parametrize("name", OWN)
def test_ids_and_masks_of_a_draw(make_tokenizer: Callable[..., Any], name: str) -> None:
    if "made" not in _loaded:
        _loaded["made"] = make_tokenizer()
        _loaded["made"].add_special_tokens({"additional_special_tokens": list(MARKS)})
    tokenizer = with_family(_loaded["made"], name, OWN[name], OWN[name].source)
    equal, refused = run(tokenizer, OWN[name], 6, seed=sum(map(ord, name)))
    assert (equal > 3, refused < 3) == (True, True)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*OWN, *PUBLISHED])
@pytest.mark.parametrize("words", VOCABULARIES)
def test_ids_and_masks_of_two_hundred_conversations(shared_data: Path, words: str, name: str) -> None:
    family, source = source_of(shared_data, name)
    tokenizer = with_family(vocabulary(shared_data, words), name, family, source)
    equal, refused = run(tokenizer, family, 200, seed=3407)
    print(f"{name} on {words}: {equal} equal, {refused} refused by the template itself")
    assert equal + refused == 200
    assert refused <= 80
