"""A run taken home as a script: plain transformers, peft and TRL make its tokens and its losses again."""

import ast
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import encoder_cases
import pytest
from dying_log import Letters, Said

from core.contract.config import RunConfig
from core.contract.errors import RunError
from core.contract.methods import METHODS
from core.contract.tasks import Outputs
from core.export import run as export_room
from core.export import verify
from core.export.script.train_py import MOST_LINES, Facts, train_py
from core.export.script.trainers import SCRIPTS
from core.export.script.write import refuse
from core.runs.folder.job_folder import JobFolder
from core.train.channel.command_queue import CommandQueue
from core.train.channel.reporter import EventReporter
from core.train.step.rows import rows_for

Take = Callable[[JobFolder], tuple[Path, list[str]]]
SHORT = {"train__max_steps": 1, "train__eval_steps": 1, "train__save_steps": 1}
VALUES: dict[str, dict[str, Any]] = {
    "dpo": {"train__rpo_alpha": 0.5},
    "reward": {"train__center_rewards_coefficient": 0.01},
    "classify": {"train__class_weights": "balanced"},
    "sft": {
        "lora__loraplus_lr_ratio": 4.0,
        "lora__use_dora": True,
        "model__rope_scaling": "yarn",
        "model__rope_factor": 4.0,
    },
    "pretrain": {"train__learns": "adapter_embeddings", "model__dtype": "bfloat16"},
}


@pytest.fixture
def take(monkeypatch: pytest.MonkeyPatch) -> Take:
    """Exports a run as a script; what checks it works in this process."""

    def here(command: list[str], _check: object) -> dict[str, Any]:
        request = json.loads(Path(command[-1]).read_text(encoding="utf-8"))
        return {"checks": verify.CHECKS[request["form"]](request)}

    def home(run: JobFolder) -> tuple[Path, list[str]]:
        job, said = JobFolder(run.jobs / "script"), Said()
        job.path.mkdir(parents=True)
        job.export_yaml.write_text("name: script\nform: script\ncheckpoint: last\n", encoding="utf-8")
        export_room.export(job, said, CommandQueue(Letters(), EventReporter(said)))  # type: ignore[arg-type]
        return job.exports / "script", [*said.of("exported")[0].checks]

    monkeypatch.setattr(export_room, "_ask", here)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return home


METHOD = [pytest.param(name, marks=pytest.mark.slow) if name == "cpo" else name for name in METHODS]
"""SimPO has the same trainer as CPO."""


@pytest.mark.parametrize("method", METHOD)
def test_a_script_makes_the_runs_tokens_and_its_first_loss(runs: Any, take: Take, method: str) -> None:
    assert SCRIPTS.keys() == METHODS.keys()
    run, log = runs(method=method, **SHORT, **VALUES.get(method, {}))
    folder, checks = take(run)
    assert len((folder / "train.py").read_text("utf-8").splitlines()) <= MOST_LINES
    assert not (folder / "checkpoints").exists(), "of the check"
    assert ".venv/bin/python train.py" in (folder / "README.md").read_text("utf-8")
    assert all("==" in line for line in (folder / "requirements.txt").read_text("utf-8").splitlines())
    assert "the run's own tokens" in checks[0]
    assert f"the run's {log.of('step')[0].loss:.4f}" in checks[-1]


@pytest.mark.parametrize("problem", [pytest.param("single_label_classification", marks=pytest.mark.slow), "regression"])
def test_an_encoder_and_numbers_learn_by_plain_libraries_too(
    runs: Any, take: Take, tmp_path: Path, problem: str
) -> None:
    """Rows are padded there, and losses of micro-batches are means."""
    words = [f"w{number % 7} w{20 + number % 2} " * (1 + number % 3) for number in range(40)]
    labels = [number % 9 * 100.5 if problem == "regression" else ("odd", "even")[number % 2] for number in range(40)]
    data = tmp_path / "labels.jsonl"
    rows = (json.dumps({"text": text, "label": label}) for text, label in zip(words, labels, strict=True))
    data.write_text("\n".join(rows), encoding="utf-8")
    model = encoder_cases.save_tiny(tmp_path / "bert", "bert")
    values = {
        "model__name": str(model),
        "data__path": str(data),
        "train__learns": "everything",
        "train__max_length": 32,
    }
    run, log = runs(method="classify", **SHORT, **values)
    folder, checks = take(run)
    assert "depends on noise" in checks[-1]
    loss = losses_of(folder, run)[0]
    assert loss == pytest.approx(log.of("step")[0].loss, abs=0.05), "another draw of the head"


def losses_of(folder: Path, run: JobFolder) -> list[float]:
    namespace: dict[str, Any] = {"__name__": "train", "__file__": str(folder / "train.py")}
    exec((folder / "train.py").read_text("utf-8"), namespace)
    trainer = namespace["build"](run.config().model.name)
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_it_learns_on_as_the_run_did_over_epochs_and_partial_batches(runs: Any, take: Take) -> None:
    """Two epochs of 22 rows in steps of 4: the last step of an epoch has 2; LoRA+ has two learning rates."""
    more = {"train__num_train_epochs": 2, "train__max_steps": 0, "data__eval_fraction": 0.45}
    more |= {"train__eval_steps": 100, "train__save_steps": 100}
    run, log = runs(**more, lora__loraplus_lr_ratio=4.0, train__learning_rate=3e-3)
    folder, _ = take(run)
    losses = losses_of(folder, run)
    assert losses == pytest.approx([step.loss for step in log.of("step")], abs=1e-3)
    assert len(losses) == 12


@pytest.mark.parametrize("method", [*METHODS])
def test_the_longest_script_is_short(run_config: Any, method: str) -> None:
    several = Outputs(("one", "two", "three"), "multi_label_classification")
    learning = METHODS[method]  # type: ignore[index]
    lora = {"lora__loraplus_lr_ratio": 16.0, "lora__use_dora": True, "lora__use_rslora": True}
    raw = run_config(method=method, **lora).model_dump()
    raw["model"] |= {"quantization": "nf4", "source": "hub", "name": "organisation/a-long-name", "revision": "a" * 40}
    raw["train"] |= {"neftune_noise_alpha": 5.0, "class_weights": "balanced", "optim": "paged_adamw_8bit"}
    config = RunConfig.model_validate(raw)
    adapter = {"target_modules": [*config.lora.target_modules], "modules_to_save": ["score"]}
    rows, outputs = rows_for(learning, several), several if learning.task.scores else None
    facts = Facts("2026-11-20_2243_a-name_k3f9", config, config.model.name, "bfloat16", 9, 9, adapter, rows, outputs)
    facts = replace(facts, positions={"max_position_embeddings": 131072, "rope_parameters": {"rope_type": "yarn"}})
    lines = train_py(facts).splitlines()
    ast.parse("\n".join(lines))
    assert len(lines) <= MOST_LINES
    assert [line for line in lines if len(line) > 120] == []


def test_what_plain_libraries_lack_is_refused(run_config: Any) -> None:
    for values in (
        {"lora__init_lora_weights": "loftq", "model__quantization": "nf4"},
        {"train__learns": "everything", "train__optim": "muon"},
    ):
        with pytest.raises(RunError) as caught:
            refuse(run_config(**values))
        assert caught.value.code == "export.script"
