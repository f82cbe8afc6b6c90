"""A finished run of the built-in model with one whole checkpoint, and small models of other kinds to merge into."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from core.contract.config import RunConfig
from core.contract.events import Checkpoint, Correction, Evaluation, Finished, Hello, Plan
from core.machine.locations import ASSETS
from core.runs.folder.job_folder import ExportRequest, JobFolder
from core.runs.folder.run_yaml import dump_config
from core.runs.log.events_log import EventWriter

SECRET = "somebodys-private-folder"


@pytest.fixture(scope="session")
def trained_adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter for the starter with every B drawn at random, as peft saves it, and the path of its base in it."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp(SECRET) / "adapter"
    torch.manual_seed(3)
    base = AutoModelForCausalLM.from_pretrained(ASSETS / "starter", dtype=torch.float32)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    lora = LoraConfig(r=8, lora_alpha=16, target_modules=targets, init_lora_weights=False, task_type="CAUSAL_LM")
    get_peft_model(base, lora).save_pretrained(str(folder), save_embedding_layers=False)
    return folder


@pytest.fixture
def checked_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of a reloaded export, in this process: a fresh one takes seconds."""
    from core.export import run, verify

    def ask(command: list[str], _check: object) -> Any:
        with redirect_stdout(StringIO()) as written:
            verify.main(command[-1:])
        return json.loads(written.getvalue().splitlines()[-1])

    monkeypatch.setattr(run, "_ask", ask)


@pytest.fixture
def run(tmp_path: Path, trained_adapter: Path) -> JobFolder:
    """The run, its log as a worker wrote it, its checkpoint sealed by the checkpoint room."""
    import shutil

    from core.train.keep.checkpoint import save

    folder = JobFolder(tmp_path / SECRET / "runs" / "2026-11-20_2243_take-home_k3f9")
    folder.path.mkdir(parents=True)
    folder.run_yaml.write_text(dump_config(export_config(tmp_path)), encoding="utf-8")
    save(
        folder, 12, lambda out: shutil.copytree(trained_adapter, out / "adapter") and None, {"eval_loss": 0.5}, 1 << 20
    )
    writer = EventWriter(folder.events, 1)
    versions = {"torch": "2.13.0", "peft": "0.21.2"}
    for event in (
        Hello(device="cpu", device_name="2 CPU cores", versions=versions),
        Plan(train_rows=285, eval_rows=15, trainable_parameters=1234),
        Evaluation(step=0, loss=2.5, rows=15),
        Correction(step=4, key="train.learning_rate", old="0.0002", new="0.0001", reason="a loss that was no number"),
        Evaluation(step=12, loss=0.5, rows=15),
        Checkpoint(step=12, name="step-000012", best=True, eval_loss=0.5),
        Finished(step=12),
    ):
        writer.write(event)
    writer.close()
    return folder


def export_config(tmp_path: Path) -> RunConfig:
    raw = RunConfig().model_dump()
    raw["name"] = "Take home <b>"
    raw["data"].update(path=str(ASSETS / "samples" / "instruction.jsonl"), sha256="a" * 64, layout="alpaca")
    raw["data"]["system_prompt"] = "Be short."
    return RunConfig.model_validate(raw)


@pytest.fixture
def ask_for(run: JobFolder) -> Callable[..., JobFolder]:
    """Makes an export job's folder."""

    def make(name: str, form: str, checkpoint: str = "best", **options: object) -> JobFolder:
        job = JobFolder(run.jobs / name)
        job.path.mkdir(parents=True)
        request = ExportRequest.model_validate({"name": name, "form": form, "checkpoint": checkpoint, **options})
        import yaml

        job.export_yaml.write_text(yaml.safe_dump(request.model_dump()), encoding="utf-8")
        return job

    return make
