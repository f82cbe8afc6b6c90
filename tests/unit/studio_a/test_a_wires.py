"""New run's handlers without a browser: late looks, typed paths, and Start."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from made_window import FakeData, Window, made_wires, shown

from core.contract.config import RunConfig
from core.contract.errors import DataError, MachineError
from core.data.files.keep import KeptFile
from core.machine.locks import CardLock
from core.models.catalog import STARTER, find_model
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import read_asked
from studio.pages.new_run import cache as desk_module
from studio.pages.new_run import handlers as wires_module
from studio.pages.new_run import sheet as sheet_module
from studio.pages.new_run.cache import PageCache, View
from studio.pages.new_run.handlers import Handlers
from studio.pages.new_run.remembered import Remembered
from studio.services.services import Studio
from studio.services.session import first, sample_path
from studio.words.text import say


@pytest.fixture
def wires(studio: Studio) -> Handlers:
    return made_wires(studio)


def test_a_choice_made_while_a_look_runs_is_what_is_shown_in_the_end(
    wires: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, seen = wires.sheet.desk.read, []
    later = str(sample_path("chat"))

    def slow(config: RunConfig) -> View:
        if not seen:  # another file is chosen meanwhile; another window's choice must not count
            wires.edited(Window(), *shown(wires, **{"data.path": later}))
            wires.edited(Window("window-2"), *shown(wires, **{"data.path": str(sample_path("text"))}))
        seen.append(config.data.path)
        return read(config)

    monkeypatch.setattr(wires.sheet.desk, "read", slow)
    said = list(wires.looked(Window(), "", *shown(wires, **{"data.path": str(sample_path("instruction"))})))
    assert seen == [str(sample_path("instruction")), later]
    reports = [answer["data.report"] for answer in said if "data.report" in answer]
    assert "chat.jsonl" in reports[-1]
    assert not any("instruction.jsonl" in report for report in reports), "what was overtaken is not shown"


def test_looks_are_never_dropped(wires: Handlers) -> None:
    assert sheet_module.CHOICE["trigger_mode"] == "always_last"
    calls: list[dict[str, Any]] = []
    wires._look(lambda *_, **options: calls.append(options))
    assert calls[0]["trigger_mode"] == "always_last"


def test_a_typed_path_counts_once_and_a_home_is_written_out(wires: Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    file = "field.data.path"
    assert wires.typed(" ~/rows.jsonl ", *shown(wires))[file] == "/home/me/rows.jsonl"
    assert file not in wires.typed("~/rows.jsonl", *shown(wires, **{"data.path": "/home/me/rows.jsonl"}))
    assert file not in wires.typed("  ", *shown(wires))
    assert wires.typed("~nobody-of-this-name/x", *shown(wires))[file] == "~nobody-of-this-name/x"
    session = wires.form.session(shown(wires, **{"model.name": "~/models/x"}), first())
    assert (session.config.model.source, session.config.model.name) == ("folder", "/home/me/models/x")


@dataclass
class Store:
    """Runs by their draft id."""

    started: list[str]

    def start(self, config: RunConfig, draft_id: str) -> str:
        self.started.append(draft_id)
        return "2026-11-20_2243_test_k3f9"


@dataclass
class Figures:
    seconds: tuple[float, float] = (60.0, 120.0)


@dataclass
class Ready:
    """A prepared run; ``asked`` has its automatic values open."""

    config: RunConfig
    estimate: Figures = field(default_factory=Figures)

    @property
    def asked(self) -> RunConfig:
        return self.config


def test_the_same_start_twice_is_one_run_and_other_choices_are_another(
    wires: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store([])
    folder = JobFolder(wires.studio.locations.runs / "2026-11-20_2243_test_k3f9")
    folder.path.mkdir(parents=True)
    wires.studio.store = store  # type: ignore[assignment]
    monkeypatch.setattr(wires_module, "prepare", lambda config, *_: Ready(config))
    same = shown(wires)
    other = shown(wires, **{"train.learning_rate": 0.001})
    for values in (same, same, other):
        assert "/watch?run=" in list(wires.begin(Window(), "", *values))[-1][1]
    assert store.started[0] == store.started[1] != store.started[2]
    noted = read_asked(folder)
    assert noted is not None
    assert (noted.config.train.learning_rate, noted.seconds) == (0.001, (60.0, 120.0))


def test_start_says_that_it_adds_to_the_queue_while_a_run_has_the_card(wires: Handlers) -> None:
    locations, machine = wires.studio.locations, wires.studio.machine()
    values = shown(wires)
    free = wires.sheet.start_words(values)[0]
    card = CardLock(locations, machine.lock_name)
    assert card.acquire(wait=False, holder="2026-11-20_2243_test_k3f9")
    assert wires.sheet.start_words(values)[0].startswith("Add to queue")
    card.release()
    assert card.acquire(wait=False, holder="Try")  # it leaves when a run wants the card
    assert wires.sheet.start_words(values)[0] == free
    card.release()


def test_a_path_that_was_typed_but_not_read_is_not_passed_over(wires: Handlers) -> None:
    last = list(wires.begin(Window(), "/somewhere/else.jsonl", *shown(wires)))[-1]
    assert "Press Enter" in last[1]
    assert wires.studio.store is None, "nothing was asked to start"


@pytest.mark.parametrize("error", [MachineError("disk.full", "The disk is full.", ""), ValueError("unforeseen")])
def test_start_can_be_pressed_again_after_any_fault(
    wires: Handlers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(wires_module, "prepare", broken)
    button, line = list(wires.begin(Window(), "", *shown(wires)))[-1]
    assert button["interactive"] is True
    assert 'role="alert"' in line
    assert "unforeseen" not in line
    assert ("ValueError: unforeseen" in capsys.readouterr().err) == isinstance(error, ValueError)


def test_an_edit_shows_the_machine_as_it_is_now(wires: Handlers) -> None:
    answer = wires.edited(Window(), *shown(wires))
    assert set(answer) == {*wires.sheet.outputs(), "outcome"}
    assert answer["outcome"] == "", "a fault under Start was that of other choices"
    assert "12.0 GB of 16.0 GB memory free" in answer["machine"]


def test_a_model_that_was_downloaded_meanwhile_is_looked_at_again(
    studio: Studio, fake_data: FakeData, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The page must then read "on this machine"."""
    spec = find_model("starter", "starter").model_copy(update={"source": "hub", "name": "a/b", "folder": ""})
    here: list[str] = []
    found = lambda *_: spec.model_copy(update={"folder": here[0]}) if here else spec  # noqa: E731
    monkeypatch.setattr(desk_module, "find_model", found)
    monkeypatch.setattr(desk_module, "is_cached", lambda name: bool(here))
    config = first().with_values({"data.path": "", "model.source": "hub", "model.name": "a/b"}).config
    desk = PageCache(studio)
    seen = desk.look(config)
    assert seen.spec is not None
    assert not seen.spec.folder
    here.append(str(tmp_path))
    again = desk.look(config)
    assert again.spec is not None
    assert again.spec.folder == str(tmp_path)


def _looked_at(wires: Handlers, window: str, path: str) -> dict[Any, Any]:
    """All that the page shows in the end."""
    said: dict[Any, Any] = {}
    for answer in wires.looked(Window(window), "", *shown(wires, **{"data.path": path})):
        said |= answer
    return said


@pytest.fixture
def forgetful(wires: Handlers, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many answers a desk keeps that keeps few."""
    monkeypatch.setattr(wires.sheet.desk, "_known", Remembered(wires.sheet.desk._in_use, kept=12))
    return 12


def test_each_of_many_files_in_turn_is_answered(wires: Handlers, forgetful: int) -> None:
    """Two of 26 once waited for ever: the model was forgotten while it was looked at, having come first."""
    for number in range(forgetful // 2):
        said = _looked_at(wires, "window-1", f"/made/{number}.jsonl")
        assert say("summary.waiting") not in said["summary"], f"file {number}"
        assert said["start"]["interactive"], f"file {number}"


def test_what_a_window_shows_is_not_forgotten_for_another_window(wires: Handlers, forgetful: int) -> None:
    values = shown(wires)
    list(wires.looked(Window(), "", *values))
    for number in range(forgetful // 2):
        _looked_at(wires, "window-2", f"/made/{number}.jsonl")
    assert not wires.sheet.view(values, "window-1").waiting
    assert len(wires.sheet.desk._known) <= forgetful


@pytest.mark.parametrize("event", ["looked_again", "count_all", "examine_now", "probed"])
def test_an_open_page_is_answered_by_a_studio_that_knows_nothing_of_it(
    wires: Handlers, fake_data: FakeData, event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was started again beneath the page, or has forgotten; the edit asks for no look by itself."""
    monkeypatch.setattr(wires.sheet.desk, "_known", Remembered())
    monkeypatch.setattr("core.probe.client.probe", lambda *_: DataError("probe.none", "Nothing was probed.", ""))
    values = shown(wires, **{"train.learning_rate": 1e-4})
    assert say("summary.waiting") in wires.edited(Window(), *values)["summary"]
    handler = getattr({"looked_again": wires, "probed": wires.plan}.get(event, wires.data), event)
    said: dict[Any, Any] = {}
    for answer in handler(Window(), *([""] if event == "looked_again" else []), *values):
        said |= answer
    assert say("summary.waiting") not in said["summary"]
    asked = len(fake_data.asked)
    assert list(wires.looked_again(Window(), "", *values)) == [{"summary": gr.skip()}], "silence would empty the page"
    assert len(fake_data.asked) == asked


def test_a_fault_that_nobody_foresaw_is_an_answer(
    wires: Handlers, fake_data: FakeData, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fake_data, "facts", lambda *_, **__: {}["nothing"])
    said: dict[Any, Any] = {}
    for answer in wires.looked(Window(), "", *shown(wires)):
        said |= answer
    assert say("summary.waiting") not in said["summary"]
    assert say("work.fault") in said["data.report"] or not said["start"]["interactive"]
    assert "KeyError: 'nothing'" in capsys.readouterr().err


def _own_file(wires: Handlers, monkeypatch: pytest.MonkeyPatch, way: str, **fields: Any) -> dict[Any, Any]:
    """Chooses a file of one's own in one of the ways."""
    monkeypatch.setattr(wires_module, "taken", lambda *_: KeptFile(Path("/made/own.jsonl"), "ab" * 32, "own.jsonl", 9))
    values = shown(wires, **fields)
    if way == "made":
        return list(wires.data.made(Window(), json.dumps({"value": {"back": "/made/own.jsonl"}}), *values))[-1]
    return wires.typed("/made/own.jsonl", *values) if way == "typed" else wires.dropped("an-upload-of-mine", *values)


@pytest.mark.parametrize("way", ["typed", "dropped", "made"])
def test_a_file_of_ones_own_keeps_neither_length_nor_steps_of_the_demo(
    wires: Handlers, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """1,000 rows once got 60 steps at 256 tokens, while the form said 3 epochs."""
    answer = _own_file(wires, monkeypatch, way)
    config = RunConfig()
    assert answer["field.data.path"] == "/made/own.jsonl"
    assert answer["field.train.max_length"] == config.train.max_length
    assert (answer["field.train.max_steps"], answer["field.preset"], answer["outcome"]) == (0, None, "")
    assert set(answer) <= set(wires.sheet.another_file_outputs())
    own = _own_file(wires, monkeypatch, way, **{"train.max_length": 300, "train.max_steps": 70})
    assert not {"field.train.max_length", "field.train.max_steps"} & set(own), "what a person typed stays"
    assert "field.train.max_length" not in _own_file(wires, monkeypatch, way, preset="chat-style")
    assert "field.train.max_length" not in wires.sampled("chat", *shown(wires))


def test_the_form_says_that_fewer_steps_run_than_its_passes(wires: Handlers) -> None:
    said = _looked_at(wires, "window-1", "/made/own.jsonl")
    assert "Ends after 60 steps (1.2 of 3 epochs)" in said["train.ends"]
    assert "Run all epochs" in said["train.ends"]
    assert not wires.edited(Window(), *shown(wires, **{"data.path": str(sample_path("chat"))}))["train.ends"]
    assert not wires.edited(Window(), *shown(wires, **{"train.max_steps": 0}))["train.ends"]
    assert not wires.edited(Window(), *shown(wires, **{"train.max_steps": 5000}))["train.ends"]


def test_a_model_that_was_mended_is_looked_at_again(wires: Handlers, tmp_path: Path) -> None:
    values = shown(wires, **{"model.name": str(tmp_path / "model")})
    first_look = next(wires.looked(Window(), "", *values))
    assert "Look again" in first_look["model.about"]
    shutil.copytree(STARTER, tmp_path / "model")
    said = list(wires.looked_again(Window(), "", *values))
    assert "Look again" not in said[-1]["model.about"]


def test_another_windows_choices_do_not_go_in_silence_and_can_be_taken_back(wires: Handlers) -> None:
    """Two windows once overwrote each other's draft without a word."""
    first_window, second = Window("window-1"), Window("window-2")
    for window in (first_window, second):
        fields = dict(zip(wires.form.fields, wires.restored(window)[:-1], strict=True))
    hers, mine = fields | {"train.learning_rate": 0.001}, fields | {"train.weight_decay": 0.05}
    assert not wires.edited(second, *hers.values())["draft"], "nothing is lost yet"
    said = wires.edited(first_window, *mine.values())
    assert "Another window had chosen otherwise" in said["draft"]
    assert wires.drafts.load().config.train.weight_decay == 0.05
    back = dict(zip(wires.form.fields, wires.taken_back(first_window)[:-1], strict=True))
    assert (back["train.learning_rate"], back["train.weight_decay"]) == (0.001, fields["train.weight_decay"])
    assert "Undo" in wires.edited(first_window, *back.values())["draft"]
    wires.drafts.renew(wires.drafts.load())
    assert not wires.edited(first_window, *back.values())["draft"], "a run was started: it is in the history"


def test_a_window_keeps_what_its_fields_do_not_show(wires: Handlers) -> None:
    """A run that is run again elsewhere brings its own target modules; they are none of an older window's."""
    wires.restored(Window())
    values = shown(wires)
    again = first().config
    wires.drafts.redraft(
        again.model_copy(update={"lora": again.lora.model_copy(update={"target_modules": ("q_proj",)})})
    )
    wires.edited(Window(), *values)
    assert len(wires.drafts.load().config.lora.target_modules) == 7
