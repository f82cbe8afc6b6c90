"""The command line: every command has short help, errors are one line, and what a person asked for happens."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.cli import COMMANDS, main
from core.contract import events
from core.contract.config import DataChoice, RunConfig
from core.contract.errors import ConfigError, RunError
from core.data.service import DataService
from core.follow import follow, say
from core.hardware import read_machine
from core.locations import ASSETS, Locations
from core.prepare import Prepared, prepare
from core.runs.log import EventWriter
from core.runs.run_yaml import read_config
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


@pytest.mark.parametrize("evil", ["\x1b[2J", "\x1b]52;c;cm0gLXJm\x07", "\x9b31m", "\r", "\u202e", "\udcff", "\u2028"])
def test_a_name_steers_no_terminal(tmp_path: Path, evil: str) -> None:
    code, _, err = run("estimate", f"{tmp_path}/ru{evil}n.yaml", "--home", str(tmp_path / "home"))
    assert code == 1
    assert "ru\ufffd" in err
    assert err.strip().encode("utf-8").decode().isprintable()


def test_a_terminal_without_our_letters_is_told_all_the_same(locations: Locations, tmp_path: Path) -> None:
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with redirect_stderr(narrow):
        assert main(["estimate", f"{tmp_path}/überall.yaml", "--home", str(tmp_path / "home")]) == 1
    narrow.flush()
    assert b"?berall.yaml" in narrow.buffer.getvalue()


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


@pytest.mark.parametrize("port", ["80", "0", "70000", "-1"])
def test_a_port_out_of_range_is_one_line(tmp_path: Path, port: str, capfd: pytest.CaptureFixture[str]) -> None:
    from studio.__main__ import main as open_studio

    assert open_studio([f"--port={port}", "--no-browser", "--home", str(tmp_path)]) == 1
    said = capfd.readouterr().err.strip()
    assert "1024 to 65535" in said
    assert "\n" not in said


def test_the_studio_says_a_home_that_is_a_file_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from studio.__main__ import main as open_studio

    (tmp_path / "file").touch()
    assert open_studio(["--no-browser", "--home", str(tmp_path / "file")]) == 1
    said = capfd.readouterr().err.strip()
    assert "file" in said
    assert "\n" not in said


@pytest.mark.parametrize("words", [("--checkpoint", "newest"), ("--name", "../x")])
def test_a_bad_export_option_is_one_line(locations: Locations, words: tuple[str, str]) -> None:
    code, _, err = run("export", "2026-01-01_0000_x_abcd", *words, "--home", str(locations.home))
    assert code == 1
    assert f"for {words[0]}, found {words[1]!r}" in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("text", ["name: 2026-13-45", "name: !!bool perhaps", "name: !!int x", "name: !!timestamp x"])
def test_a_scalar_that_yaml_cannot_make_is_said(tmp_path: Path, text: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="is not YAML"):
        read_config(file)


def test_faults_of_fields_and_between_them_are_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("data: {path: /a}\nlora: {r: -1, use_dora: true, bias: lora_only}\n")
    with pytest.raises(ConfigError) as caught:
        read_config(file)
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["lora.r", "lora.bias"]
    file.write_text("method: nothing\ndata: 5\n")
    with pytest.raises(ConfigError) as caught:
        read_config(file)
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["method", "data"]


def test_a_lost_run_says_how_to_go_on(locations: Locations, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunStore(locations).create(RunConfig(name="lost", data=DataChoice(path="/a.jsonl")))
    folder.events.touch()
    monkeypatch.setattr(RunStore, "resume", lambda *_: None)
    monkeypatch.setattr("core.follow.follow", lambda *_, **__: None)
    code, out, _ = run("resume", folder.name, "--home", str(locations.home))
    assert code == 1
    assert f"launcher.py resume {folder.name}" in out
    assert "worker.log" in out


def test_leaving_the_demo_says_that_the_run_goes_on(locations: Locations, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: object) -> None:
        raise KeyboardInterrupt

    spec = SimpleNamespace(title="M", shape=SimpleNamespace(parameters=1))
    sentences = {"report": SimpleNamespace(usable=1, reason=""), "estimate": SimpleNamespace(sentence="")}
    monkeypatch.setattr("core.demo.prepare", lambda *_: SimpleNamespace(config=None, spec=spec, **sentences))
    monkeypatch.setattr(RunStore, "start", lambda *_: "the-run")
    monkeypatch.setattr(RunStore, "living", lambda *_: ["the-run"])
    monkeypatch.setattr("core.demo._to_the_end", leave)
    code, out, _ = run("demo", "--home", str(locations.home))
    assert code == 130
    assert "launcher.py stop the-run" in out


def prepared(file: Path, locations: Locations, text: str) -> Prepared:
    (file.parent / "run.yaml").write_text(f"data: {{path: {file}}}\n{text}")
    service = DataService(locations)
    try:
        return prepare(read_config(file.parent / "run.yaml"), locations, service)
    finally:
        service.close()


def test_pairs_are_trained_as_pairs_and_it_is_said(locations: Locations, tmp_path: Path) -> None:
    pairs = tmp_path / "preference.jsonl"
    pairs.write_bytes((ASSETS / "samples" / "preference.jsonl").read_bytes())
    made = prepared(pairs, locations, "")
    assert made.config.method == "dpo"
    assert "method = dpo: preference data" in made.resolved_lines()


def test_dpo_without_pairs_is_one_line(locations: Locations, tmp_path: Path) -> None:
    rows = tmp_path / "instruction.jsonl"
    rows.write_bytes((ASSETS / "samples" / "instruction.jsonl").read_bytes())
    with pytest.raises(ConfigError, match="for method dpo, found") as caught:
        prepared(rows, locations, "method: dpo\n")
    assert "\n" not in str(caught.value)


def test_a_run_to_start_from_is_looked_for_before_anything_is_fetched(
    locations: Locations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(*_: object) -> None:
        raise AssertionError("the model was looked for")

    monkeypatch.setattr("core.prepare.find_model", fetched)
    bare = RunStore(locations).create(RunConfig(name="bare", data=DataChoice(path="/a.jsonl")))
    for name in ("2026-01-01_0000_x_abcd", "..", bare.name):
        with pytest.raises(RunError, match="with a checkpoint to start from"):
            prepared(tmp_path / "rows.jsonl", locations, f"resume_from: {name}\n")


def test_a_length_of_time_is_said_in_its_own_unit() -> None:
    from core.cli import _money, _span

    said = [_span(*pair) for pair in ((0.4, 0.9), (40, 100), (100, 280), (4000, 9000), (9e4, 3e5), (2e6, 4e6))]
    assert said == [
        "0.4 to 0.9 seconds", "40 to 100 seconds", "1.7 to 4.7 minutes", "1.1 to 2.5 hours", "1.0 to 3.5 days",
        "23 to 46 days",
    ]  # fmt: skip
    assert (_money(0.001, 0.004), _money(0.2, 1.5)) == ("less than 0.01", "0.20 to 1.50")


def test_the_parts_of_an_estimate_add_up_to_its_peak(locations: Locations, capsys: pytest.CaptureFixture[str]) -> None:
    file = locations.make().home / "run.yaml"
    file.write_text(f"data:\n  path: {ASSETS / 'samples' / 'chat.jsonl'}\n", encoding="utf-8")
    assert main(["estimate", str(file), "--home", str(locations.home)]) == 0
    parts = dict(re.findall(r"^(\w+) +([\d,]+\.\d) MiB", capsys.readouterr().out, re.MULTILINE))
    sizes = {key: float(size.replace(",", "")) for key, size in parts.items() if key != "disk"}
    peak = sizes.pop("peak")
    assert sum(sizes.values()) == pytest.approx(peak, abs=0.5)


def test_an_estimate_of_what_does_not_fit_says_what_would(
    locations: Locations, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(read_machine(), gpus=(), ram_total_bytes=2 << 30, ram_free_bytes=1200 << 20)
    monkeypatch.setattr("core.prepare.read_machine", lambda *_: small)
    file = locations.make().home / "run.yaml"
    text = f"data:\n  path: {ASSETS / 'samples' / 'text.txt'}\ntrain:\n  max_length: 1024\n  tokens_per_pass: 16384\n"
    file.write_text(text, encoding="utf-8")
    assert main(["estimate", str(file), "--home", str(locations.home)]) == 0
    said = capsys.readouterr().out
    assert "Too large" in said or "Tight" in said
    ways = [line for line in said.splitlines() if line.startswith("would fit")]
    assert ways
    assert all("train." in line or "model." in line for line in ways)
