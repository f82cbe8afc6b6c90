"""Rows as other programs write them: recognised with a reason or mapped by hand, read as they are meant or refused with
what is truly wrong; no row is lost or changed unseen."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from whole_rows import encode_rows, read, read_report

from core.contract.config import DataChoice
from core.contract.data import Example
from core.contract.errors import DataError
from core.contract.methods import method_for
from core.data.files.made import as_row
from core.data.read.examples import account_lines, read_columns, refused_lines
from core.data.render.chat_tokens import resolve_template
from core.data.tokens.facts import Measures, facts_of

CHAT = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]
TURNS = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
ASKED, ANSWERED = TURNS
REJECTED = {"role": "assistant", "content": "Go"}
PLAIN = [("user", "Hi"), ("assistant", "Hello")]
CALL = {"name": "weather", "arguments": {"city": "Oslo"}}


def said(example: Example) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in example.messages]


def part(text: str, key: str = "value", kind: str = "text") -> list[dict[str, str]]:
    return [{"type": kind, key: text}]


THOUGHT = part("It rains?", kind="reasoning")


@pytest.mark.parametrize(
    ("row", "layout", "expected"),
    [
        ({"instruction": "Do", "input": "this", "output": "Done"}, "alpaca", ["Do\n\nthis", "Done"]),
        ({"instruction": "Do", "input": None, "output": "Done"}, "alpaca", ["Do", "Done"]),
        ({"instruction": "Do", "context": "", "response": "Done", "category": "x"}, "alpaca", ["Do", "Done"]),
        ({"prompt": "Hi", "completion": "Hello"}, "prompt_completion", ["Hi", "Hello"]),
        ({"Question": "Hi", "Answer": "Hello"}, "prompt_completion", ["Hi", "Hello"]),
        ({"prompt": TURNS[:1], "completion": TURNS[1:]}, "prompt_completion", ["Hi", "Hello"]),
        ({"conversations": CHAT}, "sharegpt", ["Hi", "Hello"]),
        ({"messages": TURNS}, "messages", ["Hi", "Hello"]),
        ({"messages": json.dumps(TURNS)}, "messages", ["Hi", "Hello"]),
        ({"conversations": TURNS}, "messages", ["Hi", "Hello"]),
        ({"messages": TURNS, "label": True}, "kto", ["Hi", "Hello"]),
        ({"prompt": "Hi", "completion": "Hello", "label": True}, "kto", ["Hi", "Hello"]),
        ({"text": "fine film", "label": 1}, "classification", ["fine film", "1"]),
        ({"sentence": "fine film", "label": "good"}, "classification", ["fine film", "good"]),
        ({"messages": [{**ASKED, "content": part("Hi")}, {**ANSWERED, "content": part("Hello"), "loss_weight": 1.0}]},
         "messages", ["Hi", "Hello"]),
        ({"messages": [{**ASKED, "content": part("Hi", "text")}, {**ANSWERED, "content": part("Hello", "text")}]},
         "messages", ["Hi", "Hello"]),
        ({"conversations": [{"from": "human", "value": part("Hi")}, {"from": "gpt", "value": part("Hello", "text")}]},
         "sharegpt", ["Hi", "Hello"]),
        ({"messages": [{**ASKED, "content": part("Hi")[0]}, {**ANSWERED, "content": ["Hel", "lo"]}]},
         "messages", ["Hi", "Hello"]),
        ({"conversation": [{"human": "Hi", "assistant": "Hello"}], "category": "chat"}, "sharegpt", ["Hi", "Hello"]),
        ({"conversation": [{"user": "Hi"}, {"assistant": "Hello"}]}, "sharegpt", ["Hi", "Hello"]),
    ],
)  # fmt: skip
def test_conversations(tmp_path: Path, row: dict[str, Any], layout: str, expected: list[str]) -> None:
    report, (example,) = read(tmp_path, [row])
    assert (report.layout, report.method) == (layout, method_for(report.layout))
    assert said(example) == [("user", expected[0]), ("assistant", expected[1])]
    assert report.reason
    assert set(report.mapping) <= set(report.roles)
    assert set(report.mapping.values()) <= set(report.columns)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Hi", "chosen": "Hello", "rejected": "Go"},
        {"instruction": "Hi", "input": "", "chosen": "Hello", "rejected": "Go"},
        {"conversations": CHAT[:1], "chosen": CHAT[1], "rejected": {"from": "gpt", "value": "Go"}},
        {"prompt": TURNS[:1], "chosen": TURNS[1:], "rejected": [REJECTED]},
        {"prompt": "Hi", "chosen": TURNS, "rejected": [ASKED, REJECTED]},
        {"chosen": TURNS, "rejected": [ASKED, REJECTED]},
        {"chosen_messages": TURNS, "rejected_messages": [ASKED, REJECTED]},
        {"messages": TURNS, "chosen": TURNS, "rejected": [ASKED, REJECTED]},
        {"messages": TURNS, "chosen": [ANSWERED], "rejected": [REJECTED]},
        {"messages": TURNS, "chosen": "Hello", "rejected": "Go"},
        {"messages": [ASKED, REJECTED], "chosen": "Hello", "rejected": "Go"},
        {"messages": [ASKED], "chosen": TURNS, "rejected": [ASKED, REJECTED]},
    ],
)
def test_the_answer_of_a_preference_is_no_part_of_its_prompt(tmp_path: Path, row: dict[str, Any]) -> None:
    report, (example,) = read(tmp_path, [row])
    assert (report.layout, report.method) == ("preference", "dpo")
    assert (said(example), example.chosen, example.rejected) == ([("user", "Hi")], "Hello", "Go")


ARGUED = {**CALL, "arguments": json.dumps(CALL["arguments"])}
"""As OpenAI writes it."""


@pytest.mark.parametrize(
    ("turn", "text"),
    [
        ({"from": "function_call", "value": json.dumps(CALL)}, ""),
        ({"role": "assistant", "content": None, "tool_calls": [{"function": CALL}]}, ""),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, ""),
        ({"role": "assistant", "content": None, "function_call": ARGUED}, ""),
        ({"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": ARGUED}]}, ""),
        ({**ANSWERED, "content": [*THOUGHT, *part("I look."), *part(json.dumps(CALL), kind="tool_call")]}, "I look."),
    ],
)
def test_a_call_is_one_in_each_spelling(tmp_path: Path, turn: dict[str, Any], text: str) -> None:
    tools = json.dumps([{"name": "weather", "parameters": {}}])
    asked = {"role": "user", "content": [*part("Wea", "text"), *part("ther?", "text")]}
    turns = [{"role": "developer", "content": "Be brief."}, asked, turn, {"from": "observation", "value": "rain"}]
    rows = [{"messages": [*turns, ANSWERED], "tools": tools}, {"messages": TURNS, "tools": "[]"}]
    _, (called, plain) = read(tmp_path, rows)
    assert [message.role for message in called.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert said(called)[:3] == [("system", "Be brief."), ("user", "Weather?"), ("assistant", text)]
    assert json.loads(called.messages[2].tool_calls) == [CALL]
    assert called.messages[2].reasoning == ("It rains?" if text else "")
    assert json.loads(called.tools) == json.loads(tools)
    assert plain.tools == ""


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (DataChoice(columns={"prompt": "b", "completion": "a"}), ["two", "one"]),
        (
            DataChoice(layout="alpaca", columns={"instruction": "a", "input": "b", "output": "c"}),
            ["one\n\ntwo", "three"],
        ),
        (DataChoice(layout="classification", columns={"text": "a", "label": "c"}), ["one", "three"]),
    ],
)
def test_columns_mapped_by_hand(tmp_path: Path, choice: DataChoice, expected: list[str]) -> None:
    report, (example,) = read(tmp_path, [{"a": "one", "b": "two", "c": "three"}], choice)
    assert [message.content for message in example.messages] == expected
    assert "you" in report.reason


def test_a_role_left_out_by_hand_stays_without_a_column(tmp_path: Path) -> None:
    row = {"conversations": TURNS, "prompt": "Which?", "chosen": "a", "rejected": "b", "system": "Be brief."}
    assert said(read(tmp_path, [{**row, "conversations": TURNS[:1]}])[1][0]) == [
        ("system", "Be brief."),
        ("user", "Hi"),
    ]
    given = {"prompt": "prompt", "conversations": "", "chosen": "chosen", "rejected": "rejected", "system": ""}
    for layout in ("auto", "preference"):
        report, (example,) = read(tmp_path, [row], DataChoice(layout=layout, columns=given))  # type: ignore[arg-type]
        assert report.mapping == {"prompt": "prompt", "chosen": "chosen", "rejected": "rejected"}
        assert said(example) == [("user", "Which?")]


@pytest.mark.parametrize("layout", ["auto", "prompt_completion"])
def test_one_column_is_no_two_roles(tmp_path: Path, layout: Any) -> None:
    columns = {"prompt": "a", "completion": "a"}
    with pytest.raises(DataError, match="a column of its own for each of prompt and completion") as caught:
        read(tmp_path, [{"a": "x", "b": "y"}], DataChoice(layout=layout, columns=columns))
    assert caught.value.code == "data.column_twice"


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        (DataChoice(), "a, b"),
        (DataChoice(columns={"prompt": "x", "completion": "a"}), "'x'"),
        (DataChoice(layout="alpaca", columns={"instruction": "a"}), "output"),
        (DataChoice(layout="alpaca", columns={"chosen": "a"}), "not chosen"),
        (DataChoice(columns={"prompt": "a", "rejected": "b"}), "one layout"),
        (DataChoice(layout="sharegpt", columns={"conversations": "a"}), "found no answer"),
        (DataChoice(columns={"prompt": "a", "completion": "b"}), "b is the number 2"),
    ],
)
def test_a_mapping_that_leaves_nothing_is_refused_with_the_columns(
    tmp_path: Path, choice: DataChoice, why: str
) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, [{"a": "one", "b": 2}], choice)
    assert why in str(caught.value)
    assert "a, b" in str(caught.value)
    assert read_columns(tmp_path / "rows.jsonl") == ("a", "b")


def test_a_chosen_layout_takes_columns_without_names_in_order(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text("a fine film, truly\t1\na bad film\t0\n")
    assert read_report(path, DataChoice()).layout == "classification"
    for layout, roles in (("classification", ("text", "label")), ("prompt_completion", ("prompt", "completion"))):
        report = read_report(path, DataChoice(layout=layout))  # type: ignore[arg-type]
        assert report.mapping == dict(zip(roles, ("column 1", "column 2"), strict=True))
        assert report.usable == 2


def test_what_is_not_read_is_said(tmp_path: Path) -> None:
    turns = [TURNS[0], {**TURNS[1], "name": "Bo", "tool_call_id": "x", "weight": 1}]
    report, _ = read(tmp_path, [{"messages": turns, "id": 5, "source": "x"}])
    assert report.reason.endswith("Not read: columns id, source; keys of turns name, tool_call_id.")
    report, _ = read(tmp_path, [{"messages": TURNS}])
    assert "Not read" not in report.reason


def test_the_account_counts_every_row_left_out_by_its_reason(tmp_path: Path) -> None:
    good, bad = {"messages": TURNS, "label": True, "source": "x"}, {"messages": TURNS, "label": False}
    report, _ = read(tmp_path, [good, *[bad] * 250, {"messages": None, "label": True}, bad], method="sft")
    assert [(skipped.code, skipped.rows, skipped.first_row) for skipped in report.skipped] == [
        ("row.kto_false", 251, 2),
        ("row.type", 1, 252),
    ]
    assert len(report.problems) == 200
    assert report.unread == ("source",)
    how, counts, false, broken, marks = account_lines(report)
    assert how.startswith("Read as KTO labels: columns messages and label")
    assert "Not read: columns source" in how
    assert counts == "1 of 253 rows can be trained on."
    assert marks == "Marks: 1 good, 251 bad."
    assert false.startswith("251 rows are left out: label is false")
    assert false.endswith("(first row 2).")
    assert broken == "1 row is left out: messages is null or missing, expected a list of turns (row 252)."


def test_rows_that_the_template_refuses_are_told_too() -> None:
    three = np.array([3, 4, 5])
    spans, none = np.array([[1, 3]] * 3), np.zeros(3, bool)
    measures = Measures(three, spans, np.arange(3), none, none.astype(int), none, refused=2, why="row 7: it refuses.")
    said = "The chat template refuses 2 rows{} and they are left out: row 7: it refuses."
    assert refused_lines(facts_of(measures, 64, 5)) == (said.format(""),)
    assert refused_lines(facts_of(measures, 64, 50)) == (said.format(", of the 5 looked at,"),)
    assert refused_lines(facts_of(replace(measures, refused=0), 64, 3)) == ()


ALPACA = {"instruction": "a", "input": "", "output": "b"}
CHATS = {"messages": TURNS}
PAIR = {"prompt": "Hi", "messages": [ASKED], "chosen": "a", "rejected": "b"}


@pytest.mark.parametrize(
    ("good", "changed", "why"),
    [
        (ALPACA, {"output": None}, "output is null or missing, expected text"),
        (ALPACA, {"output": float("nan")}, "output is NaN, expected text"),
        (ALPACA, {"output": 7}, "output is the number 7, expected text"),
        (ALPACA, {"output": 10**300}, "output is a very long number, expected text"),
        (ALPACA, {"output": ["a"]}, "output is a list, expected text"),
        (ALPACA, {"output": {"a": 1}}, "output is an object, expected text"),
        (ALPACA, {"output": True}, "output is true, expected text"),
        (ALPACA, {"output": "  "}, "output is empty"),
        (ALPACA, {"output": "\ud800"}, "output holds bytes that are no UTF-8 text"),
        (CHATS, {"messages": [{"role": "narrator", "content": "x"}]}, "said by 'narrator'"),
        (CHATS, {"messages": ["hello"]}, "turn 1 of messages is text"),
        (CHATS, {"messages": []}, "messages is empty"),
        (CHATS, {"messages": TURNS[:1]}, "found no answer"),
        (CHATS, {"messages": 3}, "the number 3"),
        (CHATS, {"tools": "{"}, "expected a JSON list of functions"),
        (CHATS, {"messages": [*TURNS, {"role": "user"}]}, "turn 3 of messages is null or missing"),
        (CHATS, {"messages": [TURNS[0], {"role": "assistant", "tool_calls": [{"id": 1}]}]}, "without a name"),
        ({**CHATS, "label": True}, {"label": False}, "label is false"),
        (PAIR, {"chosen": "Same", "rejected": "Same"}, "the same text"),
        (PAIR, {"chosen": ""}, "chosen is empty"),
        (PAIR, {"prompt": None, "messages": None}, "no prompt"),
        (PAIR, {"chosen": TURNS, "rejected": [{"role": "user", "content": "?"}, TURNS[1]]}, "same conversation"),
        (PAIR, {"chosen": TURNS[:1], "rejected": TURNS[:1]}, "end with an answer"),
        (PAIR, {"chosen": [{"role": "assistant", "content": "I look", "tool_calls": [CALL]}]}, "calls a tool"),
        (PAIR, {"prompt": None, "messages": [ASKED, {**ANSWERED, "content": "Hm"}]}, "ends with another"),
        (PAIR, {"messages": None, "prompt": "Other", "chosen": [ASKED, ANSWERED], "rejected": [ASKED, REJECTED]},
         "different conversations"),
        (CHATS, {"messages": [{**ASKED, "content": part("x.png", kind="image_url")}, ANSWERED]}, "row.media: image"),
        (CHATS, {"messages": [{**ASKED, "content": part("x", kind="refusal")}, ANSWERED]}, "row.part: type refusal"),
        (CHATS, {"messages": [{**ASKED, "content": "<image>Who is it?"}, ANSWERED]}, "row.media: <image> stands for"),
        (CHATS, {"messages": [{**ASKED, "content": "What?\n<audio>"}, ANSWERED]}, "row.media: <audio> stands for"),
        (CHATS, {"messages": [{**ASKED, "content": "<video>Why?"}, ANSWERED]}, "row.media: <video> stands for"),
        (CHATS, {"messages": [ASKED, {**ANSWERED, "tool_calls": [{"name": "f", "arguments": {"x": float("inf")}}]}]},
         "row.tools: no JSON"),
        (CHATS, {"images": ["a.png"]}, "row.media: the column images"),
        (CHATS, {"messages": [ASKED, {**ANSWERED, "weight": 0.5}]}, "row.weight: turn 2 of messages is the number 0.5"),
        (CHATS, {"messages": [ASKED, {**ANSWERED, "weight": 0}]}, "row.no_answer: each has weight 0"),
        (CHATS, {"messages": [{**ASKED, "reasoning_content": "x"}, ANSWERED]}, "row.reasoning: said by user"),
        (CHATS, {"messages": [ASKED, {**ANSWERED, "reasoning": ["x"]}]}, "row.type: the reasoning of turn 2"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_used_is_listed_with_the_reason(
    tmp_path: Path, good: dict[str, Any], changed: dict[str, Any], why: str
) -> None:
    method: Any = "sft" if "label" in good else None
    report, examples = read(tmp_path, [good, {**good, **changed}, good], method=method)
    assert (report.rows, report.usable, len(examples)) == (3, 2, 2)
    (problem,), (skipped,) = report.problems, report.skipped
    assert (problem.row, skipped.code, skipped.rows, skipped.first_row) == (2, problem.code, 1, 2)
    assert all(one in f"{problem.code} {problem.text}" for one in why.split(": "))
    assert problem.raw.startswith(("user: Hi", f"{next(iter(good))}: "))


def test_turns_of_firefly_keep_their_order_and_name_what_is_missing(tmp_path: Path) -> None:
    pairs = [{"human": "Hi", "assistant": "Hello"}, {"human": "More", "assistant": "Enough"}]
    report, examples = read(
        tmp_path, [{"conversation": pairs}, {"conversation": [*pairs, {"human": "And", "assistant": None}]}]
    )
    assert [said(example) for example in examples] == [[*PLAIN, ("user", "More"), ("assistant", "Enough")]]
    assert report.layout == "sharegpt"
    assert report.problems[0].text == "assistant in turn 3 of conversation is null or missing, expected text"


NO_MEDIA = [None, "", [], {}, False, 0, float("nan"), [None], ["", False], {"bytes": None, "path": None}]


def test_a_column_that_says_there_is_no_media_leaves_no_row_out(tmp_path: Path) -> None:
    media = [{"bytes": None, "path": "a.png"}, [None, "b.png"], "c.png"]
    report, examples = read(tmp_path, [{"messages": TURNS, "image": value} for value in [*NO_MEDIA, *media]])
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
    row = {
        "messages": [
            ASKED,
            {**ANSWERED, "weight": 0},
            {"role": "user", "content": "More"},
            {"role": "assistant", "content": "Enough", "weight": 1},
        ]
    }
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
