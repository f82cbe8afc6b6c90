"""The tiny model and its rows (``tests/tiny_run.py``), run folders around them, and doubles of log and mailbox."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from children_here import ChildHere
from dying_log import Letters, Log
from tiny_run import make_model, raw_config, sentence, write_instructions

from core.contract.config import RunConfig
from core.contract.events import Event
from core.machine.children.pipe import Child
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import dump_config
from core.train.channel.channel import Channel
from core.train.channel.command_queue import CommandQueue
from core.train.channel.reporter import EventReporter


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, made once."""
    return make_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def instructions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The instructions, written once."""
    return write_instructions(tmp_path_factory.mktemp("data") / "rows.jsonl")


@pytest.fixture(scope="session")
def preferences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty-four pairs."""
    path = tmp_path_factory.mktemp("data") / "pairs.jsonl"
    rows = [
        {"prompt": sentence(number), "chosen": sentence(number + 3), "rejected": sentence(number + 5)}
        for number in range(24)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


_CHILDREN = ("core.data.service.checked.Child", "core.data.service.doctor.Child")


@pytest.fixture(autouse=True)
def children_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A run has its file read by children; here they answer in this process, and are noted with what was asked."""
    for place in _CHILDREN:
        monkeypatch.setattr(place, ChildHere)
    ChildHere.asked.clear()
    return ChildHere.asked


@pytest.fixture
def real_children(children_here: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of their own, as a run has them."""
    for place in _CHILDREN:
        monkeypatch.setattr(place, Child)


@pytest.fixture
def run_config(tiny_model: Path, instructions: Path) -> Callable[..., RunConfig]:
    """A complete config on the tiny model; keyword arguments are dotted keys with ``__`` for the dot."""

    def make(**values: Any) -> RunConfig:
        raw = raw_config(tiny_model, instructions)
        for key, value in values.items():
            part = raw
            *parents, last = key.split("__")
            for parent in parents:
                part = part[parent]
            part[last] = value
        return RunConfig.model_validate(raw)

    return make


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[..., JobFolder]:
    """Writes a config into a run folder of the given name."""

    def make(config: RunConfig, name: str = "run") -> JobFolder:
        path = tmp_path / "runs" / name
        path.mkdir(parents=True)
        (path / "run.yaml").write_text(dump_config(config), encoding="utf-8")
        return JobFolder(path)

    return make


@pytest.fixture
def trained(
    run_config: Callable[..., RunConfig], make_folder: Callable[..., JobFolder], letters: Letters
) -> Callable[..., tuple[JobFolder, Log]]:
    """Trains a run of the tiny config with these values to its end; its folder and its log."""

    def run(name: str = "run", **values: Any) -> tuple[JobFolder, Log]:
        from core.train.run import train

        folder = make_folder(run_config(**values), name)
        log = Log(folder)
        train(folder, log, letters)
        return folder, log

    return run


class Said:
    """A writer that keeps what is written."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.attempt = 1

    def write(self, event: Event) -> Event:
        self.events.append(event)
        return event

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.kind == kind]


@pytest.fixture
def said() -> Said:
    return Said()


@pytest.fixture
def letters() -> Letters:
    return Letters()


@pytest.fixture
def channel(said: Said, letters: Letters) -> Channel:
    """Into ``said``, and out of ``letters`` once somebody starts to listen."""
    reporter = EventReporter(said)
    return Channel(reporter, CommandQueue(letters, reporter))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Two cores serve many tests."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def quiet_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A run sets threads and algorithms for its process; this one goes on to other tests."""
    import torch

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)
