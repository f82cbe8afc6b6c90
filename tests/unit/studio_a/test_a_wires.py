"""New run's handlers without a browser: late looks, typed paths, and Start."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from made_window import FakeData, Window, made_wires, shown

from core.catalog import find_model
from core.contract.config import RunConfig
from core.contract.errors import MachineError
from core.runs.asked import read_asked
from core.runs.folder import JobFolder
from core.runs.locks import CardLock
from studio.house import Studio
from studio.pages.new_run import desk as desk_module
from studio.pages.new_run import sheet as sheet_module
from studio.pages.new_run import wires as wires_module
from studio.pages.new_run.desk import Desk, View
from studio.pages.new_run.wires import Wires
from studio.session import first, sample_path


@pytest.fixture
def wires(studio: Studio) -> Wires:
    return made_wires(studio)


def test_a_choice_made_while_a_look_runs_is_what_is_shown_in_the_end(
    wires: Wires, monkeypatch: pytest.MonkeyPatch
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


def test_looks_are_never_dropped(wires: Wires) -> None:
    assert sheet_module.CHOICE["trigger_mode"] == "always_last"
    calls: list[dict[str, Any]] = []
    wires._look(lambda *_, **options: calls.append(options))
    assert calls[0]["trigger_mode"] == "always_last"


def test_a_typed_path_counts_once_and_a_home_is_written_out(wires: Wires, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert wires.typed(" ~/rows.jsonl ", "/old")[0] == "/home/me/rows.jsonl"
    assert "value" not in wires.typed("~/rows.jsonl", "/home/me/rows.jsonl")[0]
    assert "value" not in wires.typed("  ", "/old")[0]
    assert wires.typed("~nobody-of-this-name/x", "")[0] == "~nobody-of-this-name/x"
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
    wires: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store([])
    folder = JobFolder(wires.studio.locations.runs / "2026-11-20_2243_test_k3f9")
    folder.path.mkdir(parents=True)
    wires.studio.store = store  # type: ignore[assignment]
    monkeypatch.setattr(wires_module, "prepare", lambda config, *_: Ready(config))
    same = shown(wires)
    other = shown(wires, **{"train.learning_rate": 0.001})
    for values in (same, same, other):
        assert "/watch?run=" in list(wires.begin("", *values))[-1][1]
    assert store.started[0] == store.started[1] != store.started[2]
    noted = read_asked(folder)
    assert noted is not None
    assert (noted.config.train.learning_rate, noted.seconds) == (0.001, (60.0, 120.0))


def test_start_says_that_it_adds_to_the_queue_while_a_run_has_the_card(wires: Wires) -> None:
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


def test_a_path_that_was_typed_but_not_read_is_not_passed_over(wires: Wires) -> None:
    last = list(wires.begin("/somewhere/else.jsonl", *shown(wires)))[-1]
    assert "Press Enter" in last[1]
    assert wires.studio.store is None, "nothing was asked to start"


@pytest.mark.parametrize("error", [MachineError("disk.full", "The disk is full.", ""), ValueError("unforeseen")])
def test_start_can_be_pressed_again_after_any_fault(
    wires: Wires, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(wires_module, "prepare", broken)
    button, line = list(wires.begin("", *shown(wires)))[-1]
    assert button["interactive"] is True
    assert 'role="alert"' in line
    assert "unforeseen" not in line
    assert ("ValueError: unforeseen" in capsys.readouterr().err) == isinstance(error, ValueError)


def test_an_edit_shows_the_machine_as_it_is_now(wires: Wires) -> None:
    answer = wires.edited(Window(), *shown(wires))
    assert set(answer) == set(wires.sheet.outputs())
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
    desk = Desk(studio)
    seen = desk.look(config)
    assert seen.spec is not None
    assert not seen.spec.folder
    here.append(str(tmp_path))
    again = desk.look(config)
    assert again.spec is not None
    assert again.spec.folder == str(tmp_path)
