"""What a run of scores is taken home as reaches, by plain libraries alone, the held-out figures that the run said."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import encoder_cases
import plain_held_out
import pytest
import yaml
from dying_log import Letters, Said
from tiny_run import sentence

from core.contract.config import LoraChoice, RunConfig
from core.contract.events import Evaluation
from core.contract.forms import FORMS, Form
from core.export import run as export_room
from core.export import verify
from core.runs.folder.held_out_rows import kept_draw
from core.runs.folder.job_folder import ExportRequest, JobFolder
from core.train.channel.command_queue import CommandQueue
from core.train.channel.reporter import EventReporter

STEPS = {"train__max_steps": 4, "train__eval_steps": 4, "train__save_steps": 4, "data__eval_fraction": 0.3}
TESTS = Path(plain_held_out.__file__)


@pytest.fixture
def labelled_words(tmp_path: Path) -> dict[str, Any]:
    """Texts in the words of the tiny encoder, and what trains it whole on them."""
    rows = [{"text": f"w{number % 7} w{20 + number % 2} w{number % 11} " * (1 + number % 3),
             "label": ("odd", "even")[number % 2]} for number in range(40)]  # fmt: skip
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    model = encoder_cases.save_tiny(tmp_path / "bert", "bert")
    return {"model__name": str(model), "data__path": str(data), "train__learns": "everything",
            "train__learning_rate": 5e-4, "train__max_length": 32}  # fmt: skip


def exported(folder: JobFolder, form: str) -> Path:
    job = JobFolder(folder.jobs / form)
    job.path.mkdir(parents=True)
    request = ExportRequest.model_validate({"name": form, "form": form, "checkpoint": "last"})
    job.export_yaml.write_text(yaml.safe_dump(request.model_dump()), encoding="utf-8")
    said = Said()
    export_room.export(job, said, CommandQueue(Letters(), EventReporter(said)))  # type: ignore[arg-type]
    return job.exports / form


def requests_of(folder: JobFolder) -> list[dict[str, Any]]:
    """For each form of what the run learned, its export."""
    config, draw = folder.config(), kept_draw(folder.path)
    assert draw is not None
    about = {"data": config.data.path, "rows": draw.numbers, "pairs": config.learning.answers > 1}
    return [{**about, "folder": str(exported(folder, form)), "base": config.model.name if form == "adapter" else ""}
            for form in forms_of(config)]  # fmt: skip


def forms_of(config: RunConfig) -> list[Form]:
    """Those that hold what was trained."""
    return [form for form in config.export_forms if FORMS[form].weights]


def here(command: list[str], _check: object) -> Any:
    """The check of an export, in this process: a fresh one takes seconds."""
    with redirect_stdout(StringIO()) as written:
        verify.main(command[-1:])
    return json.loads(written.getvalue().splitlines()[-1])


def assert_reached(found: dict[str, float], said: Evaluation, form: str) -> None:
    # What is merged was rounded to 16 bits, of which the model's loss tells a thousandth.
    assert found["loss"] == pytest.approx(said.loss, rel=5e-3 if form == "merged" else 1e-4)
    assert found["accuracy"] == pytest.approx(said.accuracy)


@pytest.mark.parametrize("kind", ["classify", "encoder", "reward"])
def test_plain_libraries_reach_the_held_out_figures(
    kind: str, runs: Any, labelled_words: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_room, "_ask", here)
    folder, log = trained(kind, runs, labelled_words)
    requests = requests_of(folder)
    (tmp_path / "request.json").write_text(json.dumps(requests), encoding="utf-8")
    found = plain_held_out.main(str(tmp_path / "request.json"))
    for figures, form in zip(found, forms_of(folder.config()), strict=True):
        assert_reached(figures, log.of("evaluation")[-1], form)


def trained(kind: str, runs: Any, labelled_words: Any) -> Any:
    method = "reward" if kind == "reward" else "classify"
    # The more a model of rewards has learned, the less of its loss is what 16 bits round.
    more = {"train__max_steps": 8, "lora__target_modules": LoraChoice().target_modules}
    values = {"encoder": labelled_words, "reward": more}.get(kind, {})
    folder, log = runs(kind, method=method, **{**STEPS, **values})
    assert log.said[-1].kind == "finished", log.said[-1]
    assert log.of("evaluation")[-1].step == folder.config().train.max_steps
    return folder, log


def texts(path: Path) -> dict[str, Any]:
    """Raw texts, each shorter than a row may be, and what trains on them."""
    rows = ({"text": " ".join(sentence(number + part) for part in range(1 + number % 4))} for number in range(30))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {"data__path": str(path), "data__layout": "text"}


@pytest.mark.parametrize("method", ["dpo", "pretrain", *(pytest.param(name, marks=pytest.mark.slow) for name in (
    "sft", "orpo", "simpo", "cpo", "kto"))])  # fmt: skip
def test_plain_libraries_reach_what_was_said_of_a_model_that_writes(
    method: str, runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adapter of the method, by peft and transformers alone; its reference is the model without it."""
    monkeypatch.setattr(export_room, "_ask", here)
    values = texts(tmp_path / "texts.jsonl") if method == "pretrain" else {}
    folder, log = runs(f"written {method}", method=method, **STEPS, **values)
    said, config, draw = log.of("evaluation")[-1], folder.config(), kept_draw(folder.path)
    assert draw is not None
    request = {
        "folder": str(exported(folder, "adapter")), "base": config.model.name, "data": config.data.path,
        "rows": draw.numbers, "pairs": config.learning.answers > 1, "method": method, "beta": config.beta,
        "gamma": config.train.simpo_gamma,
    }  # fmt: skip
    (tmp_path / "request.json").write_text(json.dumps([request]), encoding="utf-8")
    (found,) = plain_held_out.main(str(tmp_path / "request.json"))
    assert found
    for name, value in found.items():
        assert value == pytest.approx(getattr(said, name), rel=1e-4, abs=1e-5), name


@pytest.mark.slow
def test_an_independent_program_reaches_them_in_a_process_of_its_own(
    runs: Any, labelled_words: Any, tmp_path: Path
) -> None:
    """With the check of each export in its fresh process, as in a studio."""
    done = [trained(kind, runs, labelled_words) for kind in ("classify", "encoder", "reward")]
    requests = [(request, log) for folder, log in done for request in requests_of(folder)]
    file = tmp_path / "request.json"
    file.write_text(json.dumps([request for request, _ in requests]), encoding="utf-8")
    told = subprocess.run([sys.executable, "-I", str(TESTS), str(file)], cwd=tmp_path, capture_output=True, check=True)
    found = json.loads(told.stdout.splitlines()[-1])
    for figures, (request, log) in zip(found, requests, strict=True):
        assert_reached(figures, log.of("evaluation")[-1], Path(request["folder"]).name)
