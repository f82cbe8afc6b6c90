"""The bench on a card: both sides, every policy, and the cap. ``pytest -m gpu tests/gpu/test_bench_gpu.py``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from core.bench.setting import Setting
from core.bench.step import measure
from core.contract.errors import MachineError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card"),
]
SMALL = Setting(model="random:tiny", rows="dense:96", batch=2, accumulation=2, steps=3, warm_up=2, draw_b=True)


@pytest.fixture(autouse=True)
def _uncapped() -> Iterator[None]:
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize("policy", ["none", "recompute", "offload", "auto"])
def test_fast_trains_as_plain_does(policy: str) -> None:
    plain, fast = measure(replace(SMALL, plain=True)), measure(replace(SMALL, checkpointing=policy))
    assert any("layers fast" in line and not line.startswith("0") for line in fast["plan"]), fast["plan"]
    assert fast["losses"] == pytest.approx(plain["losses"], rel=2e-3)  # bfloat16: 8 bits of mantissa
    assert fast["grad_norms"] == pytest.approx(plain["grad_norms"], rel=5e-2)
    assert min(fast["grad_norms"]) > 0


def test_memory_is_read_and_the_card_is_named() -> None:
    found = measure(SMALL)
    assert 0 < found["peak_allocated_gib"] <= found["peak_reserved_gib"] <= found["whole_run_peak_reserved_gib"]
    assert found["peak_allocated_gib"] <= found["whole_run_peak_allocated_gib"]
    assert found["context_gib"] > 0
    assert found["capability"] == list(torch.cuda.get_device_capability())
    assert found["vram_total_gib"] > 1


def test_the_cap_holds() -> None:
    capped = measure(replace(SMALL, vram_gb=4.0, checkpointing="auto"))
    assert capped["peak_reserved_gib"] < 4.0
    torch.cuda.empty_cache()
    with pytest.raises(MachineError, match="found"):
        measure(replace(SMALL, vram_gb=2.0, plain=True, rows="dense:4096", batch=256, accumulation=1))
