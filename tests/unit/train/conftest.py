"""The tiny model and its rows (``tests/tiny_run.py``), run folders around them, and doubles of log and mailbox."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from children_here import ChildHere
from dying_log import Killed, Letters, Log, Said
from tiny_run import make_model, raw_config, sentence, write_instructions

from core.contract.config import RunConfig
from core.contract.methods import METHODS
from core.data.render.chat_tokens import load_tokenizer
from core.machine.children.pipe import Child
from core.model.loading.load import ensure_padding
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


@pytest.fixture(scope="session")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty-four answers, two of three marked good."""
    path = tmp_path_factory.mktemp("data") / "marks.jsonl"
    rows = [
        {"prompt": sentence(number), "completion": sentence(number + 3), "label": number % 3 > 0}
        for number in range(24)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty texts, each with the animal that it names as its label."""
    path = tmp_path_factory.mktemp("data") / "labels.jsonl"
    rows = [
        {"text": f"the {name} sees the {('red', 'big', 'small')[number % 3]} house {number}", "label": name}
        for number in range(60)
        for name in [("cat", "dog", "bird")[number % 5 // 2]]
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


_CHILDREN = ("core.data.service.checked.Child", "core.data.service.doctor.Child")
_GIVING_BACK = ("core.data.service.reader_child.give_back_memory", "core.data.service.work_child.give_back_memory")


@pytest.fixture(autouse=True)
def children_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A run has its file read by children; here they answer in this process, and are noted with what was asked."""
    for place in _CHILDREN:
        monkeypatch.setattr(place, ChildHere)
    for place in _GIVING_BACK:  # what a process of its own does for its next file; here it would look through all tests
        monkeypatch.setattr(place, lambda: None)
    ChildHere.asked.clear()
    return ChildHere.asked


@pytest.fixture
def real_children(children_here: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of their own, as a run has them."""
    for place in _CHILDREN:
        monkeypatch.setattr(place, Child)


@pytest.fixture
def run_config(
    tiny_model: Path, instructions: Path, preferences: Path, marked: Path, labelled: Path
) -> Callable[..., RunConfig]:
    """A complete config on the tiny model, on rows that its method learns from; keywords are keys with ``__`` for the
    dot."""

    def make(**values: Any) -> RunConfig:
        raw = raw_config(tiny_model, instructions)
        raw["lora"].update(target_modules=TARGETS)
        for layout, path in (("preference", preferences), ("kto", marked), ("classification", labelled)):
            if layout in METHODS[values.get("method", "sft")].layouts:
                raw["data"].update(path=str(path), layout=layout)
        for key, value in values.items():
            part = raw
            *parents, last = key.split("__")
            for parent in parents:
                part = part[parent]
            part[last] = value
        return RunConfig.model_validate(raw)

    return make


TARGETS = ("v_proj", "down_proj")
"""One matrix of attention and one of the MLP: each adapter more is a tenth of a run of the tiny model."""


class Runs:
    """Run folders, and workers that train in them one after another in this process."""

    whole: ClassVar[dict[str, tuple[JobFolder, Log]]] = {}

    def __init__(self, config: Callable[..., RunConfig], letters: Letters, tmp_path: Path, lasting: Path) -> None:
        self._config, self._letters, self._folder, self._lasting = config, letters, tmp_path / "runs", lasting

    def make(self, name: str = "run", **values: Any) -> JobFolder:
        """A folder for a run of the tiny config with these values."""
        return self.folder(self._config(**values), self._folder / name)

    def folder(self, config: RunConfig, path: Path) -> JobFolder:
        path.mkdir(parents=True)
        (path / "run.yaml").write_text(dump_config(config), encoding="utf-8")
        return JobFolder(path)

    def work(
        self, folder: JobFolder, attempt: int = 1, then: Callable[[Any], Any] | None = None, kind: type[Log] = Log
    ) -> Log:
        """One worker to its end; it dies where ``then`` is true of an event."""
        from core.train.run import train

        log = kind(folder, attempt, then)
        with suppress(Killed):
            train(folder, log, self._letters)
        return log

    def __call__(self, name: str = "run", **values: Any) -> tuple[JobFolder, Log]:
        """A run from its beginning to its end."""
        folder = self.make(name, **values)
        return folder, self.work(folder)

    def undisturbed(self, **values: Any) -> tuple[JobFolder, Log]:
        """The same, trained once for all tests, which must not change it."""
        key = repr(values)
        if key not in self.whole:
            folder = self.folder(self._config(**values), self._lasting / str(len(self.whole)) / "run")
            self.whole[key] = folder, self.work(folder)
        return self.whole[key]

    def copy(self, name: str = "run", **values: Any) -> tuple[JobFolder, Log]:
        """A copy of an undisturbed run, to go on with."""
        folder, log = self.undisturbed(**values)
        shutil.copytree(folder.path, self._folder / name)
        return JobFolder(self._folder / name), log


@pytest.fixture(scope="session")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lasting")


@pytest.fixture
def runs(quiet_torch: None, run_config: Any, letters: Letters, tmp_path: Path, lasting: Path) -> Runs:
    return Runs(run_config, letters, tmp_path, lasting)


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
def read(channel: Channel) -> Callable[..., Any]:
    """A run's data as its worker reads it."""

    def run(config: RunConfig, *kept: Any) -> Any:
        from core.train.reading import read_data

        return read_data(config, ensure_padding(load_tokenizer(Path(config.model.name))), channel, *kept)

    return run


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Two cores serve many tests."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def libraries() -> None:
    """Imported and out of the collector's way, as in a worker: a run collects all garbage once, 0.6 s with theirs."""
    import core.train.methods.dpo
    import core.train.run  # noqa: F401

    gc.collect()
    gc.freeze()


def short_card(model: object, folder: str) -> None:
    """In place of peft's description of an adapter, whose template is compiled anew at each saving: a tenth of a run of
    the tiny model."""
    (Path(folder) / "README.md").write_text("an adapter", encoding="utf-8")


@pytest.fixture
def quiet_torch(libraries: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A run sets threads and algorithms for its process; this one goes on to other tests."""
    import peft
    import torch

    monkeypatch.setattr(peft.PeftModel, "create_or_update_model_card", short_card)
    monkeypatch.setattr("accelerate.utils.memory.gc", SimpleNamespace(collect=int))  # before each training
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)
