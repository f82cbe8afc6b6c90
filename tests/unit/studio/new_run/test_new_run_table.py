"""The table of rows without a browser: what the headers say and what follows, what the script is told and asks."""

import html
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from made_window import MACHINE, FakeData, Window, asked_by, look, report_of, shown, told

from core.contract.config import DataChoice, Layout, RunConfig
from core.contract.errors import DataError
from core.contract.rows import RoleGuess
from core.data.files.made import EDITED, write_rows
from core.data.read.layouts import ROLES, recognise_layout
from studio.pages.new_run import summary
from studio.pages.new_run.data import roles, table
from studio.pages.new_run.data.block import origin_view, report_view
from studio.pages.new_run.handlers import Handlers
from studio.pages.new_run.view import View
from studio.pages.new_run.words import say
from studio.services.services import Studio
from studio.services.session import first
from studio.shell.json_routes import answer_faults

UNKNOWN = DataError(
    "data.columns/unknown", expected="columns of a known layout", columns="Customer Message, Agent Reply"
)
GUESS = RoleGuess(
    layout="prompt_completion",
    roles={"prompt": "Customer Message", "completion": "Agent Reply"},
    samples={"Customer Message": "<b>Where is it?</b>", "Agent Reply": "Here."},
)


def unread(layout: Layout = "auto", guess: RoleGuess = GUESS, **columns: str) -> View:
    """A file of no known layout."""
    data = DataChoice(path="/x/support.csv", layout=layout, columns=columns)
    return View(RunConfig(data=data), MACHINE, data_fault=UNKNOWN, guess=guess)


# ── what the columns are ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("layout", roles.FORMS)
def test_every_role_of_a_layout_has_a_word_and_what_is_enough_can_be_read(layout: Layout) -> None:
    form = roles.FORMS[layout]
    assert tuple(form.words) == tuple(role for role in ROLES[layout] if role in form.words)
    assert set(form.words) == set(ROLES[layout])
    assert len(set(form.words.values())) == len(form.words), "each word means one role"
    assert set(form.words.values()) <= set(roles.WORDS)
    assert all(say.get(f"role.{word}") for word in form.words.values())
    for enough in form.enough:
        columns = {role: word if word in enough else "" for role, word in form.words.items()}
        cells = tuple(word for word in columns.values() if word)
        choice = DataChoice(layout=layout, columns=columns)
        found = recognise_layout(cells, [dict.fromkeys(cells, "true")], choice)
        assert found.mapping == {role: column for role, column in columns.items() if column}


@pytest.mark.parametrize(
    ("words", "column", "word", "layout", "missing"),
    [
        ({}, "a", "question", "prompt_completion", "answer"),
        ({"a": "question"}, "b", "answer", "prompt_completion", ""),
        ({"a": "question", "b": "answer"}, "c", "context", "alpaca", ""),
        ({"a": "question", "b": "answer"}, "c", "mark", "kto", ""),
        ({"a": "question", "b": "answer"}, "c", "label", "classification", "text"),
        ({"a": "question", "b": "chosen"}, "c", "rejected", "preference", ""),
        ({"a": "question"}, "b", "chosen", "preference", "rejected"),
        ({"a": "conversation"}, "b", "mark", "kto", ""),
        ({}, "a", "conversation", "messages", ""),
        ({"a": "label"}, "b", "text", "classification", ""),
        ({"a": "question", "b": "answer"}, "b", "", "prompt_completion", "answer"),
        ({"a": "question", "b": "answer"}, "b", "question", "prompt_completion", "answer"),
    ],
)
def test_the_format_follows_from_what_was_chosen(
    words: dict[str, str], column: str, word: str, layout: str, missing: str
) -> None:
    form = roles.FORMS["prompt_completion"]
    for known in roles.FORMS:
        if set(words.values()) <= set(roles.FORMS[known].words.values()):
            form = roles.FORMS[known]
            break
    columns = {
        role: next((one for one, its in words.items() if its == word_), "") for role, word_ in form.words.items()
    }
    known = next(name for name, one in roles.FORMS.items() if one is form) if words else "auto"
    data = roles.given(unread(known, **(columns if words else {})), column, word)
    assert data.layout == layout
    assert set(data.columns) == set(roles.FORMS[layout].words), "no role is left to be filled in"
    assert roles.missing(unread(data.layout, **data.columns)) == ((missing,) if missing else ())
    if word:
        assert roles.words_of(layout, data.columns)[column] == word


def test_what_was_read_of_itself_can_be_changed_in_a_header() -> None:
    report = report_of("/x", columns=("instruction", "output", "note"))
    view = View(first().config, MACHINE, report=report)
    assert roles.shown_words(view) == {"instruction": "question", "output": "answer"}
    changed = roles.given(view, "note", "system")
    assert (changed.layout, changed.columns["system"], changed.columns["instruction"]) == (
        "alpaca",
        "note",
        "instruction",
    )


def test_several_columns_of_one_role_are_joined_in_their_order() -> None:
    names = ("Subject", "Body (plain)", "Reply", "Mark")
    guess = RoleGuess(layout="", samples=dict.fromkeys(names, "-"))

    def after(*wishes: tuple[str, str]) -> DataChoice:
        view = unread(guess=guess)
        for column, word in wishes:
            view = replace(view, config=RunConfig(data=roles.given(view, column, word)))
        return view.config.data

    body, reply, subject = ("Body (plain)", "question"), ("Reply", "answer"), ("Subject", "question")
    joined = after(body, reply, subject)
    assert joined.columns == {"prompt": "Subject + Body (plain)", "completion": "Reply", "system": ""}
    assert after(body, reply, subject, ("Subject", "")).columns["prompt"] == "Body (plain)"
    assert after(body, reply, subject, ("Subject", "answer")).columns["completion"] == "Subject + Reply"
    marked = after(body, reply, ("Mark", "mark"), ("Subject", "mark"))
    assert marked.columns["label"] == "Subject", "a row has one mark: another column takes its place"
    cells = {"Subject": "Broken", "Body (plain)": "My tent is torn.", "Reply": "We send another.", "Mark": "1"}
    found = recognise_layout(names, [cells], joined)
    view = View(
        RunConfig(data=joined),
        MACHINE,
        report=report_of("/x", columns=names, mapping=found.mapping, layout=found.layout),
    )
    assert roles.shown_words(view) == {"Subject": "question", "Body (plain)": "question", "Reply": "answer"}
    plus = report_of("/x", columns=("a + b", "c"), mapping={"instruction": "a + b", "output": "c"})
    assert "a + b" in roles.shown_words(View(RunConfig(), MACHINE, report=plus)), "a column's own name is not parted"


def test_unknown_columns_are_proposed_with_samples_and_never_a_red_box() -> None:
    drawn = report_view(unread())
    assert 'role="alert"' not in drawn
    assert re.findall(r"<b>(.*?)</b>.*?chip\">(.*?)<", drawn) == [
        ("Customer Message", "question"),
        ("Agent Reply", "answer"),
    ]
    assert "&lt;b&gt;Where is it?" in drawn
    assert asked_by(drawn) == [{"use": True}]
    assert summary.start_words(unread()) == ("Confirm what the columns are", False)
    half = unread("prompt_completion", prompt="Customer Message", completion="")
    assert summary.start_words(half) == ("Which column is the answer?", False)
    assert 'data-do="roles"' not in report_view(half), "what a person began is not proposed otherwise"
    nothing = unread(guess=RoleGuess(layout=""))
    assert summary.start_words(nothing) == ("Which column is the question?", False)
    tree = replace(unread(), data_fault=DataError("data.tree"))
    assert 'role="alert"' in report_view(tree), "no word about the columns mends that"
    assert table.state_view(tree), "its rows are shown all the same"


def test_use_this_and_a_header_set_the_fields(handlers: Handlers, fake_data: FakeData) -> None:
    fake_data.error, fake_data.guess = UNKNOWN, GUESS
    said = look(handlers, **{"data.path": "/x/support.csv"})
    assert "Use this" in said["data-report"]
    assert said["start"]["interactive"] is False
    values = shown(handlers, **{"data.path": "/x/support.csv"})
    answer = handlers.data.role_given(Window(), told({"use": True}), *values)
    assert answer["field.data.layout"] == "prompt_completion"
    columns = {"prompt": "Customer Message", "completion": "Agent Reply", "system": ""}
    assert json.loads(answer["field.columns"]) == columns
    wish = {"column": "Agent Reply", "word": "chosen", "file": "/x/support.csv"}
    answer = handlers.data.role_given(Window(), told(wish), *values)
    assert answer["field.data.layout"] == "preference"
    chosen = shown(handlers, **{"columns": json.dumps(columns), "data.layout": "prompt_completion"})
    config = handlers.form.session(chosen, first()).config
    assert config.data.columns == columns
    other = shown(handlers, **{"columns": json.dumps(columns), "data.layout": "alpaca"})
    assert handlers.form.session(other, first()).config.data.columns == {"system": ""}, "a format chosen since"
    for foreign in ("{", "[1]", "3"):
        assert handlers.form.session(shown(handlers, columns=foreign), first()).config.data.columns == {}


# ── what the script is told, and what it asks ────────────────────────────────────────────────────────────────────────


@pytest.fixture
def client(studio: Studio) -> TestClient:
    app = FastAPI()
    answer_faults(app)
    app.include_router(table.routes(studio))
    return TestClient(app)


def state(drawn: str) -> dict[str, Any]:
    return json.loads(html.unescape(re.findall(r'data-state="([^"]*)"', drawn)[0]))


def test_the_script_is_told_what_it_asks_with(handlers: Handlers, client: TestClient, fake_data: FakeData) -> None:
    said = state(look(handlers)["data-rows"])
    assert said["words"] == {"instruction": "question", "output": "answer"}
    assert [code for code, *_ in said["findings"]] == ["exact_duplicates"]
    assert said["languages"] == ["English", "German"]
    assert RunConfig.model_validate(said["config"]).data == first().config.data
    wish = {"first": 300, "count": 2, "finding": "exact_duplicates"}
    answer = client.post("/studio/data/table", json={"config": said["config"], "wish": wish}).json()
    assert fake_data.asked[-1] == "table 300 exact_duplicates True", "the findings are those that the page shows"
    assert [row["row"] for row in answer["rows"]] == [301, 302]
    assert (answer["matching"], answer["rows_in_file"]) == (400, 400)
    row = client.post("/studio/data/row", json={"config": said["config"], "row": 301}).json()
    assert fake_data.asked[-1] == "preview [301]"
    assert row["cells"]["Agent Reply"] == "Here."
    assert "&lt;b&gt;Q&lt;/b&gt;" in row["seen"]


@pytest.mark.parametrize("wish", [{"first": -1}, {"count": 100_000}, {"order": "of the moon"}, {"more": 1}])
def test_a_wish_that_is_none_is_refused(client: TestClient, wish: dict[str, Any]) -> None:
    answer = client.post("/studio/data/table", json={"config": {}, "wish": wish})
    assert answer.status_code == 422
    assert "moon" not in answer.text


def test_a_row_that_cannot_be_rendered_says_why_in_its_place(
    studio: Studio, client: TestClient, fake_data: FakeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise DataError("data.template", reason="no <turns>")

    monkeypatch.setattr(fake_data, "preview", refused)
    config = first().config.model_dump(mode="json", exclude_defaults=True)
    answer = client.post("/studio/data/row", json={"config": config, "row": 1}).json()
    assert "no &lt;turns&gt;" in answer["seen"]
    assert answer["cells"]


def test_changes_go_to_the_file_and_the_run_gets_the_made_set(
    handlers: Handlers, client: TestClient, fake_data: FakeData, studio: Studio
) -> None:
    own = {"data": {"path": "/made/own.jsonl", "layout": "alpaca"}}
    change = {"rows": [4], "column": "output", "value": "<b>Other"}
    assert client.post("/studio/data/change", json={"config": own, "change": change}).json() == {"ok": True}
    for step in ("undo", "redo"):
        assert client.post(f"/studio/data/{step}", json={"config": own}).json() == {"ok": True}
    made = client.post("/studio/data/made", json={"config": own}).json()
    assert made == {"path": "/made/edited.jsonl"}
    assert fake_data.asked == [
        f"change own.jsonl {change | {'rows': (4,)}}",
        "undo own.jsonl",
        "redo own.jsonl",
        "changed own.jsonl",
    ]
    look(handlers, **{"data.path": "/made/own.jsonl"})
    answer = handlers.data.edited(Window(), told(made | {"file": "/made/own.jsonl"}), *shown(handlers))
    assert answer["field.data.path"] == "/made/edited.jsonl"
    said = state(look(handlers, **{"data.path": "/made/edited.jsonl", "data.layout": "alpaca"})["data-rows"])
    assert said["file"] == "/made/own.jsonl", "the table stays with the file and its changes"
    assert said["config"]["data"] == {"path": "/made/edited.jsonl", "layout": "alpaca"}
    origin = {"made": EDITED, "from": {"name": "<own>.jsonl"}, "edited": 1, "excluded": 2}
    drawn = origin_view(str(write_rows([{"text": "a"}], "x", origin, studio.locations).path))
    assert "&lt;own&gt;.jsonl with your changes: 1 row edited, 2 rows excluded. Your file is unchanged." in str(drawn)


@pytest.mark.parametrize("change", [{"rows": []}, {"rows": [0] * 100_001}, {"value": "x"}, {"rows": [1], "value": 3}])
def test_a_change_that_is_none_is_refused(client: TestClient, fake_data: FakeData, change: dict[str, Any]) -> None:
    assert client.post("/studio/data/change", json={"config": {}, "change": change}).status_code == 422
    assert fake_data.asked == []
