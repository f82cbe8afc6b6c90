"""Try's routes beside its questions (``test_take_home_and_try_it.py``): loading ahead, other checkpoints, checks of
answers, and what stands of a run's chat."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_routes import FakeChat, Routes
from made_runs import RUN, MakeRun, past

from core.machine.cards import CardLock, CardSet
from core.report.choices import Check, ReportChoices, write_choices
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import dump_config
from studio.pages.try_it import page
from studio.services.chats import ChatClients

OTHER = "2026-11-19_1000_other_k3f9"


def lines(routes: Routes, path: str, **body: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in routes.client.post(f"/studio/{path}", json=body).text.splitlines()]


def asked(routes: Routes, **more: Any) -> list[dict[str, Any]]:
    return lines(routes, "ask", run=RUN, messages=[{"role": "user", "content": "Who are you?"}], **more)


def kept(folder: JobFolder, name: str = "step-000100") -> Path:
    """A checkpoint's folder with what is loaded of it."""
    adapter = folder.checkpoints / name / "adapter"
    (adapter / "adapter_config.json").write_text("{}")
    return adapter


@pytest.fixture
def run(make_run: MakeRun) -> JobFolder:
    return make_run(past(100, finished=True), checkpoints=(100,))


@pytest.fixture
def chat(routes: Routes) -> FakeChat:
    """The one model of this studio, which every checkpoint lies over and which takes three moments to load."""
    chat = FakeChat(RUN, loads=3, turns=True)
    routes.studio.chats = ChatClients(lambda folder, checkpoint: chat)  # type: ignore[arg-type,return-value]
    return chat


# ── loading ahead ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_model_is_loaded_before_it_is_asked_and_then_answers_at_once(
    routes: Routes, run: JobFolder, chat: FakeChat
) -> None:
    kept(run)
    assert lines(routes, "load", run=RUN) == [{"loading": 2.0}, {"loading": 1.0}, {"loading": 0.0}, {"ready": True}]
    assert [line for line in asked(routes) if "loading" in line] == []
    assert not chat.closed


def test_a_question_says_that_its_model_is_loaded_first(routes: Routes, run: JobFolder, chat: FakeChat) -> None:
    assert [line.get("loading") for line in asked(routes)[:4]] == [2.0, 1.0, 0.0, None]


def test_nothing_is_loaded_ahead_where_it_is_not_there_or_somebody_has_the_card(
    routes: Routes, run: JobFolder, chat: FakeChat, make_run: MakeRun, alive: Callable[[JobFolder], None]
) -> None:
    assert lines(routes, "load", run=RUN) == [], "no adapter in it"
    assert lines(routes, "load", run=RUN, checkpoint="step-000777") == []
    kept(run)
    card = CardLock(routes.studio.locations, CardSet())
    assert card.acquire(OTHER)
    assert lines(routes, "load", run=RUN) == []
    card.release()
    assert card.acquire("Try")
    assert lines(routes, "load", run=RUN)[-1] == {"ready": True}
    card.release()
    assert routes.client.post("/studio/load", json={"run": RUN, "checkpoint": "../x"}).status_code == 422


def test_a_page_that_goes_away_gives_the_loading_up(routes: Routes, run: JobFolder, chat: FakeChat) -> None:
    loading = routes.studio.chats.load(run, "best")
    assert next(loading) == {"loading": 2.0}
    loading.close()  # type: ignore[attr-defined]
    assert chat.loads == 2
    assert asked(routes)[-1]["done"], "the next one has its turn"


# ── columns ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_checkpoints_over_one_base_are_answered_by_one_child_and_others_change_it(
    routes: Routes, run: JobFolder, make_run: MakeRun
) -> None:
    make_run(past(100, finished=True), OTHER, checkpoints=(100,))
    chats: list[FakeChat] = []

    def begin(folder: JobFolder, checkpoint: str) -> FakeChat:
        chats.append(FakeChat(folder.name, turns=not chats))
        return chats[-1]

    routes.studio.chats = ChatClients(begin)  # type: ignore[arg-type]
    told = [lines(routes, "ask", run=one, messages=[{"role": "user", "content": "?"}], sides=["tuned"])[-1]["text"]
            for one in (RUN, OTHER, RUN)]  # fmt: skip
    assert told == [f"tuned of {one}" for one in (RUN, OTHER, RUN)]
    assert len(chats) == 1
    chats[0].turns = False
    asked(routes, checkpoint="step-000100")
    assert [chat.closed for chat in chats] == [True, False]


# ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_answers_to_a_held_out_row_get_the_reports_checks(routes: Routes, run: JobFolder) -> None:
    assert routes.get(f"run/{RUN}/chat")["checks"] == 0
    checks = (Check(name="Short", kind="length", most=3), Check(name="Right word", kind="contains"),
              Check(name="Of other data", kind="json", data="other.jsonl"))  # fmt: skip
    write_choices(routes.studio.locations, ReportChoices(checks=checks))
    assert routes.get(f"run/{RUN}/chat")["checks"] == 2
    said = {"reference": "gulls", "answers": ["He counts gulls.", "He keeps the light, always."]}
    first, second = routes.client.post(f"/studio/run/{RUN}/checks", json=said).json()
    assert [(mark["name"], mark["ok"]) for mark in first] == [("Short", True), ("Right word", True)]
    assert [(mark["name"], mark["ok"]) for mark in second] == [("Short", False), ("Right word", False)]
    assert second[0]["why"] == "It has 5 words."
    assert routes.client.post(f"/studio/run/{RUN}/checks", json={**said, "answers": ["x"] * 6}).status_code == 422


# ── what stands of a chat ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_chat_is_told_who_trains_instead_and_on_what(
    routes: Routes, run: JobFolder, make_run: MakeRun, alive: Callable[[JobFolder], None]
) -> None:
    free = routes.get(f"run/{RUN}/chat")
    assert (free["held"], free["holder"], free["device"]) == ("", "", "CPU")
    trains = make_run(past(10, total=20), OTHER, name="Gulls")
    alive(trains)
    card = CardLock(routes.studio.locations, CardSet())
    assert card.acquire(OTHER)
    held = routes.get(f"run/{RUN}/chat")
    assert held["holder"] == OTHER
    assert held["held"].startswith("“Gulls” is training on the CPU")
    assert routes.get(f"run/{OTHER}/chat")["held"] == "", "it answers itself"
    card.release()


def test_a_model_larger_than_the_card_is_said_to_answer_slowly(routes: Routes, run: JobFolder) -> None:
    assert routes.get(f"run/{RUN}/chat")["streamed"] == ""
    config = run.config()
    model = config.model.model_copy(update={"streamed_layers": 2})
    run.run_yaml.write_text(dump_config(config.model_copy(update={"model": model})), encoding="utf-8")
    assert "answers come slowly" in routes.get(f"run/{RUN}/chat")["streamed"]


def test_every_word_that_the_scripts_ask_for_is_sent_along() -> None:
    import html
    import re

    from core.machine.locations import ASSETS

    drawn = page.page(None)  # type: ignore[arg-type]
    words = json.loads(html.unescape(re.search(r'data-words="([^"]*)"', drawn)[1]))  # type: ignore[index]
    folder = ASSETS / "js" / "pages"
    scripts = "".join(path.read_text() for path in (folder / "try_it.js", *(folder / "try_it").glob("*.js")))
    named = set(re.findall(r"\bwords\.(\w+)", scripts)) | set(re.findall(r'\bwords\["([\w.]+)"\]', scripts))
    assert named - words.keys() == set()
    slots = set(re.findall(r'data-f="([\w-]+)"', drawn))
    assert set(re.findall(r'\bget\("([\w-]+)"\)', scripts)) <= slots
