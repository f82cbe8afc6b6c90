"""A run had again: its command line, its settings, its name, and the words of its state."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from core import cli
from core.contract.config import RunConfig
from core.contract.errors import ConfigError, RunError
from core.contract.events import Correction, Failed
from core.follow import say
from core.runs.log import EventWriter
from core.runs.names import rename
from core.runs.record import effective_config
from core.runs.repeat import command_line, flat, with_settings
from core.runs.run_yaml import dump_config, read_config
from core.runs.store import RunStore
from core.runs.summary import summarise
from core.runs.words import STATE_WORDS

Config = Callable[[str], RunConfig]
HALVED = Correction(key="train.learning_rate", old="0.0002", new="0.0001", reason="bad numbers")
SMALLER = Correction(key="train.tokens_per_pass", old="8192", new="4096", reason="out of memory")


def test_the_printed_command_line_repeats_the_run(tmp_path: Path, config: Config) -> None:
    file = tmp_path / "a folder's & $HOME" / "run.yaml"
    file.parent.mkdir()
    asked = config("quoted 'name'")
    file.write_text(dump_config(asked), encoding="utf-8")
    effective = effective_config(asked, (HALVED, SMALLER))
    line = command_line(file, asked, effective, home=tmp_path / "home of runs")
    words = shlex.split(line)
    assert words[:2] == ["python3", "launcher.py"]
    chosen = cli._parser().parse_args(words[2:])
    assert with_settings(read_config(Path(chosen.file)), chosen.set) == effective != asked
    assert chosen.home == str(tmp_path / "home of runs")


def test_a_run_that_nothing_corrected_needs_its_file_only(tmp_path: Path, config: Config) -> None:
    line = command_line(tmp_path / "run.yaml", config("a"), config("a"))
    assert line == f"python3 launcher.py train {tmp_path}/run.yaml"


def test_every_setting_has_its_key(config: Config) -> None:
    found = flat(config("a"))
    assert found["name"] == "a"
    assert found["train.learning_rate"] == config("a").train.learning_rate
    assert found["lora.target_modules"] == config("a").lora.target_modules


def test_settings_are_read_as_run_yaml_reads_them(config: Config) -> None:
    changed = with_settings(config("a"), ["train.packing=false", "lora.r=8", "name=b c", "train.learning_rate=0.001"])
    assert (changed.train.packing, changed.lora.r, changed.name) == (False, 8, "b c")
    assert changed.train.learning_rate == 0.001


@pytest.mark.parametrize("setting", ["train.learning_rate", "train.nothing=1", "train=1", "lora.r=0", "=1", "a.b.c=1"])
def test_a_setting_that_means_nothing_is_named(config: Config, setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_settings(config("a"), ["lora.r=0", setting])
    assert any("lora.r" in fault for fault in caught.value.problems)
    assert len(caught.value.problems) == (1 if setting == "lora.r=0" else 2)


def test_a_run_is_renamed_and_named_by_itself_again(store: RunStore, config: Config) -> None:
    folder = store.create(config("first"))
    assert summarise(folder).name == "first"
    assert rename(folder, "  Cook,\n second try ") == "Cook, second try"
    assert summarise(folder).name == "Cook, second try"
    assert folder.config().name == "first"  # run.yaml is written once
    rename(folder, "")
    assert summarise(folder).name == ""
    with pytest.raises(RunError):
        rename(folder, "x" * 200)


def test_a_failure_stands_in_the_list_with_its_cause_and_cure(store: RunStore, config: Config) -> None:
    folder = store.create(config("a"))
    writer = EventWriter(folder.events, 1)
    writer.write(Failed(code="memory.gpu", message="The card's memory is full.", hint="Choose less."))
    writer.close()
    found = store.list()[0]
    assert (found.failure_code, found.failure, found.failure_hint) == (
        "memory.gpu", "The card's memory is full.", "Choose less.",
    )  # fmt: skip
    assert say(Failed(message="No.", hint="Do.")).startswith(STATE_WORDS["failed"].lower())


@pytest.mark.parametrize("new", ["<img src=x>", "-4", "[]"])
def test_a_correction_that_cannot_be_used_leaves_the_run_to_be_shown(config: Config, new: str) -> None:
    asked = config("a")
    odd = SMALLER.model_copy(update={"new": new})
    assert effective_config(asked, (odd, HALVED)) == effective_config(asked, (HALVED,))
    assert effective_config(asked, (HALVED,)) != asked
