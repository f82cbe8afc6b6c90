"""The command line: every command has short help, errors are one line, and what a person asked for happens."""

import io
import json
import re
import shutil
import socket
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.cli.commands import COMMANDS, main
from core.cli.follow import follow, say
from core.contract import events
from core.contract.config import DataChoice, LoraChoice, ModelChoice, RunConfig
from core.contract.errors import ConfigError, RunError
from core.contract.estimate import Probe
from core.data.service.data_service import DataService
from core.estimate import train_rows
from core.machine.hardware import read_machine
from core.machine.locations import ASSETS, REPOSITORY, Locations
from core.runs.control.prepare import Prepared, prepare
from core.runs.control.store import RunStore
from core.runs.folder.held_out_rows import Draw, draw_path, write_draw
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import read_wish
from core.runs.log.events_log import EventWriter
from studio.__main__ import main as open_studio
from tests.bare_run import bare_run

Prepare = Callable[[Path, str], Prepared]


def run(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as leaving:
            code = int(leaving.code or 0)
    return code, out.getvalue(), err.getvalue()


def test_readme_names_each_command_once() -> None:
    _, _, listed = (REPOSITORY / "README.md").read_text("utf-8").partition("The same without a browser:")
    named = re.findall(r"^    python3 launcher\.py (\w+)", listed.partition("## Words")[0], re.MULTILINE)
    assert sorted(named) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_complete_and_short(command: str) -> None:
    code, out, _ = run(command, "--help")
    assert code == 0
    assert "--home" in out
    assert COMMANDS[command].about.split(";")[0].split("\n")[0][:30] in " ".join(out.split())
    assert len(out.splitlines()) <= 25


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--port={taken}"], "--port"),
     *(([f"--port={port}"], "1024 to 65535") for port in (80, 0, 70000, -1)),
     (["--home={file}"], "file")],
)  # fmt: skip
def test_a_studio_that_cannot_open_says_it_in_one_line(
    words: list[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        filled = [word.format(taken=port, file=tmp_path / "file") for word in words]
        assert open_studio(["--no-browser", "--home", str(tmp_path), *filled]) == 1
    line = capfd.readouterr().err.strip()
    assert said in line
    assert (port in line) == ("{taken}" in words[0])
    assert "\n" not in line


def test_runs_of_an_empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run("runs", "--home", str(tmp_path))
    assert (code, list(tmp_path.iterdir())) == (0, [])
    assert "No runs yet" in out
    monkeypatch.setenv("HOME", str(tmp_path))  # nobody has named this one, and it need not stand
    monkeypatch.delenv("LUTHIER_HOME")
    assert run("runs")[0] == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words", [("runs",), *((verb, "a") for verb in ("stop", "resume", "export")), ("doctor", "--revoke")]
)
@pytest.mark.parametrize("named", ["option", "variable"])
def test_a_mistyped_home_is_said_and_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], named: str
) -> None:
    wrong = tmp_path / "ruuns"
    monkeypatch.setenv("LUTHIER_HOME", str(wrong if named == "variable" else tmp_path))
    code, out, err = run(*words, *(("--home", str(wrong)) if named == "option" else ()))
    assert (code, out) == (1, "")
    assert f"Expected a folder with runs at {wrong}, found no such folder." in err
    assert ("Check --home" if named == "option" else "Check LUTHIER_HOME=") in err
    assert not wrong.exists()


@pytest.mark.parametrize("words", [("doctor",), ("doctor", "--json"), ("explain",), ("explain", "rank")])
@pytest.mark.parametrize("named", ["option", "variable"])
def test_what_tells_nothing_of_a_home_needs_none_and_makes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], named: str
) -> None:
    """As before the first start, with a home chosen in advance."""
    coming = tmp_path / "disk" / "coming"
    monkeypatch.setenv("LUTHIER_HOME", str(coming if named == "variable" else tmp_path))
    code, out, err = run(*words, *(("--home", str(coming)) if named == "option" else ()))
    assert code == 0 or words[0] == "doctor"  # 1 where it finds a fault of this machine
    assert out
    assert "no such folder" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_begins_something_says_that_its_home_is_new(tmp_path: Path) -> None:
    new = tmp_path / "new"
    file = tmp_path / "run.yaml"
    assert run("estimate", str(file), "--home", str(new))[2].startswith("Expected a run file")
    assert not new.exists()
    file.write_text("data: {path: none.jsonl}")
    assert run("estimate", str(file), "--home", str(new))[2].startswith(f"The folder {new} is new")
    assert run("estimate", str(file), "--home", str(new))[2].startswith("Expected a data file")


class Closed(io.StringIO):
    """A pipe whose reader has left."""

    def write(self, text: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise BrokenPipeError


def test_output_that_nobody_reads_on_ends_the_command_quietly(tmp_path: Path) -> None:
    err = io.StringIO()
    with redirect_stdout(Closed()), redirect_stderr(err):
        assert main(["runs", "--home", str(tmp_path)]) == 141
    assert err.getvalue() == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train", "a.yaml", "--set", "name=\udcff"), "Expected words in UTF-8"),  # no file of ours can hold it
        (("stop", "nothing"), "nothing"),
        (("export", "../../etc"), "etc"),
        (("resume", "2026-01-01_0000_x_abcd"), "x_abcd"),
        (("export", "2026-01-01_0000_x_abcd", "--checkpoint", "newest"), "for --checkpoint, found 'newest'"),
        (("export", "2026-01-01_0000_x_abcd", "--form", "adapter", "--importance"), "(none), found --importance"),
        (("export", "2026-01-01_0000_x_abcd", "--name", "../x"), "for --name, found '../x'"),
        (("explain", "rnak"), "Near: rank."),
        (("explain", "system"), "data.system_prompt"),
        (("explain", "max"), "max-length"),
        (("explain", "qqqqqq"), "all of them are listed"),
    ],
)
def test_what_cannot_be_obeyed_is_one_line(locations: Locations, words: tuple[str, ...], said: str) -> None:
    code, out, err = run(*words, "--home", str(locations.home))
    assert (code, out, said in err) == (1, "", True)
    assert len(err.strip().splitlines()) == 1


BOTH = "lora: {r: -1, use_dora: true, bias: lora_only}\n"


@pytest.mark.parametrize("command", ["train", "estimate"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("data: {pth: /a}\nlora: {r: -1}\n", ["2 faults", "Did you mean 'path'?"]),
        (f"data: {{path: /a}}\n{BOTH}", ["2 faults", "  - lora.r: ", "  - lora.bias: "]),  # of fields, and between them
        ("method: nothing\ndata: 5\n", ["2 faults", "  - method: ", "  - data: "]),
        ("data: {path: /a}\ntrain: {num_train_epochs: 1.0e-12}\n", ["  - train.num_train_epochs: "]),
        ("name: 2026-13-45", ["is not YAML"]),  # a scalar that YAML itself cannot make
        ("name: !!bool perhaps", ["is not YAML"]),
        ("name: !!int x", ["is not YAML"]),
    ],
)
def test_every_fault_of_a_yaml_is_said_and_nothing_starts(
    tmp_path: Path, command: str, text: str, said: list[str]
) -> None:
    (tmp_path / "run.yaml").write_text(text)
    code, out, err = run(command, str(tmp_path / "run.yaml"), "--home", str(tmp_path / "home"))
    assert (code, out, "Traceback" in err) == (1, "", False)
    assert [words for words in said if words not in err] == []
    assert not (tmp_path / "home").exists()


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
    folder = bare_run(RunStore(locations), RunConfig(name="told", data=DataChoice(path="/a.jsonl")))
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


def test_every_event_that_a_person_should_hear_has_words() -> None:
    silent = (events.Hello(), events.Sample(), events.Resumed(), events.Starting())
    assert [say(event) for event in silent] == [""] * len(silent)
    assert say(events.Failed(message="No.", hint="Do.")) == "failed    No. Do."
    assert say(events.Note(text="Plain path.", hint="sudo apt install gcc python3-dev")).endswith("python3-dev")


def test_following_a_lost_run_ends_and_says_how_to_go_on(locations: Locations, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = bare_run(RunStore(locations), RunConfig(name="lost", data=DataChoice(path="/a.jsonl")))
    folder.events.touch()
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr("core.cli.follow.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("core.cli.follow.time.sleep", lambda _: None)
    monkeypatch.setattr(RunStore, "resume", lambda *_: None)
    monkeypatch.setattr(RunStore, "record", lambda *_: SimpleNamespace(state="lost"))
    code, out, _ = run("resume", folder.name, "--home", str(locations.home))
    assert code == 1
    assert f"launcher.py resume {folder.name} --home {locations.home}" in out
    assert "worker.log" in out


def test_leaving_the_demo_says_that_the_run_goes_on(locations: Locations, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: object) -> None:
        raise KeyboardInterrupt

    spec = SimpleNamespace(title="M", shape=SimpleNamespace(parameters=1))
    sentences = {"data_lines": tuple, "estimate": SimpleNamespace(sentence="")}
    monkeypatch.setattr("core.cli.demo.prepare", lambda *_: SimpleNamespace(config=None, spec=spec, **sentences))
    monkeypatch.setattr(RunStore, "start", lambda *_: "the-run")
    monkeypatch.setattr(RunStore, "living", lambda *_: ["the-run"])
    monkeypatch.setattr("core.cli.demo._to_the_end", leave)
    code, out, _ = run("demo", "--home", str(locations.home))
    assert code == 130
    assert f"launcher.py stop the-run --home {locations.home}" in out


def test_the_demo_asks_the_rows_of_its_runs_own_draw_and_leaves_nothing_at_another_home(tmp_path: Path) -> None:
    from core.cli.demo import _held_out, demo_config

    folder = JobFolder(tmp_path)
    assert not _held_out(folder, demo_config())
    draw = Draw(rows=40, tokens_sha256="a", held_out=[1, 4], order_sha256="b", numbers=[2, 5])
    write_draw(draw_path(folder.path), draw)
    assert [example.row for example in _held_out(folder, demo_config())] == [2, 5]
    assert not list(Locations.find().home.iterdir())


def sample(name: str, folder: Path) -> Path:
    """A copy of one of the samples."""
    return Path(shutil.copy(ASSETS / "samples" / f"{name}.jsonl", folder))


@pytest.fixture
def prepared(service: DataService, locations: Locations) -> Prepare:
    def ready(file: Path, text: str) -> Prepared:
        (file.parent / "run.yaml").write_text(f"data: {{path: {file}}}\n{text}")
        return prepare(read_wish(file.parent / "run.yaml"), locations, service)

    return ready


def test_modules_that_the_model_lacks_are_named_before_anything_is_read(
    locations: Locations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.yaml").write_text("data: {path: none.jsonl}\n")
    for given in ("[foo]", "[q_proj, foo]", "[self_attn, norm]"):
        code, _, err = run("estimate", str(tmp_path / "run.yaml"), "--set", f"lora.target_modules={given}")
        assert code == 1
        assert "Expected lora.target_modules that " in err
        assert "It has " in err
        assert "q_proj" in err.partition("It has ")[2]
        assert len(err.splitlines()) == 1
    code, _, err = run("estimate", str(tmp_path / "run.yaml"), "--set", "lora.target_modules=[q_proj, lm_head]")
    assert "none.jsonl" in err  # these it has, so that the file is looked for


def test_pairs_are_trained_as_pairs_or_as_a_method_was_chosen_and_it_is_said(prepared: Prepare, tmp_path: Path) -> None:
    pairs = sample("preference", tmp_path)
    made, chosen = prepared(pairs, ""), prepared(pairs, "method: sft\n")
    assert (made.config.method, made.asked.method, chosen.config.method) == ("dpo", "auto", "sft")
    assert "method = dpo: preference data" in made.resolved_lines()
    lengths, others = made.facts.lengths, made.facts.others
    assert all(0 < other <= length for other, length in zip(others, lengths, strict=True))
    share = train_rows(made.config, made.facts) / len(lengths)  # as the run's plan counts them: both sides, one prompt
    both = sum(lengths) + sum(others)
    prompts = (both - sum(made.facts.trained)) // 2
    assert prompts > len(lengths)
    assert made.estimate.tokens_per_epoch == pytest.approx((both - prompts + len(lengths)) * share, abs=1)
    assert sum(chosen.facts.trained) < sum(made.facts.trained)
    assert chosen.data_lines()[-1].startswith("Method sft: the chosen answer of each pair is trained")
    assert not any(line.startswith("method =") for line in chosen.resolved_lines())
    with pytest.raises(ConfigError, match="fault") as caught:  # told before anything is loaded, once the rows are known
        prepared(pairs, "lora: {bias: lora_only}\n")
    assert "method dpo compares with the base" in str(caught.value.problems)
    with pytest.raises(ConfigError, match="for method dpo, found") as caught:
        prepared(sample("instruction", tmp_path), "method: dpo\n")
    assert "\n" not in str(caught.value)


def test_a_run_to_start_from_is_looked_for_before_anything_is_fetched(
    prepared: Prepare, locations: Locations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(*_: object) -> None:
        raise AssertionError("the model was looked for")

    monkeypatch.setattr("core.runs.control.prepare.find_model", fetched)
    bare = bare_run(RunStore(locations), RunConfig(name="bare", data=DataChoice(path="/a.jsonl")))
    for name in ("2026-01-01_0000_x_abcd", "..", bare.name):
        with pytest.raises(RunError, match="with a checkpoint to start from"):
            prepared(tmp_path / "rows.jsonl", f"resume_from: {name}\n")


def test_a_run_that_goes_on_from_another_has_its_adapters_shape(
    prepared: Prepare, locations: Locations, tmp_path: Path
) -> None:
    rows = sample("instruction", tmp_path)
    lora = LoraChoice(init_lora_weights="pissa_niter_16", loraplus_lr_ratio=16.0)
    scaled = ModelChoice(rope_scaling="yarn", rope_factor=2.0)
    told = RunConfig(name="earlier", data=DataChoice(path="/a.jsonl"), lora=lora, model=scaled)
    earlier = bare_run(RunStore(locations), told)
    adapter = earlier.checkpoints / "step-000010" / "adapter"
    adapter.mkdir(parents=True)
    (adapter.parent / "MANIFEST.json").write_text("{}")
    (adapter / "adapter_config.json").write_text(json.dumps({"r": 4, "lora_alpha": 32, "target_modules": ["qkv_proj"]}))
    asked = f"resume_from: {earlier.name}\n"
    made = prepared(rows, asked)
    assert (made.config.lora.r, made.config.lora.lora_alpha) == (4, 32)
    assert (made.config.lora.has_start, made.config.lora.loraplus_lr_ratio) == (False, 0.0), "no part of its adapter"
    assert f"lora.r = 4: as in {earlier.name}, which this run goes on from" in made.resolved_lines()
    assert (made.config.model.rope_scaling, made.config.model.rope_factor) == ("yarn", 2.0), "it learned beside these"
    assert prepared(rows, f"{asked}model: {{rope_scaling: none}}\n").config.model.rope_scaling == "none"
    assert prepared(rows, f"{asked}lora: {{r: 4}}\n").config.lora == made.config.lora
    with pytest.raises(RunError, match=r"as it is \(lora.r 4\), found lora.r 8") as caught:
        prepared(rows, f"{asked}lora: {{r: 8}}\n")
    assert "\n" not in str(caught.value)


def test_a_length_of_time_is_said_in_its_own_unit() -> None:
    from core.cli.forecast import length_of_time

    said = [length_of_time(*pair) for pair in ((0.4, 0.9), (40, 100), (100, 280), (4000, 9000), (9e4, 3e5), (2e6, 4e6))]
    assert said == [
        "0.4 to 0.9 seconds", "40 to 100 seconds", "1.7 to 4.7 minutes", "1.1 to 2.5 hours", "1.0 to 3.5 days",
        "23 to 46 days",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def halved(service: DataService, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Of these rows every other one is marked false, and one column means nothing to us."""
    folder = tmp_path_factory.mktemp("halved")
    rows = [{"prompt": f"q{n}", "completion": f"a{n}", "label": n % 2 == 0, "topic": "x"} for n in range(40)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "run.yaml").write_text("method: sft\ndata: {path: rows.jsonl}\n", encoding="utf-8")
    locations = Locations.find(folder / "home").make()
    return prepare(read_wish(folder / "run.yaml"), locations, service)


@pytest.fixture
def ready(halved: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.cli.commands._prepared", lambda *_: halved)
    monkeypatch.setattr(RunStore, "start", lambda store, config: bare_run(store, config).name)


@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize("command", ["estimate", "train"])
def test_it_is_said_how_the_data_was_read(command: str) -> None:
    code, out, err = run(command, "run.yaml", *(["--detach"] if command == "train" else []))
    assert (code, err) == (0, "")
    for said in ("Read as ", "20 of 40 rows can be trained on.", "20 rows are left out: ", "topic"):
        assert said in out
    if command == "train":
        assert out.index("20 of 40 rows") < out.index("run  ")
        return
    parts = dict(re.findall(r"^(\w+) +([\d,]+\.\d) MiB", out, re.MULTILINE))
    sizes = {key: float(size.replace(",", "")) for key, size in parts.items() if key != "disk"}
    assert sum(sizes.values()) - sizes["peak"] == pytest.approx(sizes["peak"], abs=0.5), "they add up to the peak"


@pytest.mark.usefixtures("ready")
def test_a_run_an_estimate_and_the_doctors_findings_as_json(locations: Locations) -> None:
    code, out, err = run("train", "run.yaml", "--detach", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert RunStore(locations).open(told["run_id"]).path == Path(told["folder"])
    assert told["config"]["data"]["layout"] == told["data"]["layout"] == "kto"
    told = json.loads(run("estimate", "run.yaml", "--json")[1])
    assert sum(term["at_peak"] for term in told["estimate"]["terms"]) == told["estimate"]["peak_bytes"]
    assert (told["data"]["usable"], set(told)) == (20, {"config", "resolved", "data", "estimate", "would_fit"})
    assert set(json.loads(run("doctor", "--json")[1])[0]) == {"level", "code", "text", "action"}


def test_a_followed_run_is_told_as_json_lines(
    locations: Locations, monkeypatch: pytest.MonkeyPatch, halved: Prepared
) -> None:
    def start(store: RunStore, config: RunConfig) -> str:
        folder = bare_run(store, config)
        writer = EventWriter(folder.events, 1)
        for event in (events.Step(step=1, loss=2.5), events.Step(step=2), events.Finished(step=2)):
            writer.write(event)
        return folder.name

    monkeypatch.setattr("core.cli.commands._prepared", lambda *_: halved)
    monkeypatch.setattr(RunStore, "start", start)
    code, out, err = run("train", "run.yaml", "--json")
    kinds = [json.loads(line).get("kind") for line in out.splitlines()]
    assert (code, kinds) == (0, [None, "step", "step", "finished"])
    assert err.startswith("folder  ")


@pytest.mark.usefixtures("served")
def test_a_data_file_alone_gets_settings_for_its_rows_with_why(tmp_path: Path) -> None:
    """As the window proposes them; what is said by hand stays."""
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"Say {n}", "completion": f"{n} " * 90}) + "\n" for n in range(60)))
    words = ("estimate", str(file), "--home", str(tmp_path / "home"), "--set", "lora.r=8")
    code, said, _ = run(*words)
    assert code == 0
    assert "train.num_train_epochs = 5: 57 rows have to be seen several times" in said
    assert "lora.lora_alpha = 16: twice the rank" in said
    assert "lora.r =" not in said, "it was set"
    assert re.search(r"train.max_length = \d+: no row is longer", said)
    told = json.loads(run(*words, "--json")[1])
    assert (told["config"]["lora"]["r"], told["config"]["train"]["num_train_epochs"]) == (8, 5.0)
    code, _, err = run(*words, "--set", "lora.rank=8")
    assert (code, "no such field" in err) == (1, True)


def test_an_estimate_of_what_does_not_fit_says_what_would(
    locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(read_machine(), gpus=(), ram_total_bytes=2 << 30, ram_free_bytes=1200 << 20)
    monkeypatch.setattr("core.runs.control.prepare.read_machine", lambda *_: small)
    file = locations.home / "run.yaml"
    file.write_text(f"data: {{path: {ASSETS}/samples/text.txt}}\ntrain: {{max_length: 1024, tokens_per_pass: 16384}}\n")
    code, said, _ = run("estimate", str(file))
    assert code == 0
    assert "Too large" in said or "Tight" in said
    ways = [line for line in said.splitlines() if line.startswith("would fit")]
    assert ways
    assert all("train." in line or "model." in line for line in ways)


@pytest.mark.usefixtures("ready")
def test_a_probe_on_the_cpu_compares_whole_processes(halved: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Probe(peak_bytes=900 << 20, reserved_bytes=900 << 20, seconds_per_step=0.5, tokens_per_second=9.0,
                  spilled=False, steps=3)  # fmt: skip
    monkeypatch.setattr("core.proof.probe.client.probe", lambda *_: measured)
    monkeypatch.setattr(
        "core.cli.commands._prepared", lambda *_: replace(halved, machine=replace(halved.machine, gpus=()))
    )
    out = run("probe", "run.yaml")[1]
    planned = f"{halved.estimate.peak_bytes / 2**20:,.1f} MiB"
    assert re.search(r"900\.0 MiB   of the whole process; planned +" + re.escape(planned), out)
    assert "by tensors" not in out


def test_a_recipe_is_imported_and_no_file_is_written_over(tmp_path: Path) -> None:
    recipe, out = tmp_path / "lora.yml", tmp_path / "mine.yaml"
    recipe.write_text("base_model: a/b\nadapter: lora\nlora_r: 4\nsequence_len: 64\nfsdp: {a: 1}\n")
    code, said, _ = run("import", str(recipe), "--out", str(out))
    assert code == 0
    assert re.search(r"^taken +lora_r: 4 → lora.r = 4$", said, re.MULTILINE)
    assert re.search(r"^LOST +fsdp: ", said, re.MULTILINE)
    assert f"train {out}" in said
    code, _, err = run("import", str(recipe), "--out", str(out))
    assert (code, "stands already" in err) == (1, True)
