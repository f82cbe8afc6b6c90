"""The size of a pass under a cap is the one that a run's plan would choose."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from core.bench import __main__ as bench
from core.bench.rows import BenchRows
from core.bench.setting import Setting
from core.bench.step import planned_tokens
from core.contract.config import RunConfig
from core.machine.hardware import Gpu, Machine
from core.train.step.rows import TextRows

GIB = 2**30
CARD = Gpu(0, "GPU-1", "NVIDIA H200", 141 * GIB, 139 * GIB, (9, 0))
MACHINE = Machine((CARD,), 16, 128 * GIB, 120 * GIB, 60 * GIB, "Linux", wsl=False)
SETTING = Setting(model="random:mistral-7b", batch=4, accumulation=2, checkpointing="auto", vram_gb=24)
CONFIG = RunConfig.model_validate(
    {"train": {"max_length": 2048, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}}
)


def rows(count: int, length: int) -> BenchRows:
    train = TextRows()
    for _ in range(count):
        train.append([1] * length, [1] * length)
    return BenchRows(train, TextRows(), 0, TextRows())


def test_more_memory_gives_longer_passes_of_whole_rows() -> None:
    budgets = [
        planned_tokens(replace(SETTING, vram_gb=vram), CONFIG, rows(16, 2048), MACHINE) for vram in (12.0, 24.0, 80.0)
    ]
    assert budgets == sorted(budgets)
    assert budgets[0] < budgets[1] < budgets[2] == 8 * 2048, "80 GiB keep a whole step"
    assert all(tokens % 2048 == 0 for tokens in budgets)


def test_a_shorter_model_leaves_room_for_more() -> None:
    data = rows(16, 2048)
    assert planned_tokens(replace(SETTING, layers=4), CONFIG, data, MACHINE) > planned_tokens(
        SETTING, CONFIG, data, MACHINE
    )


@pytest.mark.parametrize("changes", [{"vram_gb": 0.0}, {"checkpointing": "none"}])
def test_nothing_is_planned_that_was_not_asked_for_or_without_a_card(changes: dict[str, object]) -> None:
    assert planned_tokens(replace(SETTING, **changes), CONFIG, rows(16, 64), MACHINE) == 0  # type: ignore[arg-type]
    assert planned_tokens(SETTING, CONFIG, rows(16, 64), replace(MACHINE, gpus=())) == 0


@pytest.mark.parametrize(("gpus", "said"), [((CARD,), "expandable_segments:True"), ((), None)])
def test_the_allocator_is_set_as_workers_set_it(
    gpus: tuple[Gpu, ...], said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of rows that differ in length reserved three times what it allocated."""
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(bench, "read_machine", lambda: replace(MACHINE, gpus=gpus))
    assert bench.main(["step", "--model", "random:mistral-7b", "--layers", "-1"]) == 1
    assert os.environ.get("PYTORCH_ALLOC_CONF") == said
