"""On a card: a QLoRA run end to end, with 8-bit AdamW and swapped layers, interrupted and taken up again."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import encoder_cases
import pytest
import torch
from dying_log import Killed, Log
from tiny_run import make_in

from core.chat.generator import load_chat_model
from core.chat.messages import Ask, Setup
from core.contract.config import RunConfig
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import dump_config
from core.train.channel.command_queue import NoCommands
from core.train.keep import checkpoint
from core.train.run import train

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card here")]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The tiny model and data of the tests of training, with heads of 64 as FlashAttention wants."""
    root = tmp_path_factory.mktemp("gpu")
    make_in(str(root), hidden_size=256, intermediate_size=512)
    raw: dict[str, Any] = json.loads((root / "run.json").read_text())
    raw["model"].update(quantization="nf4", dtype="bfloat16")
    raw["train"].update(optim="adamw_8bit", max_steps=8, eval_steps=4, save_steps=2, tokens_per_pass=128)
    raw["train"].update(learning_rate=2e-3, checkpointing="recompute")
    # Without dropout our layers run; at rank 32 the matrices are large enough for 8-bit moments (4,096 values).
    raw["lora"] = {**raw.get("lora", {}), "r": 32, "lora_dropout": 0.0}
    return raw


def folder_for(raw: dict[str, Any], path: Path) -> JobFolder:
    path.mkdir(parents=True)
    (path / "run.yaml").write_text(dump_config(RunConfig.model_validate(raw)), encoding="utf-8")
    return JobFolder(path)


@pytest.mark.parametrize("kernels", ["auto", "plain"])
def test_qlora_trains_and_goes_on_after_a_kill(parts: dict[str, Any], tmp_path: Path, kernels: str) -> None:
    raw = {**parts, "train": {**parts["train"], "kernels": kernels}}
    whole, broken = folder_for(raw, tmp_path / "whole"), folder_for(raw, tmp_path / "broken")
    first = Log(whole)
    train(whole, first, NoCommands())
    plan = next(event for event in first.said if event.kind == "plan")
    assert plan.dtype == "bfloat16"
    assert plan.fast == (kernels == "auto"), plan.lines
    assert list(first.losses()) == list(range(1, 9))
    assert all(math.isfinite(loss) for loss in first.losses().values())
    step = next(event for event in first.said if event.kind == "step")
    assert step.memory_bytes
    assert step.reserved_bytes
    assert step.reserved_bytes >= step.memory_bytes
    newest = checkpoint.latest_good(whole)
    assert newest
    state = (newest / "optimizer.json").read_text()
    assert "qmap1" in state or "absmax1" in state, "8-bit moments are in the checkpoint"

    with pytest.raises(Killed):
        train(broken, Log(broken, 1, lambda event: event.kind == "step" and event.step == 5), NoCommands())
    resumed = Log(broken, 2)
    train(broken, resumed, NoCommands())
    assert list(resumed.losses()) == [5, 6, 7, 8]
    for step_number, loss in resumed.losses().items():
        # Sums on a card have no fixed order; on the CPU this is an equality, and tested as one.
        assert loss == pytest.approx(first.losses()[step_number], rel=2e-3)


def test_float16_scales_its_gradients_and_keeps_the_scale(parts: dict[str, Any], tmp_path: Path) -> None:
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)  # one precision a process, which a worker is and a test run is not
    raw = {**parts, "model": {**parts["model"], "dtype": "float16"}}
    folder = folder_for(raw, tmp_path / "half")
    log = Log(folder)
    train(folder, log, NoCommands())
    assert all(math.isfinite(loss) for loss in log.losses().values())
    newest = checkpoint.latest_good(folder)
    assert newest
    assert json.loads((newest / "scaler.json").read_text())["scale"] > 0


@pytest.mark.parametrize("clip", [1000.0, 1e-3])
def test_a_step_waits_for_the_card_once(parts: dict[str, Any], tmp_path: Path, clip: float) -> None:
    """torch itself warns at each wait (a read, a copy from pageable memory) between the words on steps 4 and 5.

    bitsandbytes' own ``torch.cuda.synchronize`` after each tensor is not among these warnings: there are few tensors.
    """
    train_part = {**parts["train"], "eval_steps": 1000, "save_steps": 1000, "max_grad_norm": clip}
    caught: list[warnings.WarningMessage] = []
    with warnings.catch_warnings(record=True) as kept:
        warnings.simplefilter("always")

        def watch(event: Any) -> bool:
            if event.kind == "step" and event.step == 4:
                torch.cuda.set_sync_debug_mode("warn")
                kept.clear()
            elif event.kind == "step" and event.step == 5:
                torch.cuda.set_sync_debug_mode("default")
                caught.extend(kept)
            return False

        folder = folder_for({**parts, "train": train_part}, tmp_path / "once")
        log = Log(folder, 1, watch)
        try:
            train(folder, log, NoCommands())
        finally:
            torch.cuda.set_sync_debug_mode("default")
    waits = [f"{w.filename}:{w.lineno}" for w in caught if "called a synchronizing CUDA operation" in str(w.message)]
    assert len(waits) == 1, waits
    assert waits[0].rpartition(":")[0].endswith("core/train/step/trainer.py"), waits
    newest = checkpoint.latest_good(folder)
    assert newest
    tensors = (newest / "optimizer.json").read_text().count('"state1"')
    assert 1 <= tensors <= 4, "one flat tensor in 8 bits, and some small ones"


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_texts_are_sorted(parts: dict[str, Any], tmp_path: Path, kind: str) -> None:
    """A decoder by an adapter over NF4, an encoder whole, in bfloat16 products."""
    rows = tmp_path / "labels.jsonl"
    rows.write_text("".join(
        json.dumps({"text": f"w{number % 19} the {('cat', 'dog')[number % 2]} w{20 + number % 2}", "label": number % 2})
        + "\n" for number in range(80)
    ))  # fmt: skip
    raw = {**parts, "method": "classify", "data": {**parts["data"], "path": str(rows), "layout": "classification"}}
    raw["train"] = {**raw["train"], "max_steps": 40, "eval_steps": 20, "save_steps": 40, "learning_rate": 1e-2}
    if kind == "encoder":
        model = encoder_cases.save_tiny(tmp_path / "bert", "bert", hidden_size=64, max_position_embeddings=80)
        raw["model"] = {**raw["model"], "name": str(model), "quantization": "none"}
        raw["train"] = {**raw["train"], "learns": "everything", "learning_rate": 2e-3}
    folder = folder_for(raw, tmp_path / "run")
    log = Log(folder)
    train(folder, log, NoCommands())
    first, *_, last = log.of("evaluation")
    assert last.loss < first.loss, log.of("evaluation")
    assert last.accuracy == 1.0, log.of("evaluation")
    assert last.macro_f1 == 1.0
    config, newest = folder.config(), folder.newest_checkpoint()
    assert newest
    setup = Setup(
        folder=config.model.name, model=config.model, data=config.data, learns=config.train.learns, home="",
        trained=str(newest / config.learns.folder), method="classify", max_length=config.train.max_length,
    )  # fmt: skip
    asked = Ask.model_validate({"id": "a", "messages": [{"role": "user", "content": "w3 the dog w21"}]})
    (piece,) = load_chat_model(setup).pieces(asked, "tuned", lambda: False)
    assert piece.text.startswith("1 "), piece
