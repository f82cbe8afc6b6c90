"""On a card: a window that cannot fit goes on in smaller passes, and the largest step is tried before the first."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from dying_log import Log
from memory_faults import apart, with_trainer
from tiny_run import WORDS, make_model, raw_config, weights

from core.contract.config import RunConfig
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import dump_config
from core.train.channel.command_queue import NoCommands
from core.train.run import train
from core.train.safety import oom_recovery

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card here")]

MIB = 2**20
CUBLAS_BYTES = 64 * MIB
CLOSE = 1e-4
"""Of the norm: sums in another order, on a card that orders some of them as it likes."""


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Rows of about 200 tokens, 32 of them a step, in float32: a window of some hundred MiB over a model of nothing."""
    root = tmp_path_factory.mktemp("memory")
    model = make_model(root / "model", hidden_size=256, intermediate_size=1024)
    rows = [
        {"prompt": " ".join(WORDS[(n + k) % len(WORDS)] for k in range(190 + n % 9)), "completion": WORDS[n % 7] * 3}
        for n in range(110)
    ]
    data = root / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    raw = raw_config(model, data)
    raw["data"].update(train_on="everything")
    raw["train"].update(max_length=256, per_device_train_batch_size=16, max_steps=3, eval_steps=1000, save_steps=1000)
    raw["train"].update(tokens_per_pass=100_000, kernels="plain", learning_rate=1e-3)
    return raw


@pytest.fixture(autouse=True)
def uncapped() -> Iterator[None]:
    """Whatever a test did, the next one has the whole card and nothing of this one."""
    yield
    torch.cuda.set_per_process_memory_fraction(1.0, 0)
    gc.collect()
    torch.cuda.empty_cache()


def run(raw: dict[str, Any], path: Path, patch: pytest.MonkeyPatch, room_bytes: int = 0) -> tuple[JobFolder, Log, int]:
    """A run with so much room above its weights (0: the whole card); also the room that it took at most."""
    path.mkdir(parents=True)
    (path / "run.yaml").write_text(dump_config(RunConfig.model_validate(raw)), encoding="utf-8")
    folder, begin = JobFolder(path), [0]

    def cap(_trainer: Any) -> None:
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()  # an earlier test's would be room that this run has for nothing
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        begin[0] = torch.cuda.memory_allocated()
        if room_bytes:
            total = torch.cuda.mem_get_info()[1]
            share = (torch.cuda.memory_reserved() + room_bytes) / total
            torch.cuda.set_per_process_memory_fraction(share, 0)

    log = Log(folder)
    with patch.context() as inner:
        with_trainer(inner, cap)
        train(folder, log, NoCommands())
    return folder, log, torch.cuda.max_memory_allocated() - begin[0]


@pytest.fixture(scope="module")
def whole(
    parts: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], dict[int, Any], int]:
    """The undisturbed run, without a rehearsal: adapter, losses and the room above its weights."""
    patch = pytest.MonkeyPatch()
    patch.setattr(oom_recovery, "tries_the_largest", lambda _device: False)
    patch.setenv("LUTHIER_HOME", str(tmp_path_factory.mktemp("home")))  # made before any test has a home of its own
    folder, log, room = run(parts, tmp_path_factory.mktemp("runs") / "whole", patch)
    patch.undo()
    assert not log.of("correction")
    return weights(folder), log.losses(), room


@pytest.mark.parametrize("rehearses", [False, True])
def test_a_window_that_cannot_fit_goes_on_in_smaller_passes(
    rehearses: bool, parts: dict[str, Any], whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, losses, room = whole
    assert room > 3 * CUBLAS_BYTES, "the window is what fills the card"
    monkeypatch.setattr(oom_recovery, "tries_the_largest", lambda _device: rehearses)
    less = CUBLAS_BYTES + (room - CUBLAS_BYTES) // 3
    folder, log, taken = run(parts, tmp_path / "capped", monkeypatch, less)
    corrections = log.of("correction")
    assert corrections
    assert corrections[0].key == "train.tokens_per_pass"
    assert "card's memory ran out in a pass of" in corrections[0].reason
    steps = log.of("step")
    assert corrections[-1].at - log.of("plan")[0].at < 30
    assert steps[0].at - corrections[-1].at < 30
    kinds = [event.kind for event in log.said]
    assert kinds.index("correction") < kinds.index("step"), "found before the first step, or in it"
    texts = [event.text for event in log.of("stage")]
    assert ("Trying the largest step" in texts) == rehearses
    assert taken < room
    assert [*log.losses()] == [1, 2, 3]
    for step, loss in losses.items():
        assert log.losses()[step] == pytest.approx(loss, rel=CLOSE)
    assert apart(weights(folder), adapter) < CLOSE


def test_a_rehearsal_on_a_card_changes_nothing(
    parts: dict[str, Any], whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, losses, _ = whole
    folder, log, _ = run(parts, tmp_path / "tried", monkeypatch)
    assert "Trying the largest step" in [event.text for event in log.of("stage")]
    assert not log.of("correction")
    assert log.losses() == pytest.approx(losses, rel=1e-5)
    assert apart(weights(folder), adapter) < CLOSE


def test_a_budget_that_was_promised_too_much_is_lowered(
    parts: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps as many layers as fit into what it was told, however small a pass is; the card has less than that."""
    raw = json.loads(json.dumps(parts))
    raw["train"].update(kernels="auto", checkpointing="budget", memory_gib=4.0)
    raw["model"].update(dtype="bfloat16")
    folder, log, _ = run(raw, tmp_path / "budget", monkeypatch, CUBLAS_BYTES + 40 * MIB)
    keys = {correction.key for correction in log.of("correction")}
    assert {"train.memory_gib", "train.tokens_per_pass"} <= keys
    assert [*log.losses()] == [1, 2, 3]
    assert torch.stack([tensor.isfinite().all() for tensor in weights(folder).values()]).all()
