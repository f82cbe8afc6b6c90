"""What is trained: the answers and their ends, under any template; ids exactly as transformers' own make them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from whole_rows import encode, encode_pair, encode_rows, preview_rows, text_of

from core.contract.config import DataChoice
from core.contract.data import Example, Message
from core.contract.errors import DataError
from core.data.render.chat_tokens import (
    apply_template_to,
    load_tokenizer,
    resolve_template,
    stop_token_ids,
)
from core.data.render.renderer import renderer
from core.data.render.template import layout_turns

Made = Callable[..., Any]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TRIMS = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}"
    "{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('in turn!') }}{% endif %}"
    "[{{ m.role }}] {{ m.content | trim }}<eos>\n{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"
)
THINKS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{% set c = m.content %}"
    "{% if '</think>' in c %}{% set c = c.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{% if loop.last %}<think>\n\n</think>\n\n{% endif %}{{ c }}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
OPEN = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
NO_PROMPT = (
    "{% for m in messages %}{% if m.role == 'user' %}Q {{ m.content }} A"
    "{% elif m.role == 'assistant' %} {{ m.content }}<eos>{% endif %}{% endfor %}"
)
ALL = {"chatml": CHATML, "trims": TRIMS, "thinks": THINKS, "open": OPEN, "no_prompt": NO_PROMPT}


def talk(*said: str, system: str = "", row: int = 1) -> Example:
    turns = [Message(role="user" if place % 2 == 0 else "assistant", content=text) for place, text in enumerate(said)]
    return Example(row=row, messages=(*([Message(role="system", content=system)] if system else []), *turns))


def learned(tokenizer: Any, example: Example, choice: DataChoice | None = None, max_length: int = 10_000) -> list[str]:
    """The trained runs of a row, decoded."""
    row = encode(tokenizer, example, choice or DataChoice(), max_length)
    runs: list[list[int]] = [[]]
    for token, label in zip(row.input_ids, row.labels, strict=True):
        if label == -100:
            runs.append([])
        else:
            assert label == token
            runs[-1].append(token)
    return [tokenizer.decode(run) for run in runs if run]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chatml", [" Yes! 🦜 \n<|im_end|>", "No.<|im_end|>"]),
        ("trims", ["Yes! 🦜<eos>", "No.<eos>"]),
        ("thinks", [" Yes! 🦜 \n<|im_end|>", "<think>\n\n</think>\n\nNo.<|im_end|>"]),
        ("no_prompt", ["  Yes! 🦜 \n<eos>", " No.<eos>"]),
    ],
)
def test_answers_and_their_ends_are_trained(tokenizer: Any, name: str, expected: list[str]) -> None:
    tokenizer.chat_template = ALL[name]
    example = talk("Is it so?", " Yes! 🦜 \n", "And this?", "No.")
    assert [text.removeprefix("\n") for text in learned(tokenizer, example)] == expected


def test_a_template_without_an_end_of_turn_gets_the_end_of_text(tokenizer: Any) -> None:
    tokenizer.chat_template = OPEN
    row = encode(tokenizer, talk("Hi", "Hello"), DataChoice(), 1000)
    assert row.input_ids[-1] == row.labels[-1] == tokenizer.eos_token_id
    assert learned(tokenizer, talk("Hi", "Hello")) == ["Hello<eos>"]
    assert "end of turn" in " ".join(resolve_template(tokenizer, DataChoice()).notes)


@pytest.mark.parametrize(
    ("train_on", "expected"),
    [
        ("answers", ["One<|im_end|>", "Two<|im_end|>"]),
        ("last_answer", ["Two<|im_end|>"]),
        (
            "everything",
            ["<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nOne<|im_end|>\n"
             "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\nTwo<|im_end|>\n"],
        ),
    ],
)  # fmt: skip
def test_what_is_learned_can_be_chosen(tokenizer: Any, train_on: Any, expected: list[str]) -> None:
    choice = DataChoice(train_on=train_on, template="chatml")
    assert learned(tokenizer, talk("a", "One", "b", "Two"), choice) == expected


TOOLS = (
    Message(role="user", content="Rain?"),
    Message(role="assistant", content="Let me look."),
    Message(role="user", content="Do."),
    Message(role="assistant", content="", tool_calls='[{"name": "weather", "arguments": {"city": "Oslo"}}]'),
    Message(role="tool", content="it rains"),
    Message(role="assistant", content="Yes."),
)


@pytest.mark.parametrize("name", ["chatml", "trims", "open", "no_prompt"])
def test_only_the_turns_that_call_a_tool_are_learned(tokenizer: Any, name: str) -> None:
    tokenizer.chat_template = ALL[name].replace("(m.role == 'user') != (loop.index0 % 2 == 0)", "false")
    choice = DataChoice(train_on="tool_calls")
    (found,) = learned(tokenizer, Example(row=1, messages=TOOLS), choice)
    end = {"trims": "<eos>", "no_prompt": "<eos>", "chatml": "<|im_end|>", "open": ""}[name]
    call = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    assert found.strip() == call + end
    # A call that closes the row ends like any trained answer; a row without calls is left out, and says why.
    (last,) = learned(tokenizer, Example(row=1, messages=TOOLS[:4]), choice)
    assert last.strip() == call + (end or "<eos>")
    refused: list[Any] = []
    assert encode_rows(tokenizer, [talk("Hi", "Hello")], choice, 1000, refused=refused) == []
    assert (refused[0].code, refused[0].text) == ("row.no_answer", "nothing to learn: it holds no turn that is trained")


def test_a_system_prompt_is_put_before_rows_without_one(tokenizer: Any) -> None:
    tokenizer.chat_template = CHATML
    choice = DataChoice(system_prompt="Be kind.")
    render = renderer(tokenizer, choice)
    assert text_of(render, talk("a", "b")).startswith("<|im_start|>system\nBe kind.<|im_end|>")
    assert "Be kind." not in text_of(render, talk("a", "b", system="Own."))
    tokenizer.chat_template = TRIMS
    render = renderer(tokenizer, choice)
    assert text_of(render, talk("a", "b")).startswith("<bos>[user] Be kind.\n\na<eos>")
    assert "first question" in " ".join(render.choice.notes)
    assert learned(tokenizer, talk("a", "b", system="Own."), choice) == ["b<eos>"]


def test_turns_that_a_template_cannot_show_are_put_where_it_can(tokenizer: Any) -> None:
    tokenizer.chat_template = TRIMS
    call = '[{"name": "weather", "arguments": {"city": "Oslo"}}]'
    messages = (
        Message(role="user", content="Rain?"),
        Message(role="assistant", content="", tool_calls=call),
        Message(role="tool", content="it rains"),
        Message(role="assistant", content="Yes."),
    )
    example = Example(row=1, messages=messages, tools='[{"name": "weather"}]')
    text = text_of(renderer(tokenizer, DataChoice()), example)
    for part in ('[{"name": "weather"}]', "[user] it rains", '"arguments": {"city": "Oslo"}'):
        assert part in text
    first, last = learned(tokenizer, example)
    assert first == '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call><eos>'
    assert last == "Yes.<eos>"


def test_a_base_model_gets_chatml_and_is_told_so(tokenizer: Any, make_tokenizer: Made) -> None:
    choice = resolve_template(tokenizer, DataChoice())
    assert (choice.kind, choice.name) == ("chatml", "ChatML")
    assert "no chat template" in choice.notes[0]
    assert learned(tokenizer, talk("Hi", "Hello")) == ["Hello<|im_end|>"]
    apply_template_to(tokenizer, DataChoice())
    again = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert again == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    im_end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert stop_token_ids(tokenizer, DataChoice()) == (im_end, tokenizer.eos_token_id)
    with pytest.raises(DataError, match="found none"):
        resolve_template(make_tokenizer(), DataChoice(template="model"))


def test_chatml_on_a_tokenizer_without_its_marks_ends_with_the_end_of_text(make_tokenizer: Made) -> None:
    tokenizer = make_tokenizer(bos=True)
    tokenizer.get_vocab = dict
    choice = resolve_template(tokenizer, DataChoice(template="chatml"))
    assert "plain text" in " ".join(choice.notes)
    row = encode(tokenizer, talk("Hi", "Hello", "More", "Yes"), choice, 1000)
    assert row.input_ids.count(tokenizer.bos_token_id) == 1
    assert learned(tokenizer, talk("Hi", "Hello", "More", "Yes"), choice) == ["Hello<eos>", "Yes<eos>"]  # type: ignore[arg-type]


@pytest.mark.parametrize("template", ["", "trims", "thinks"])
@pytest.mark.parametrize("bos", [False, True])
def test_the_template_of_training_is_the_one_that_export_carries(
    make_tokenizer: Made, tmp_path: Path, template: str, bos: bool
) -> None:
    tokenizer = make_tokenizer(bos)
    tokenizer.chat_template = ALL[template] if template else None
    choice = DataChoice(system_prompt="Be kind.")
    example = talk("Is it so?", " Yes! 🦜 \n", "And this?", "No.")
    trained = encode(tokenizer, example, choice, 10_000)
    turns = layout_turns(example, resolve_template(tokenizer, choice))
    apply_template_to(tokenizer, choice)
    tokenizer.save_pretrained(tmp_path)  # as an export does
    carried = load_tokenizer(tmp_path)
    assert carried.apply_chat_template(turns, tokenize=True, return_dict=False) == list(trained.input_ids)
    assert encode(carried, example, choice, 10_000) == trained
    asked = carried.apply_chat_template(turns[:-1], tokenize=False, add_generation_prompt=True)
    begun = len(carried(asked, add_special_tokens=False)["input_ids"])
    assert trained.labels[begun] != -100 == trained.labels[begun - 1]


@pytest.mark.parametrize(
    ("begins", "said"), [("", "does not begin with <bos>"), ("{{ bos_token }}", ""), ("<bos><bos>", "<bos> twice")]
)
def test_a_template_is_not_given_a_second_bos_and_a_missing_one_is_said(
    make_tokenizer: Made, begins: str, said: str
) -> None:
    tokenizer = make_tokenizer(bos=True)
    tokenizer.chat_template = begins + CHATML
    row = encode(tokenizer, talk("a", "b"), DataChoice(), 100)
    assert row.input_ids.count(tokenizer.bos_token_id) == {"": 0, "{{ bos_token }}": 1}.get(begins, 2)
    notes = " ".join(resolve_template(tokenizer, DataChoice()).notes)
    assert (said in notes) if said else ("begin" not in notes)


def test_raw_text_is_trained_whole_and_goes_on_in_further_rows(make_tokenizer: Made) -> None:
    tokenizer = make_tokenizer(bos=True)
    text = "the answer is a question " * 40
    (whole,) = encode_rows(tokenizer, [Example(row=7, text=text)], DataChoice(), 10_000)
    assert whole.labels == whole.input_ids
    assert (whole.input_ids[0], whole.input_ids[-1]) == (tokenizer.bos_token_id, tokenizer.eos_token_id)
    pieces = encode_rows(tokenizer, [Example(row=7, text=text)], DataChoice(), 64)
    assert len(pieces) > 2
    joined = [token for piece in pieces for token in piece.input_ids[1:]]
    assert [tokenizer.bos_token_id, *joined] == list(whole.input_ids)
    for piece in pieces:
        assert (piece.row, piece.input_ids.count(tokenizer.bos_token_id), len(piece.input_ids) <= 64) == (7, 1, True)


def test_no_template_writes_the_turns_a_line_each(tokenizer: Any) -> None:
    row = encode(tokenizer, talk("Hi", "Hello"), DataChoice(template="none"), 1000)
    assert tokenizer.decode(row.input_ids) == "Hi\nHello<eos>\n"
    assert learned(tokenizer, talk("Hi", "Hello"), DataChoice(template="none")) == ["Hello<eos>"]


def test_pairs_share_their_prompt_and_end_their_answers(tokenizer: Any) -> None:
    tokenizer.chat_template = THINKS
    example = Example(row=1, messages=talk("a", "One", "b").messages, chosen="Good", rejected="Bad answer")
    prompt, chosen, rejected = encode_pair(tokenizer, example, DataChoice(), 1000)
    assert tokenizer.decode(prompt).endswith("<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.decode(chosen) == "<think>\n\n</think>\n\nGood<|im_end|>"
    assert tokenizer.decode(rejected) == "<think>\n\n</think>\n\nBad answer<|im_end|>"
    short = encode_pair(tokenizer, example, DataChoice(), len(prompt) + 3)
    assert [len(part) for part in short] == [len(prompt), 3, 3]
    assert encode_pair(tokenizer, example, DataChoice(), 5) == (prompt[:5], [], [])
    assert learned(tokenizer, example) == ["One<|im_end|>", "<think>\n\n</think>\n\nGood<|im_end|>"]


def test_rows_that_cannot_be_trained_are_named(tokenizer: Any) -> None:
    tokenizer.chat_template = TRIMS
    twice = Example(row=2, messages=(*talk("a").messages, *talk("b", "c").messages))
    examples = [talk("a", "b", row=1), twice, talk("a " * 300, "b", row=3)]
    refused: list[Any] = []
    rows = encode_rows(tokenizer, examples, DataChoice(), 64, refused)
    assert [row.row for row in rows] == [1]
    assert [(problem.row, problem.code) for problem in refused] == [(2, "data.template"), (3, "row.cut_away")]
    assert "in turn!" in refused[0].text
    with pytest.raises(DataError, match="in turn!"):
        encode(tokenizer, twice, DataChoice(), 64)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{% for m in messages %}{{ m.role }}{% endfor %}", "leaves it out"),
        ("{{ messages[0].content.__class__ }}", ""),
        ("{{ 1 / 0 }}", "division"),
        ("{% for", "refuses"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)
def test_templates_that_fail_get_one_line(tokenizer: Any, source: str, said: str) -> None:
    tokenizer.chat_template = source
    with pytest.raises(DataError) as caught:
        encode(tokenizer, talk("Hi", "Hello"), DataChoice(), 100)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", list(ALL))
@pytest.mark.parametrize("max_length", [9, 40, 1000])
def test_the_preview_shows_what_is_trained(tokenizer: Any, name: str, max_length: int) -> None:
    tokenizer.chat_template = ALL[name]
    for example in (talk("Is it so?", " Yes! 🦜 \n", "And?", "No."), Example(row=2, text="the answer 🦜 " * 9)):
        using = renderer(tokenizer, DataChoice())
        (first, *_) = preview_rows(using, example, max_length)
        row = encode(tokenizer, example, DataChoice(), max_length)
        kinds = [span.kind for span in first.spans for _ in range(span.tokens)]
        assert [kind == "trained" for kind in kinds[: len(row.labels)]] == [label != -100 for label in row.labels]
        assert first.trained_tokens == row.trained_tokens
        assert kinds.count("cut") == first.cut_tokens == first.tokens - len(row.labels)
        if example.messages:
            end = "<eos>" if name == "open" else ""
            assert "".join(span.text for span in first.spans).rstrip("\n") == (
                text_of(using, example).rstrip("\n") + end
            )


def test_the_preview_of_a_pair_shows_both_sides(tokenizer: Any) -> None:
    example = Example(row=1, messages=talk("Hi").messages, chosen="Good one", rejected="Bad")
    sides = preview_rows(renderer(tokenizer, DataChoice()), example, 1000)
    parts = encode_pair(tokenizer, example, DataChoice(), 1000)
    assert [side.side for side in sides] == ["chosen", "rejected"]
    for side, answer in zip(sides, parts[1:], strict=True):
        assert side.trained_tokens == len(answer)
        assert side.tokens == len(parts[0]) + len(answer)
        assert "".join(span.text for span in side.spans if span.kind in ("trained", "avoided")) == tokenizer.decode(
            answer
        )
        assert not any(span.differs for span in side.spans), "where nothing is common nothing is pointed out"
    assert [side.spans[-1].kind for side in sides] == ["trained", "avoided"]
