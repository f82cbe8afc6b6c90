"""Exports of models with a head of scores: what plain libraries load, what the card says, and what a check finds."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import encoder_cases
import pytest
import torch
from dying_log import Letters, Said
from safetensors.torch import load_file, save_file
from tiny_run import make_model
from transformers import AutoModelForSequenceClassification, pipeline

from core.chat.generator import load_chat_model
from core.chat.messages import Ask, Setup
from core.contract.config import LoraChoice, RunConfig
from core.contract.events import Evaluation, Finished, Plan
from core.contract.methods import METHODS
from core.contract.tasks import Outputs
from core.export import run as export_room
from core.export import verify
from core.export.gguf.proof.check import Verified
from core.export.run import export
from core.model.adapters import Trained, add_adapter
from core.model.learners import LEARNERS, Onto
from core.model.scores import ScoreHead, load_model
from core.runs.folder.job_folder import ExportRequest, JobFolder
from core.runs.folder.run_yaml import dump_config
from core.runs.log.events_log import EventWriter
from core.train.channel.command_queue import CommandQueue
from core.train.channel.reporter import EventReporter
from core.train.keep.checkpoint import save

pytestmark = pytest.mark.usefixtures("checked_here")
LABELS = {
    "classify": Outputs(("bad", "good", "so `so`")),
    "several": Outputs(("cheap", "quick"), "multi_label_classification"),
    "number": Outputs(("price",), "regression", 250_000.0, 50_000.0),
    "reward": Outputs(("reward",), "regression"),
}
TEXTS = ("A fine bow.", "No.", "It has four strings, and is very old.")
ROWS = {
    "classify": [{"text": f"{text} {part}", "label": label} for part in ("", "Or so it is said.")
                 for text, label in zip(TEXTS, ("good", "bad", "so `so`"), strict=True)],
    "reward": [{"prompt": "What is a bow?", "chosen": "A stick with hair, for strings.", "rejected": "No idea."},
               {"prompt": "How many strings?", "chosen": "Four.", "rejected": "It has forty, or so it is said."}],
}  # fmt: skip
Made = tuple[JobFolder, RunConfig]


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In 32 bits; its padding is its end token."""
    return make_model(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encoder_cases.save_tiny(tmp_path_factory.mktemp("bert"), "bert")


def make_run(folder: Path, kind: str, base: Path, learns: str = "adapter") -> Made:
    """A run of one checkpoint, whose adapter and head, or all weights, are drawn."""
    method = "reward" if kind == "reward" else "classify"
    outputs, data, raw = LABELS[kind], folder / "rows.jsonl", RunConfig().model_dump()
    folder.mkdir(parents=True)
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS[method]), encoding="utf-8")
    raw["data"].update(path=str(data), layout=METHODS[method].layouts[0], sha256="a" * 64)
    raw["model"].update(source="folder", name=str(base), quantization="none", dtype="float32")
    raw["train"].update(learns=learns, max_length=40)
    config = RunConfig.model_validate({**raw, "method": method})
    loaded = load_model(base, config.model, torch.device("cpu"), head=ScoreHead(outputs, seed=3))
    if config.learns.adapter:
        model = add_adapter(loaded.model, LoraChoice(r=4), seed=1, task=config.learning.task)
        trained = Trained(model, outputs=outputs)
    else:
        trained = LEARNERS[config.train.learns](Onto(loaded.model, lambda: None, outputs=outputs), config)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for _, parameter in trained.named:
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    run = JobFolder(folder / "runs" / "2026-11-20_2243_scores_k3f9")
    run.path.mkdir(parents=True)
    run.run_yaml.write_text(dump_config(config), encoding="utf-8")
    save(run, 12, lambda out: trained.save(out / config.learns.folder), {"eval_loss": 0.5}, 1 << 20)
    writer = EventWriter(run.events, 1)
    for event in (
        Plan(train_rows=28, eval_rows=2, labels=outputs.names, problem=outputs.problem),
        Evaluation(step=0, loss=1.5, rows=2, accuracy=0.5),
        Evaluation(step=12, loss=0.5, rows=2, accuracy=0.75, macro_f1=0.7),
        Finished(step=12),
    ):
        writer.write(event)
    writer.close()
    return run, config


def exported(made: Made, form: str) -> tuple[Path, Said]:
    import yaml

    job = JobFolder(made[0].jobs / form)
    job.path.mkdir(parents=True)
    request = ExportRequest.model_validate({"name": form, "form": form, "checkpoint": "best"})
    job.export_yaml.write_text(yaml.safe_dump(request.model_dump()), encoding="utf-8")
    said = Said()
    export(job, said, CommandQueue(Letters(), EventReporter(said)))  # type: ignore[arg-type]
    return job.exports / form, said


def tried(made: Made, *turns: tuple[str, str]) -> dict[str, float]:
    """What Try says of a checkpoint."""
    run, config = made
    setup = Setup(
        folder=config.model.name, model=config.model, data=config.data, learns=config.train.learns, home="",
        trained=str(run.checkpoints / "step-000012" / config.learns.folder), method=config.trained_method,
        max_length=config.train.max_length,
    )  # fmt: skip
    ask = {"id": "a", "messages": [{"role": role, "content": said} for role, said in turns]}
    (piece,) = load_chat_model(setup).pieces(Ask.model_validate(ask), "tuned", lambda: False)
    return dict(piece.scores)


def carded(folder: Path, base: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    """What the card's own lines print."""
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text("utf-8"), re.S)
    code = (
        code.replace('dtype="auto"', 'dtype="float32"')
        .replace("this folder", str(folder))
        .replace("the folder of the base model", str(base))
    )
    capsys.readouterr()
    exec(code, {})
    shown: dict[str, float] = eval(capsys.readouterr().out)
    return shown


SLOW = pytest.mark.slow
TAKEN = [
    ("classify", "adapter"), ("reward", "merged"), pytest.param("classify", "merged", marks=SLOW),
    pytest.param("reward", "adapter", marks=SLOW), pytest.param("several", "adapter", marks=SLOW),
    pytest.param("number", "merged", marks=SLOW),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "form"), TAKEN)
def test_the_lines_of_the_card_give_the_scores_that_try_gives(
    kind: str, form: str, tmp_path: Path, llama: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make_run(tmp_path / kind, kind, llama)
    out, said = exported(made, form)
    turns = (
        [("user", "What is a bow?"), ("assistant", "A stick with hair.")] if kind == "reward" else [("user", "A text.")]
    )
    expected = tried(made, *turns)
    shown = carded(out, llama, capsys)
    assert list(shown) == list(expected) == list(LABELS[kind].names)
    # Merged weights are rounded to 16 bits.
    close = {"rel": 1e-4} if form == "adapter" else {"rel": 0.05, "abs": 0.03}
    assert list(shown.values()) == pytest.approx(list(expected.values()), **close)
    (told,) = said.of("exported")
    assert any("named" in check for check in told.checks)
    card = (out / "README.md").read_text("utf-8")
    for words in ("pipeline_tag: text-classification", "after step 12: 0.5000, accuracy 75.0%, macro F1 0.700"):
        assert words in card
    names = {path.name for path in out.iterdir()}
    assert "generation_config.json" not in names
    assert ("chat_template.jinja" in names) == (kind == "reward")
    assert ("labels.json" in names) == (form == "adapter")


def test_a_merged_classifier_is_a_pipeline_with_its_labels(tmp_path: Path, llama: Path) -> None:
    made = make_run(tmp_path / "run", "classify", llama)
    out, _ = exported(made, "merged")
    config = json.loads((out / "config.json").read_text("utf-8"))
    assert config["architectures"] == ["LlamaForSequenceClassification"]
    assert config["label2id"] == {"bad": 0, "good": 1, "so `so`": 2}
    assert config["problem_type"] == "single_label_classification"
    tensors = load_file(out / "model.safetensors")
    assert "lm_head.weight" not in tensors
    assert tensors["score.weight"].dtype == tensors["model.norm.weight"].dtype == torch.bfloat16
    _, report = AutoModelForSequenceClassification.from_pretrained(out, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    said = pipeline("text-classification", model=str(out), top_k=None)(
        ["A text.", "A much longer text, with more."], batch_size=2
    )
    expected = tried(made, ("user", "A text."))
    assert {one["label"]: one["score"] for one in said[0]} == pytest.approx(expected, abs=0.03)


def test_an_encoder_is_taken_home_whole_in_its_own_32_bits(tmp_path: Path, bert: Path) -> None:
    made = make_run(tmp_path / "run", "classify", bert, "everything")
    out, said = exported(made, "whole")
    kept = load_file(made[0].checkpoints / "step-000012" / "model" / "model.safetensors")
    tensors = load_file(out / "model.safetensors")
    assert tensors.keys() == kept.keys()
    assert all(tensor.equal(kept[name]) for name, tensor in tensors.items())
    assert "Weights (float32), all of them finetuned," in (out / "README.md").read_text("utf-8")
    told = pipeline("text-classification", model=str(out), top_k=None)(["w3 w4", "w5 w6 w7 w8"], batch_size=2)
    assert {one["label"]: one["score"] for one in told[0]} == pytest.approx(tried(made, ("user", "w3 w4")), rel=1e-4)
    (event,) = said.of("exported")
    assert any("largest difference 0.0000" in check for check in event.checks)


def test_a_decoder_trained_whole_is_taken_home_in_16_bits(tmp_path: Path, llama: Path) -> None:
    made = make_run(tmp_path / "run", "classify", llama, "everything")
    out, _ = exported(made, "whole")
    model = AutoModelForSequenceClassification.from_pretrained(out, dtype="auto")
    assert model.dtype == torch.bfloat16
    assert model.config.id2label == {0: "bad", 1: "good", 2: "so `so`"}
    said = pipeline("text-classification", model=str(out), top_k=None)(["A text."])
    assert {one["label"]: one["score"] for one in said[0]} == pytest.approx(tried(made, ("user", "A text.")), abs=0.05)


@pytest.fixture(scope="module")
def taken_home(tmp_path_factory: pytest.TempPathFactory, llama: Path) -> dict[str, Path]:
    """One classifier as an adapter and merged, not checked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export_room, "_verify", lambda *_: Verified(()))
        made = make_run(tmp_path_factory.mktemp("run") / "run", "classify", llama)
        forms = {form: exported(made, form)[0] for form in ("adapter", "merged")}
    return {**forms, "trained": made[0].checkpoints / "step-000012" / "adapter"}


def spoil_head(folder: Path) -> None:
    (file,) = folder.glob("*model.safetensors")
    weights = load_file(file)
    name = next(name for name in weights if name.endswith("score.weight"))
    save_file({**weights, name: weights[name].flip(0).contiguous()}, file, metadata={"format": "pt"})


def spoil_names(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["id2label"] = {"0": "good", "1": "bad", "2": "so `so`"}
    (folder / "config.json").write_text(json.dumps(config))


def spoil_padding(folder: Path) -> None:
    """A batch is then pooled at its padding."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "pad_token_id": 5}))


@pytest.mark.parametrize(
    ("form", "spoil", "words"),
    [
        ("adapter", spoil_head, "differ from"),
        ("merged", spoil_head, "scores differ"),
        ("merged", spoil_names, "names the scores"),
        ("merged", spoil_padding, "scores"),
    ],
)
def test_a_wrong_export_is_found(
    form: str, spoil: Callable[[Path], None], words: str, taken_home: dict[str, Path], llama: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(taken_home[form], copied)
    settings = LABELS["classify"].settings()
    settings["id2label"] = {str(number): name for number, name in settings["id2label"].items()}
    examples = [["A fine bow."], ["It has four strings, and is very old."]]
    scores = {"settings": settings, "pad_id": 0, "special": True, "examples": examples}
    request = {
        "form": form, "class": "AutoModelForSequenceClassification", "folder": str(copied), "scores": scores,
        "base": str(llama), "trained": str(taken_home["trained"]),
    }  # fmt: skip
    spoil(copied)
    with pytest.raises(ValueError, match=words):
        verify.CHECKS[form](request)
