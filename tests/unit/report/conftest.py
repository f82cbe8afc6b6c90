"""Runs of the tiny model, trained in this process once, and reports on them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from children_here import ChildHere
from dying_log import Letters, Log, Said
from tiny_run import make_model, raw_config, sentence

from core.contract.config import RunConfig
from core.machine.locations import Locations
from core.report.schema import Report, read_report
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import dump_config

Make = Callable[..., JobFolder]
NAME = "2026-11-20_2243_told_k3f9"
GERMAN = "Das ist nicht der Weg und die Stadt ist auch nicht da"
ROWS: dict[str, Callable[[int], dict[str, Any]]] = {
    "sft": lambda n: {
        "prompt": sentence(n) if n % 3 else f"{GERMAN} {n}",
        "completion": sentence(n + 3),
        "source": ["tales", "news"][n % 2],
    },
    "pretrain": lambda n: {"text": " ".join(sentence(n + part) for part in range(4))},
    "dpo": lambda n: {"prompt": sentence(n), "chosen": sentence(n + 3), "rejected": sentence(n + 5)},
    "kto": lambda n: {"prompt": sentence(n), "completion": sentence(n + 3), "label": n % 3 > 0},
    "classify": lambda n: {"text": f"the {('cat', 'dog')[n % 2]} sees {sentence(n)}", "label": ("cat", "dog")[n % 2]},
    "reward": lambda n: {"prompt": sentence(n), "chosen": sentence(n + 3), "rejected": sentence(n + 5)},
}
LAYOUTS = {"sft": "prompt_completion", "pretrain": "text", "kto": "kto", "classify": "classification"}


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def children_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("core.data.service.checked.Child", "core.data.service.doctor.Child"):
        monkeypatch.setattr(place, ChildHere)
    for room in ("reader_child", "work_child"):  # it would look through all that the tests have imported
        monkeypatch.setattr(f"core.data.service.{room}.give_back_memory", lambda: None)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs of which tests ask nothing but a report lie, each trained once."""
    return tmp_path_factory.mktemp("finished")


@pytest.fixture
def quiet_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import peft
    import torch

    monkeypatch.setattr(
        peft.PeftModel, "create_or_update_model_card", lambda _model, folder: Path(folder, "README.md").write_text("")
    )
    monkeypatch.setattr("accelerate.utils.memory.gc", SimpleNamespace(collect=int))  # before each training
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def trained(quiet_torch: None, tiny_model: Path, tmp_path: Path) -> Make:
    """A finished run of six steps; keywords are keys of ``train`` and ``data``."""

    def make(method: str = "sft", **values: Any) -> JobFolder:
        from core.train.run import train

        data, run = tmp_path / "rows.jsonl", JobFolder(tmp_path / "runs" / NAME)
        data.write_text("".join(json.dumps(ROWS[method](n)) + "\n" for n in range(40)), encoding="utf-8")
        raw = raw_config(tiny_model, data)
        raw["method"] = method
        raw["data"].update(layout=LAYOUTS.get(method, "preference"), eval_fraction=0.3)
        raw["train"].update(tokens_per_pass=128)
        raw["lora"].update(target_modules=("v_proj", "down_proj"))
        for key, value in values.items():
            next(raw[part] for part in ("train", "data", "lora", "model") if key in raw[part])[key] = value
        run.path.mkdir(parents=True)
        run.run_yaml.write_text(dump_config(RunConfig.model_validate(raw)), encoding="utf-8")
        log = Log(run)
        train(run, log, Letters())
        log.close()
        return run

    return make


@pytest.fixture
def measured(trained: Make, finished: Path, tmp_path: Path) -> JobFolder:
    """A run of sft to measure, a copy of one that was trained once; its rows are the same file for all, to be read."""
    if not (finished / NAME).exists():
        run = trained()
        raw = run.config().model_dump(mode="json")
        raw["data"]["path"] = str(shutil.copy(raw["data"]["path"], finished))
        run.run_yaml.write_text(dump_config(RunConfig.model_validate(raw)), encoding="utf-8")
        shutil.move(run.path, finished / NAME)
    return JobFolder(Path(shutil.copytree(finished / NAME, tmp_path / "runs" / NAME)))


@pytest.fixture
def told(locations: Locations, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Report, Said]]:
    """The report on a run, made in this process; few prompts and short answers, and time for all on a slow machine."""

    def make(run: JobFolder, safe_point: Callable[[], object] = lambda: None, **request: Any) -> tuple[Report, Said]:
        from core.report.measure import answers, memorising
        from core.report.measure.run import report
        from core.train.channel.command_queue import CommandQueue
        from core.train.channel.reporter import EventReporter

        monkeypatch.setattr(answers, "PROMPTS", 3)
        monkeypatch.setattr(answers, "FEWEST_TOKENS", 4)
        monkeypatch.setattr(memorising, "RECITED_ROWS", 2)
        monkeypatch.setattr(memorising, "RECITED_TOKENS", 8)
        monkeypatch.setattr(memorising, "TRAINED_ROWS", 8)
        run.report_job.path.mkdir(parents=True, exist_ok=True)
        run.report_job.report_yaml.write_text(json.dumps({"minutes": 10.0, **request}), encoding="utf-8")
        said = Said()
        report(run.report_job, said, CommandQueue(Letters(), EventReporter(said)), safe_point)  # type: ignore[arg-type]
        made = read_report(run.report_json)
        assert made is not None
        return made, said

    return make
