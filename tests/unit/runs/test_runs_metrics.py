"""A run's events passed on to libraries of the person's: stand-ins of their interfaces, and TensorBoard where it is."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, get_args

import pytest
import waiting
from living_runs import Config, RunsHere, Until

from core.contract.config import RunConfig, TrainChoice
from core.contract.errors import ConfigError, RunError
from core.contract.events import Evaluation, Event, Failed, Finished, Note, Step
from core.machine.locations import REPOSITORY, Locations
from core.machine.locks import FileLock, is_held
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import dump_config
from core.runs.log.events_log import EventWriter
from core.runs.metrics import sinks
from core.runs.metrics.follow import main, pass_on, settings
from core.runs.metrics.sinks import SINKS, expect_installed

RUN = "2026-11-20_2243_curves_k3f9"
Logged = list[tuple[Any, ...]]


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    made = JobFolder(tmp_path / "runs" / RUN)
    made.path.mkdir(parents=True)
    raw = RunConfig().model_dump()
    raw["data"].update(path="/home/somebody/private/rows.jsonl", system_prompt="secret")
    made.run_yaml.write_text(dump_config(RunConfig.model_validate(raw)), encoding="utf-8")
    write(
        made, Evaluation(step=0, loss=3.0, at=1.0), Step(step=1, loss=2.5, learning_rate=1e-4, at=2.0), Note(text="-")
    )
    return made


def write(folder: JobFolder, *events: Event) -> None:
    writer = EventWriter(folder.events, 1)
    for event in events:
        writer.write(event)
    writer.close()


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Logged:
    """What a stand-in of every library was told."""
    said: Logged = []

    def note(name: str, give: Any = None) -> Callable[..., Any]:
        return lambda *values, **named: (said.append((name, *values, named)), give)[1]

    run = SimpleNamespace(define_metric=note("define"), log=note("log"), finish=note("finish"))
    made = SimpleNamespace(info=SimpleNamespace(run_id="m1"))
    client = SimpleNamespace(
        get_experiment_by_name=note("experiment"), create_experiment=note("create", "7"), create_run=note("run", made),
        log_param=note("param"), log_metric=note("log"), set_terminated=note("finish"),
    )  # fmt: skip
    writer = SimpleNamespace(add_scalar=note("log"), flush=note("flush"), close=note("finish"))
    modules = {
        "wandb": {"init": note("init", run)},
        "mlflow": {"MlflowClient": note("init", client)},
        "trackio": {"init": note("init"), "log": note("log"), "finish": note("finish")},
        "tensorboard": {},
        "tensorboard.summary": {"Writer": note("init", writer)},
    }
    for name, holds in modules.items():
        module = ModuleType(name)
        module.__dict__.update(holds)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sinks, "find_spec", lambda name: name in modules or None)
    return said


def of(said: Logged, name: str) -> Logged:
    return [one[1:] for one in said if one[0] == name]


def test_the_setting_names_the_table() -> None:
    assert get_args(TrainChoice.model_fields["report_to"].annotation) == ("none", *SINKS)


@pytest.mark.parametrize("sink", SINKS)
def test_every_step_is_passed_on_once_whatever_ends_the_process(
    folder: JobFolder, locations: Locations, logged: Logged, sink: str
) -> None:
    def cut_off(_seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pass_on(folder, sink, locations, cut_off)
    first = of(logged, "log")
    assert first
    assert len(of(logged, "finish")) >= 1
    write(folder, Step(step=2, loss=float("nan"), learning_rate=5e-5), Finished(step=2))
    assert pass_on(folder, sink, locations, lambda _: None) == 1
    again = of(logged, "log")[len(first) :]
    shown = str(again)
    assert "train/learning_rate" in shown
    assert "train/loss" not in shown, "what is no number is not drawn"
    assert "eval/loss" not in shown
    assert "eval/loss" in str(first)
    assert pass_on(folder, sink, locations, lambda _: None) == 0
    if sink == "mlflow":
        assert len(of(logged, "run")) == 1, "a restart goes on with the same run"


def test_what_is_sent_names_no_path_and_no_prompt(folder: JobFolder, locations: Locations, logged: Logged) -> None:
    write(folder, Failed(step=1))
    pass_on(folder, "wandb", locations, lambda _: None)
    [init] = of(logged, "init")
    assert init[-1]["id"] == RUN
    assert init[-1]["resume"] == "allow"
    assert init[-1]["config"]["data.path"] == "rows.jsonl"
    assert "private" not in str(init[-1]["config"])
    assert "secret" not in str(init[-1]["config"])
    assert of(logged, "finish")[-1][-1] == {"exit_code": 1}
    assert settings(folder.config())["lora.r"] == 16


def test_one_process_follows_and_a_missing_library_is_said(
    folder: JobFolder, locations: Locations, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sinks, "find_spec", lambda _: None)
    expect_installed("none")
    with pytest.raises(ConfigError, match="Trackio") as caught:
        pass_on(folder, "trackio", locations)
    assert "pip install trackio" in caught.value.hint
    monkeypatch.setenv("LUTHIER_HOME", str(locations.home))
    stood_back: list[int] = []
    monkeypatch.setattr(os, "nice", stood_back.append)  # it would be this process's until its end
    assert main([str(folder.path), "wandb"]) == 1
    assert stood_back == [10]
    assert "Weights & Biases" in capsys.readouterr().err
    monkeypatch.setattr(sinks, "find_spec", lambda _: True)
    (folder.path / "metrics").mkdir()
    lock = FileLock(folder.path / "metrics" / "trackio.lock")
    assert lock.acquire()
    with pytest.raises(RunError) as busy:
        pass_on(folder, "trackio", locations)
    assert busy.value.code == "metrics.busy"
    lock.release()


def test_a_run_that_nobody_serves_is_left(folder: JobFolder, locations: Locations, logged: Logged) -> None:
    """Its log has no end: the machine was switched off."""
    waited: list[float] = []
    assert pass_on(folder, "tensorboard", locations, waited.append) == 2
    assert sum(waited) == pytest.approx(5.0)


STAND_IN = """
import json, pathlib
class Writer:
    def __init__(self, folder): self.file = pathlib.Path(folder) / "said.jsonl"
    def add_scalar(self, *said, wall_time): self.file.open("a").write(json.dumps(said) + "\\n")
    def flush(self): pass
    def close(self): pass
"""


def test_a_run_that_asks_for_it_is_followed_from_its_start(
    store: RunStore, here: RunsHere, config: Config, until: Until, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a process of its own, which ends after the run; another run has none."""
    (tmp_path / "library" / "tensorboard").mkdir(parents=True)
    (tmp_path / "library" / "tensorboard" / "__init__.py").touch()
    (tmp_path / "library" / "tensorboard" / "summary.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", f"{REPOSITORY}:{tmp_path / 'library'}")
    asked = config("train 3").model_copy(update={"train": TrainChoice(report_to="tensorboard")})
    run, other = store.start(asked), here.start(config("train 3"))
    until(run, "finished")
    until(other, "finished")
    place = store.open(run).path / "metrics"
    waiting.until(lambda: (place / "tensorboard.json").exists() and not is_held(place / "tensorboard.lock"), 20)
    said = [json.loads(line) for line in (place / "tensorboard" / "said.jsonl").read_text().splitlines()]
    losses = [[step, value] for name, value, step in said if name == "train/loss"]
    assert losses == [[step.step, step.loss] for step in store.record(run).steps]
    assert not (store.open(other).path / "metrics").exists()
