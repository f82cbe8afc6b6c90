"""Columns that no layout knows: what they are taken for, by their names and contents."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from core.contract.config import DataChoice
from core.contract.rows import RoleGuess
from core.data.read.cells import Record
from core.data.read.examples import look_at, read_examples
from core.data.read.roles import guess_roles

SAID = "Press the red button until the lamp blinks, then wait for {}."


def guessed(*rows: dict[str, Any], **chosen: Any) -> RoleGuess:
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    records = [Record(number, row) for number, row in enumerate(rows, start=1)]
    return guess_roles(columns, records, DataChoice(**chosen))


def rows(**columns: Any) -> list[dict[str, Any]]:
    """Twelve rows: a text gets the row's number, a list is repeated, a function is called."""

    def cell(value: Any, number: int) -> Any:
        if callable(value):
            return value(number)
        return value[number % len(value)] if isinstance(value, list) else value.format(number)

    return [{name: cell(value, number) for name, value in columns.items()} for number in range(12)]


TURNS = [[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]]
SHARED = [[{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]]


@pytest.mark.parametrize(
    ("columns", "layout", "roles"),
    [
        (
            {"Ticket ID": "T-{}", "Customer Message": "How do I do {}?", "Agent Reply": SAID, "Date": "2024-01-02"},
            "prompt_completion",
            {"prompt": "Customer Message", "completion": "Agent Reply"},
        ),
        ({"Frage": "Wie geht {}", "Antwort": SAID}, "prompt_completion", {"prompt": "Frage", "completion": "Antwort"}),
        (  # one agent answered them all: no label
            {"Ticket": lambda n: n, "Customer wrote": "My order {} is late.", "We replied": SAID, "Agent": "Ann"},
            "prompt_completion",
            {"prompt": "Customer wrote", "completion": "We replied"},
        ),
        ({"Note": "My order {} is late.", "Version": lambda _: 1, "Agent": "Ann"}, "text", {"text": "Note"}),
        (  # a file that is sorted by its labels
            {"comment": "My order {} is late.", "category": "delivery"},
            "classification",
            {"text": "comment", "label": "category"},
        ),
        (
            {"userQuery": "do {}", "bot_answer": SAID, "rating": [1, 4, 5], "url": "https://a.b/{}"},
            "prompt_completion",
            {"prompt": "userQuery", "completion": "bot_answer"},
        ),
        (
            {"user_query": "My tent {} is torn.", "preferred_reply": SAID, "other_reply": "That is no problem {}."},
            "preference",
            {"prompt": "user_query", "chosen": "preferred_reply", "rejected": "other_reply"},
        ),
        (
            {"request": "My tent {} is torn.", "good answer": SAID, "bad answer": "That is no problem {}."},
            "preference",
            {"prompt": "request", "chosen": "good answer", "rejected": "bad answer"},
        ),
        (
            {"mail": "My {} tents came torn and wet.", "queue": ["Sales", "Billing"]},
            "classification",
            {"text": "mail", "label": "queue"},
        ),
        (
            {"mail": "kim{}@example.com", "note": "The tent {} came torn.", "kind": ["Sales", "Billing"]},
            "classification",
            {"text": "note", "label": "kind"},
        ),
        ({"A": "some {} thing", "B": SAID}, "prompt_completion", {"prompt": "A", "completion": "B"}),
        (
            {"data": lambda number: {"question": f"what {number}", "answer": SAID.format(number)}},
            "prompt_completion",
            {"prompt": "data.question", "completion": "data.answer"},
        ),
        (
            {"ask": "why {}?", "passage": SAID, "result": "because of {}"},
            "alpaca",
            {"instruction": "ask", "input": "passage", "output": "result"},
        ),
        (
            {"ques": "why {} now?", "best_reply": SAID, "worse_reply": "no idea {}"},
            "preference",
            {"chosen": "best_reply", "rejected": "worse_reply", "prompt": "ques"},
        ),
        (
            {"user_message": "why {}?", "bot_reply": SAID, "thumbs": ["up", "down"]},
            "kto",
            {"prompt": "user_message", "completion": "bot_reply", "label": "thumbs"},
        ),
        ({"log": SHARED, "n": [1, 2]}, "sharegpt", {"conversations": "log"}),
        ({"log": [json.dumps(TURNS[0])]}, "messages", {"messages": "log"}),
        ({"thread": lambda _: {"turns": TURNS[0]}}, "messages", {"messages": "thread.turns"}),
        ({"tweet": SAID, "is_spam": [0, 1]}, "classification", {"text": "tweet", "label": "is_spam"}),
        ({"title": "a {} b", "note": SAID, "verdict": ["fine", "bad", "so so"]}, "classification", None),
        ({"notes": SAID, "id": "{}", "mail": "a{}@b.cd"}, "text", {"text": "notes"}),
        ({"x": [1.5, 2.5], "y": lambda number: number}, "", {}),
    ],
)
def test_a_proposal(columns: dict[str, Any], layout: str, roles: dict[str, str] | None) -> None:
    found = guessed(*rows(**columns))
    assert (found.layout, found.recognised) == (layout, False)
    assert roles is None or found.roles == roles


def test_what_the_names_alone_say_needs_no_question() -> None:
    found = guessed(*rows(prompt="a {}", response=SAID, id="{}"))
    assert (found.layout, found.recognised) == ("prompt_completion", True)
    assert found.samples == {"prompt": "a 0", "response": SAID.format(0), "id": "0"}
    system = guessed(*rows(**{"System Prompt": "Be brief.", "User": "a {}", "Assistant": SAID}))
    assert system.roles == {"prompt": "User", "completion": "Assistant", "system": "System Prompt"}


def test_what_a_person_chose_is_kept() -> None:
    made = rows(Frage="Wie {}", Antwort=SAID, Ausweg="Anders geht es auch {}")
    assert guessed(*made, columns={"completion": "Ausweg"}).roles == {"prompt": "Frage", "completion": "Ausweg"}
    assert guessed(*made, layout="text").layout == "text"


def test_a_known_name_whose_rows_cannot_be_used_is_not_believed() -> None:
    """Two turns under a column that looks like raw text: its one column would be read as text, and none could be."""
    found = guessed(*rows(text=TURNS))
    assert (found.layout, found.roles, found.recognised) == ("messages", {"messages": "text"}, False)


def test_a_table_whose_columns_nobody_knows_keeps_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "tickets.csv"
    path.write_text("Customer Message,Agent Reply\nwhat,this\nwho,me\n")
    assert look_at(path, path).columns == ("Customer Message", "Agent Reply")
    path.write_text("good day,to you\nwhat,this\n")
    assert look_at(path, path).columns == ("column 1", "column 2")


def test_hostile_cells_are_judged_in_time() -> None:
    begun = time.process_time()
    wide = {f"c{n}": {f"k{key}": "x" for key in range(30)} for n in range(100)}
    assert len(guessed(*([wide] * 20)).samples) == 100, "3,000 columns are shown as the 100 that they stand in"
    assert guessed(*({"a": "@." * 100_000, "b": "1" * 200_000, "c": "[" * 90_000} for _ in range(20))).samples
    assert time.process_time() - begun < 2


def test_a_path_is_a_column(tmp_path: Path) -> None:
    path = tmp_path / "nested.jsonl"
    made = [{"data": {"question": f"why {n}", "answer": "so"}, "meta": '{"tone": "dry"}'} for n in range(3)]
    path.write_text("\n".join(map(json.dumps, made)))
    choice = DataChoice(columns={"prompt": "data.question", "completion": "data.answer", "system": "meta.tone"})
    example = next(read_examples(path, choice))
    assert [turn.content for turn in example.messages] == ["dry", "why 0", "so"]
