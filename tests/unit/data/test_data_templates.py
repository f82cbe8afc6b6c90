"""What is trained under templates of every trait, told twice: by ``core.data.render.mask`` and ``template_judge``."""

import json
import os
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from template_judge import Marks, asked_once, faults, judged
from template_kinds import DEFIANT, FAMILIES, KINDS, PUBLISHED, SPECIALS, Kind
from template_rows import rows
from whole_rows import encode

from core.contract.config import DataChoice
from core.contract.data import Example, Message
from core.contract.errors import DataError
from core.data.render.chat_tokens import load_tokenizer, question_ids, resolve_template, stop_token_ids
from core.data.render.choosing import decide
from core.data.render.renderer import Renderer, renderer
from core.data.render.template import drops_text, layout_turns, tools_of

Made = Callable[..., Any]
ROWS = rows()
_kept: dict[str, Any] = {}


@pytest.fixture
def marked(make_tokenizer: Made) -> Any:
    """A tokenizer that knows the marks of the small templates."""
    if "made" not in _kept:
        _kept["made"] = make_tokenizer()
        _kept["made"].add_special_tokens({"additional_special_tokens": list(SPECIALS)})
    return _kept["made"]


def outcomes(tokenizer: Any, kind: Kind, source: str) -> dict[str, tuple[str, str]]:
    """How each kind of conversation comes out under a template, and why."""
    tokenizer.bos_token, tokenizer.eos_token, tokenizer.chat_template = kind.bos, kind.eos, source or None
    using = Renderer(tokenizer, decide(tokenizer, DataChoice()))
    tokenizer.chat_template = using.choice.source
    return {row: judged(tokenizer, using, example, kind.marks) for row, example in ROWS}


def check(tokenizer: Any, kind: Kind, source: str) -> None:
    found = outcomes(tokenizer, kind, source)
    assert {row: why for row, why in found.items() if why[0] not in ("right", "unfit", "both")} == {}
    assert sum(why[0] == "both" for why in found.values()) <= kind.refused


@pytest.mark.parametrize("name", [*KINDS, *FAMILIES])
def test_masks_of_every_kind_of_conversation(marked: Any, name: str) -> None:
    kind = {**KINDS, **FAMILIES}[name]
    check(marked, kind, kind.source)


@pytest.mark.parametrize(
    ("name", "words"),
    [*((name, "qwen2") for name in PUBLISHED),
     *(pytest.param(name, words, marks=() if name.startswith("meta") else pytest.mark.slow)
       for words in ("gpt-2", "phi-3") for name in PUBLISHED)],
)  # fmt: skip
def test_masks_under_published_templates(shared_data: Path, name: str, words: str) -> None:
    if words not in _kept:
        _kept[words] = load_tokenizer(shared_data / "tokenizers" / words)
        _kept[words].add_special_tokens({"additional_special_tokens": list(SPECIALS)})
    check(_kept[words], PUBLISHED[name], (shared_data / "templates" / f"{name}.jinja").read_text())


def test_the_judge_sees_every_token_that_is_trained_or_not_by_mistake(marked: Any) -> None:
    kind = KINDS["plain"]
    marked.chat_template, marked.eos_token = kind.source, kind.eos
    example = dict(ROWS)["calls in two rounds"]
    using = renderer(marked, DataChoice())
    encoded = using.encoded(example)
    turns, tools = layout_turns(example, using.choice), tools_of(example, using.choice)
    made = marked(encoded.text, add_special_tokens=False, return_offsets_mapping=True)
    trained = [label != -100 for label in encoded.targets()]

    @asked_once
    def render(turns: Any, generation: bool = False) -> str:
        return using.ask(turns, tools=tools, generation=generation)

    def wrong(some: list[bool]) -> list[str]:
        return list(faults(render, turns, encoded.text, some, made["offset_mapping"], kind.marks))

    assert wrong(trained) == []
    for place in range(len(trained)):
        assert wrong([*trained[:place], not trained[place], *trained[place + 1 :]]), encoded.text[: place + 1]


@pytest.mark.parametrize("what", DEFIANT)
def test_a_row_whose_answers_are_not_certain_is_refused_with_the_reason(marked: Any, what: str) -> None:
    marked.chat_template, marked.eos_token = DEFIANT[what], "<|end|>"
    with pytest.raises(DataError, match=what) as caught:
        encode(marked, dict(ROWS)["three turns"], DataChoice(), 10_000)
    assert caught.value.code == "data.template_answers"


def test_an_answer_ends_at_the_last_of_its_marks_and_generation_stops_there(marked: Any) -> None:
    kind = KINDS["ends in several marks"]
    marked.chat_template, marked.eos_token = kind.source, "<|stop|>"
    choice = resolve_template(marked, DataChoice())
    assert choice.ending == "<|open|>said<|sep|><|end|>"
    assert marked.convert_tokens_to_ids("<|end|>") in stop_token_ids(marked, DataChoice())
    assert "plain text" not in " ".join(choice.notes)


def test_text_that_a_template_leaves_out_beside_a_call_is_told(marked: Any) -> None:
    row = dict(ROWS)["text before a call"]
    told = {}
    for name in ("plain", "drops what is said beside a call"):
        marked.chat_template = KINDS[name].source
        told[name] = drops_text(row, resolve_template(marked, DataChoice()))
    assert told == {"plain": False, "drops what is said beside a call": True}


def test_an_answer_without_a_word_is_no_reason_to_refuse_the_others(marked: Any) -> None:
    kind = KINDS["the next turn is the end"]
    marked.chat_template, marked.eos_token = kind.source, kind.eos
    said = [("user", "a"), ("assistant", "One"), ("user", "b"), ("assistant", "")]
    messages = tuple(Message(role=role, content=text) for role, text in said)
    row = encode(marked, Example(row=1, messages=messages), DataChoice(), 100)
    learned = [token for token, label in zip(row.input_ids, row.labels, strict=True) if label != -100]
    assert marked.decode(learned) == "One<|u|>"
    assert marked.decode(row.input_ids) == "<|u|>a<|a|>One<|u|>b<|a|>"


def test_a_template_that_wants_a_list_of_functions_gets_an_empty_one(make_tokenizer: Made) -> None:
    tokenizer = make_tokenizer(bos=True)
    tokenizer.chat_template = KINDS["wants a list of functions"].source
    ids = question_ids(tokenizer, (Message(role="user", content="Hi"),), DataChoice(), 100)
    assert tokenizer.decode(ids) == "<|s|>0<|end|><|u|>Hi<|end|><|a|>"


def test_a_template_may_write_the_date(marked: Any) -> None:
    marked.chat_template = "<|s|>{{ strftime_now('%Y-%m') }}" + KINDS["plain"].source
    example = dict(ROWS)["one answer"]
    turns = [{"role": message.role, "content": message.content} for message in example.messages]
    own = marked.apply_chat_template(turns, tokenize=False)
    assert renderer(marked, DataChoice()).encoded(example).text == own
    assert datetime.now().strftime("%Y") in own


def test_a_long_row_of_calls_costs_two_renderings(marked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    marked.chat_template, marked.eos_token = KINDS["plain"].source, "<|end|>"
    using = renderer(marked, DataChoice())
    one = dict(ROWS)["calls in two rounds"]
    using.encoded(one)
    asked = []
    ask = using.ask

    def counted(*turns: Any, **more: Any) -> str:
        asked.append(turns)
        return ask(*turns, **more)

    monkeypatch.setattr(using, "ask", counted)
    using.encoded(one.model_copy(update={"messages": one.messages * 20}))
    assert len(asked) == 2


@pytest.mark.slow
@pytest.mark.parametrize("words", ["qwen2", "gpt-2"])
def test_masks_under_the_templates_of_a_folder(shared_data: Path, words: str) -> None:
    """``LUTHIER_TEMPLATES``: a folder of ``NAME.jinja`` with ``facts.json``: NAME to header, ends, eos and tokens."""
    folder = os.environ.get("LUTHIER_TEMPLATES")
    if not folder:
        pytest.skip("LUTHIER_TEMPLATES names no folder of templates")
    total: Counter[str] = Counter()
    faulty = []
    for name, fact in json.loads((Path(folder) / "facts.json").read_text()).items():
        tokenizer = load_tokenizer(shared_data / "tokenizers" / words)
        tokenizer.add_special_tokens({"additional_special_tokens": fact["tokens"]})
        tokenizer.add_tokens(["<think>", "</think>", "<tool_call>", "</tool_call>"] if words == "qwen2" else [])
        kind = Kind("", Marks(fact["header"], tuple(fact["ends"])), fact["eos"], bos="<BOS>")
        try:
            found = outcomes(tokenizer, kind, (Path(folder) / f"{name}.jinja").read_text())
        except DataError:
            total["both"] += len(ROWS)
            continue
        total.update(why for why, _ in found.values())
        faulty += [(name, row, *why) for row, why in found.items() if why[0] in ("wrong", "otherwise", "refused")]
    print(f"{words}: {dict(total)} of {sum(total.values())}", *faulty, sep="\n")
    assert (total["wrong"], total["otherwise"]) == (0, 0)
    assert total["refused"] <= sum(total.values()) // 100
