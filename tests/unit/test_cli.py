"""The command line: every command has short help, errors are one line, and what a person asked for happens."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from core.cli import COMMANDS, main
from core.contract import events
from core.contract.config import DataChoice, RunConfig
from core.follow import follow, say
from core.locations import Locations
from core.runs.log import EventWriter
from core.runs.store import RunStore


def run(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as leaving:
            code = int(leaving.code or 0)
    return code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_complete_and_short(command: str) -> None:
    code, out, _ = run(command, "--help")
    assert code == 0
    assert "--home" in out
    assert COMMANDS[command].about.split(";")[0].split("\n")[0][:30] in " ".join(out.split())
    assert len(out.splitlines()) <= 25


def test_the_studio_says_a_taken_port_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import socket

    from studio.__main__ import main as open_studio

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert open_studio(["--port", str(port), "--no-browser", "--home", str(tmp_path)]) == 1
    said = capfd.readouterr().err.strip()
    assert str(port) in said
    assert "--port" in said
    assert "\n" not in said


def test_runs_of_an_empty_home(tmp_path: Path) -> None:
    code, out, _ = run("runs", "--home", str(tmp_path / "fresh"))
    assert code == 0
    assert "No runs yet" in out


def test_the_doctor_answers(tmp_path: Path) -> None:
    code, out, _ = run("doctor", "--home", str(tmp_path))
    assert code in (0, 1)
    assert "memory" in out


def test_every_fault_of_a_yaml_is_said_and_nothing_starts(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("data: {pth: /a}\nlora: {r: -1}\n")
    for command in ("train", "estimate"):
        code, out, err = run(command, str(file), "--home", str(tmp_path / "home"))
        assert (code, out) == (1, "")
        assert "2 faults" in err
        assert "Did you mean 'path'?" in err
        assert "Traceback" not in err
    assert RunStore(Locations.find(tmp_path / "home")).list() == []


@pytest.mark.parametrize("words", [("stop", "nothing"), ("export", "../../etc"), ("resume", "2026-01-01_0000_x_abcd")])
def test_an_unknown_run_is_one_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    code, _, err = run(*words, "--home", str(tmp_path))
    assert code == 1
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err


def test_following_tells_a_run_and_ends_with_it(locations: Locations) -> None:
    folder = RunStore(locations).create(RunConfig(name="told", data=DataChoice(path="/a.jsonl")))
    writer = EventWriter(folder.events, 1)
    for event in (
        events.Stage(stage="loading", text="Loading"),
        events.Plan(lines=("one", "two")),
        events.Step(step=1, loss=2.5, tokens_per_second=1234.0),
        events.Step(step=2),
        events.Checkpoint(step=2, name="step-000002", best=True),
        events.Finished(step=2),
    ):
        writer.write(event)
    lines: list[str] = []
    last = follow(folder, lines.append, lambda: True)
    assert isinstance(last, events.Finished)
    text = "\n".join(lines)
    assert "loss 2.5000" in text
    assert "1,234 tokens/s" in text
    assert "loss –" in text  # unknown is never 0
    assert "step-000002 (best so far)" in text


def test_following_a_lost_run_comes_back(locations: Locations, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunStore(locations).create(RunConfig(name="lost", data=DataChoice(path="/a.jsonl")))
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr("core.follow.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("core.follow.time.sleep", lambda _: None)
    assert follow(folder, lambda _: None, lambda: True) is None


def test_every_event_that_a_person_should_hear_has_words() -> None:
    silent = (events.Hello(), events.Sample(), events.Resumed(), events.Starting())
    assert [say(event) for event in silent] == [""] * len(silent)
    assert say(events.Failed(message="No.", hint="Do.")) == "failed    No. Do."
    assert say(events.Note(text="Plain path.", hint="sudo apt install gcc python3-dev")).endswith("python3-dev")
