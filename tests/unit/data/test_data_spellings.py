"""Conversations as other programs write them: understood as they are meant, or refused with what is truly wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from whole_rows import encode_rows, read

from core.contract.config import DataChoice
from core.contract.data import Example
from core.contract.errors import DataError
from core.data.files.made import as_row
from core.data.render.rendering import load_tokenizer, resolve_template

ASKED, ANSWERED = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}
TALK = [ASKED, ANSWERED]
LATER = [{"role": "user", "content": "More"}, {"role": "assistant", "content": "Enough"}]


def said(example: Example) -> list[tuple[str, str]]:
    return [(turn.role, turn.content) for turn in example.messages]


def part(text: str, key: str = "value", kind: str = "text") -> list[dict[str, str]]:
    return [{"type": kind, key: text}]


PLAIN = [("user", "Hi"), ("assistant", "Hello")]


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [{**ASKED, "content": part("Hi")}, {**ANSWERED, "content": part("Hello"), "loss_weight": 1.0}]},
        {"messages": [{**ASKED, "content": part("Hi", "text")}, {**ANSWERED, "content": part("Hello", "text")}]},
        {"conversations": [{"from": "human", "value": part("Hi")}, {"from": "gpt", "value": part("Hello", "text")}]},
        {"messages": [{**ASKED, "content": part("Hi")[0]}, {**ANSWERED, "content": ["Hel", "lo"]}]},
        {"conversation": [{"human": "Hi", "assistant": "Hello"}], "category": "chat"},
        {"conversation": [{"user": "Hi"}, {"assistant": "Hello"}]},
    ],
)
def test_spellings_of_one_conversation(tmp_path: Path, row: dict[str, Any]) -> None:
    _, (example,) = read(tmp_path, [row])
    assert said(example) == PLAIN


def test_turns_of_firefly_keep_their_order_and_name_what_is_missing(tmp_path: Path) -> None:
    pairs = [{"human": "Hi", "assistant": "Hello"}, {"human": "More", "assistant": "Enough"}]
    report, examples = read(
        tmp_path, [{"conversation": pairs}, {"conversation": [*pairs, {"human": "And", "assistant": None}]}]
    )
    assert [said(example) for example in examples] == [[*PLAIN, ("user", "More"), ("assistant", "Enough")]]
    assert report.layout == "sharegpt"
    assert report.problems[0].text == "assistant in turn 3 of conversation is null or missing, expected text"


def test_parts_bring_reasoning_and_calls(tmp_path: Path) -> None:
    call = {"name": "weather", "arguments": {"city": "Oslo"}}
    content = [*part("It rains?", kind="reasoning"), *part("I look."), *part(json.dumps(call), kind="tool_call")]
    _, (example,) = read(tmp_path, [{"messages": [ASKED, {**ANSWERED, "content": content}]}])
    answer = example.messages[1]
    assert (answer.reasoning, answer.content, json.loads(answer.tool_calls)) == ("It rains?", "I look.", [call])


@pytest.mark.parametrize(
    ("row", "code", "why"),
    [
        ({"messages": [{**ASKED, "content": part("x.png", kind="image_url")}, ANSWERED]}, "row.media", "image_url"),
        ({"messages": [{**ASKED, "content": part("x", kind="refusal")}, ANSWERED]}, "row.part", "type refusal"),
        ({"messages": [{**ASKED, "content": "<image>Who is it?"}, ANSWERED]}, "row.media", "<image> stands for"),
        ({"messages": [{**ASKED, "content": "What is said?\n<audio>"}, ANSWERED]}, "row.media", "<audio> stands for"),
        ({"messages": [{**ASKED, "content": "<video>Why?"}, ANSWERED]}, "row.media", "<video> stands for"),
        ({"messages": TALK, "images": ["a.png"]}, "row.media", "the column images"),
        ({"messages": [ASKED, {**ANSWERED, "weight": 0.5}]}, "row.weight", "turn 2 of messages is the number 0.5"),
        ({"messages": [ASKED, {**ANSWERED, "weight": 0}]}, "row.no_answer", "each has weight 0"),
        ({"messages": [{**ASKED, "reasoning_content": "x"}, ANSWERED]}, "row.reasoning", "said by user"),
        ({"messages": [ASKED, {**ANSWERED, "reasoning": ["x"]}]}, "row.type", "the reasoning of turn 2"),
    ],
)
def test_what_cannot_be_trained_is_left_out_counted_and_shown(
    tmp_path: Path, row: dict[str, Any], code: str, why: str
) -> None:
    columns = {"images": None} if "images" in row else {}
    report, examples = read(tmp_path, [{"messages": TALK, **columns}, row])
    assert [said(example) for example in examples] == [PLAIN]
    assert [(skipped.code, skipped.rows, skipped.first_row) for skipped in report.skipped] == [(code, 1, 2)]
    assert why in report.problems[0].text
    assert report.problems[0].raw.startswith("messages: [{")


NO_MEDIA = [None, "", [], {}, False, 0, float("nan"), [None], ["", False], {"bytes": None, "path": None}]


def test_a_column_that_says_there_is_no_media_leaves_no_row_out(tmp_path: Path) -> None:
    media = [{"bytes": None, "path": "a.png"}, [None, "b.png"], "c.png"]
    report, examples = read(tmp_path, [{"messages": TALK, "image": value} for value in [*NO_MEDIA, *media]])
    assert [example.row for example in examples] == [*range(1, len(NO_MEDIA) + 1)]
    assert [(skipped.code, skipped.rows) for skipped in report.skipped] == [("row.media", len(media))]


@pytest.mark.parametrize(
    "text",
    [
        "Write <video>\n<source src='a.mp4'>\n</video> in HTML.",
        "What does the <video> element do?",
        "Explain `<image>` in this prompt",
    ],
)
def test_words_about_media_are_no_media(tmp_path: Path, text: str) -> None:
    _, (example,) = read(tmp_path, [{"messages": [{**ASKED, "content": text}, ANSWERED]}])
    assert example.messages[0].content == text


def test_single_messages_of_a_tree_are_no_raw_text(tmp_path: Path) -> None:
    row = {"message_id": "a", "parent_id": None, "role": "prompter", "text": "Hi", "lang": "en"}
    with pytest.raises(DataError) as caught:
        read(tmp_path, [row, {**row, "message_id": "b", "parent_id": "a", "role": "assistant"}])
    assert caught.value.code == "data.tree"
    assert "single messages of a tree" in caught.value.message


def test_transcripts_of_hh_rlhf_are_pairs_of_turns(tmp_path: Path) -> None:
    prompt = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: Which: a or b?\n\nNeither?"
    row = {"chosen": f"{prompt}\n\nAssistant: Both.", "rejected": f"{prompt}\n\nAssistant: None."}
    apart = {"prompt": f"{prompt}\n\nAssistant:", "chosen": "Both.", "rejected": "None."}
    empty = {**row, "rejected": f"{prompt}\n\nAssistant:"}
    for good in (row, apart):
        report, (example,) = read(tmp_path, [good, {**row, "chosen": row["rejected"]}])
        assert said(example) == [*PLAIN, ("user", "Which: a or b?\n\nNeither?")]
        assert (example.chosen, example.rejected, report.method) == ("Both.", "None.", "dpo")
    report, _ = read(tmp_path, [row, empty])
    assert report.problems[0].row == 2


def test_turns_of_weight_0_are_read_and_not_learned(tmp_path: Path, tokenizer: Any) -> None:
    row = {"messages": [ASKED, {**ANSWERED, "weight": 0}, LATER[0], {**LATER[1], "weight": 1}]}
    _, (example,) = read(tmp_path, [row])
    assert [turn.trained for turn in example.messages] == [True, False, True, True]
    learned = {}
    for train_on in ("answers", "last_answer", "everything"):
        template = resolve_template(tokenizer, DataChoice(template="chatml", train_on=train_on))  # type: ignore[arg-type]
        (made,) = encode_rows(tokenizer, [example], template, 512)
        learned[train_on] = tokenizer.decode([token for token in made.labels if token >= 0])
    assert learned["answers"] == learned["last_answer"] == "Enough<|im_end|>"
    assert "Hello" not in learned["everything"]
    assert "More<|im_end|>" in learned["everything"]
    again = read(tmp_path, [as_row(example)])[1][0]
    assert again == example


def test_reasoning_reaches_the_template_or_stands_in_the_answer(
    tmp_path: Path, tokenizer: Any, shared_data: Path
) -> None:
    _, (example,) = read(tmp_path, [{"messages": [ASKED, {**ANSWERED, "reasoning_content": "Be kind."}]}])
    learned = {}
    for name in ("Qwen-Qwen3-0.6B", "Qwen-Qwen2.5-7B-Instruct"):
        known = load_tokenizer(shared_data / "tokenizers" / "qwen2")
        known.chat_template = next((shared_data / "templates").glob(f"{name}*")).read_text()
        (made,) = encode_rows(known, [example], resolve_template(known, DataChoice()), 512)
        learned[name] = known.decode([token for token in made.labels if token >= 0])
    assert set(learned.values()) == {"<think>\nBe kind.\n</think>\n\nHello<|im_end|>"}
    assert read(tmp_path, [as_row(example)])[1] == [example]
