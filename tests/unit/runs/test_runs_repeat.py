"""A run had again: its command line, its settings, its name, and the words of its state."""

import shlex
from pathlib import Path

import pytest
from living_runs import Config

from core.cli import commands as cli
from core.cli.follow import say
from core.contract.errors import ConfigError, RunError
from core.contract.events import Correction, Failed
from core.machine.locations import Locations
from core.runs.control.store import RunStore
from core.runs.folder.notes import rename
from core.runs.folder.run_yaml import command_line, dump_config, read_wish
from core.runs.log.events_log import EventWriter
from core.runs.record.job_record import effective_config
from core.runs.record.summary import summarise
from core.runs.record.words import STATE_WORDS
from tests.bare_run import bare_run

HALVED = Correction(key="train.learning_rate", old="0.0002", new="0.0001", reason="bad numbers")
SMALLER = Correction(key="train.tokens_per_pass", old="8192", new="4096", reason="out of memory")


def test_the_printed_command_line_repeats_the_run(tmp_path: Path, config: Config) -> None:
    file = tmp_path / "a folder's & $HOME" / "run.yaml"
    file.parent.mkdir()
    asked = config("quoted 'name'")
    file.write_text(dump_config(asked), encoding="utf-8")
    effective = effective_config(asked, (HALVED, SMALLER))
    line = command_line(Locations(tmp_path / "home of runs"), file, asked, effective)
    words = shlex.split(line)
    assert words[:2] == ["python3", "launcher.py"]
    chosen = cli._parser().parse_args(words[2:])
    assert read_wish(Path(chosen.file), chosen.set) == effective != asked
    assert chosen.home == str(tmp_path / "home of runs")


def test_a_printed_command_names_the_root_unless_it_is_found_without(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    elsewhere = f"python3 launcher.py stop a --home '{tmp_path}/of mine'"
    for variable in ("", str(tmp_path / "of mine"), str(tmp_path / "another")):
        monkeypatch.setenv("LUTHIER_HOME", variable)
        assert Locations.find(tmp_path / "of mine").command("stop", "a") == elsewhere
    assert "--home" in Locations.find(tmp_path / "luthier-studio").command("runs")  # the variable says another
    monkeypatch.setenv("LUTHIER_HOME", "")
    assert Locations.find().command() == "python3 launcher.py"
    line = command_line(Locations.find(), tmp_path / "run.yaml", config("a"), config("a"))
    assert line == f"python3 launcher.py train {tmp_path}/run.yaml", "a run that nothing corrected needs its file only"


@pytest.mark.parametrize("setting", ["train.learning_rate", "train.nothing=1", "train=1", "lora.r=0", "=1", "a.b.c=1"])
def test_a_setting_that_means_nothing_is_named(tmp_path: Path, config: Config, setting: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(dump_config(config("a")), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_wish(file, ["lora.r=0", setting])
    assert any("lora.r" in fault for fault in caught.value.problems)
    assert len(caught.value.problems) == (1 if setting == "lora.r=0" else 2)


def test_a_setting_mends_its_file_before_that_is_checked(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("lora: {r: -1}\ntrain:\n")
    settings = ["lora.r=8", "data.path=/a.jsonl", "train.packing=false", "name=b c", "data.columns.prompt=question"]
    read = read_wish(tmp_path / "run.yaml", settings)
    assert (read.lora.r, read.data.path, read.train.packing, read.name) == (8, "/a.jsonl", False, "b c")
    assert read.data.columns == {"prompt": "question"}


@pytest.mark.parametrize(
    ("given", "read"), [("a.jsonl", "{}/a.jsonl"), ("../b", "{}/../b"), ("/c", "/c"), ("~/d", "~/d")]
)
def test_a_data_path_counts_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, read: str
) -> None:
    (tmp_path / "run.yaml").write_text(f"data: {{path: {given}}}")
    monkeypatch.chdir(tmp_path.parent)
    assert read_wish(Path(tmp_path.name, "run.yaml")).data.path == read.format(tmp_path)
    assert read_wish(Path(tmp_path.name, "run.yaml"), ["data.path=x"]).data.path == "x"  # typed here, so from here


def test_a_run_is_renamed_and_named_by_itself_again(store: RunStore, config: Config) -> None:
    folder = bare_run(store, config("first"))
    assert summarise(folder).name == "first"
    assert rename(folder, "  Cook,\n second try ") == "Cook, second try"
    assert summarise(folder).name == "Cook, second try"
    assert folder.config().name == "first"  # run.yaml is written once
    rename(folder, "")
    assert summarise(folder).name == ""
    with pytest.raises(RunError):
        rename(folder, "x" * 200)


def test_a_failure_stands_in_the_list_with_its_cause_and_cure(store: RunStore, config: Config) -> None:
    folder = bare_run(store, config("a"))
    EventWriter(folder.events, 1).write(
        Failed(code="memory.gpu", message="The card's memory is full.", hint="Choose less.")
    )
    (run,) = store.list()
    assert run.failure is not None
    assert (run.failure.code, run.failure.message, run.failure.hint) == (
        "memory.gpu",
        "The card's memory is full.",
        "Choose less.",
    )
    assert say(Failed(message="No.", hint="Do.")).startswith(STATE_WORDS["failed"].lower())


@pytest.mark.parametrize("new", ["<img src=x>", "-4", "[]"])
def test_a_correction_that_cannot_be_used_leaves_the_run_to_be_shown(config: Config, new: str) -> None:
    asked = config("a")
    odd = SMALLER.model_copy(update={"new": new})
    assert effective_config(asked, (odd, HALVED)) == effective_config(asked, (HALVED,))
    assert effective_config(asked, (HALVED,)) != asked
