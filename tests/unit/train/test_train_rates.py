"""How fast weights come to the cards, as a run measures it, and what its line tells the next plan."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest
import torch

from core.contract.config import RunConfig
from core.contract.estimate import LearnedRun
from core.estimate import estimate
from core.estimate.learned import Learned
from core.machine.hardware import Gpu, Machine
from core.model.streaming import ring
from core.model.streaming.host_pages import HostPages
from core.models.catalog import catalogue
from core.train import setup
from tests.unit.estimate.conftest import GIB, rows

SPEC = next(spec for spec in catalogue() if spec.key == "llama-3.3-70b")
CARD = Gpu(0, "GPU-0", "NVIDIA H200", 17 * GIB, 16 * GIB, (9, 0))
MACHINE = Machine((CARD,) * 4, 8, 128 * GIB, 96 * GIB, None, "Linux", wsl=False).choosing("all")
FACTS = rows((1024,) * 40, 1024)
CONFIG = RunConfig.model_validate(
    {"model": {"streamed_layers": 78}, "train": {"cards": "all", "max_length": 1024, "per_device_train_batch_size": 4}}
)
RATE = 45e9


def ranks_with(*others: list[float]) -> Any:
    """Rank 0, and what the others say of themselves."""
    return SimpleNamespace(count=1 + len(others), heard=lambda mine: [list(mine), *others], sum=lambda tensor: tensor)


def ended(*others: tuple[str, int]) -> LearnedRun:
    """The line of a run on this card and others, at 2,535 tokens a second."""
    ranks, data = ranks_with(*([crc32(name.encode()), size] for name, size in others)), SimpleNamespace(facts=FACTS)
    line = setup._predicted(CONFIG, SPEC, data, MACHINE, ranks, RATE)  # type: ignore[arg-type]
    return line.model_copy(update={"measured_tokens_per_second": 2535.0, "steps": 9, "kernels": "fast"})


def test_a_runs_own_line_gives_back_its_own_speed() -> None:
    line = ended(*[(CARD.name, 17 * GIB)] * 3)
    assert (line.cards, line.streamed, line.copy_bytes_a_second) == (4, 78, RATE)
    told = estimate(CONFIG, SPEC, FACTS, MACHINE, Learned((line,)))
    assert told.tokens_per_second == pytest.approx((0.9 * 2535, 1.1 * 2535), rel=1e-6)


def test_unlike_ranks_leave_no_speed_and_no_copy_rate() -> None:
    """Rank 0 knows its own card alone: under that name alike ones would be planned."""
    alike = ended(*[(CARD.name, 17 * GIB)] * 3)
    for other in (("NVIDIA H100", 17 * GIB), (CARD.name, 12 * GIB)):
        line = ended((CARD.name, 17 * GIB), other, other)
        assert (line.cards, line.copy_bytes_a_second, line.predicted_bytes) == (4, 0.0, alike.predicted_bytes)
        assert Learned((line,)).rates(alike) is None
        crowd = Learned((alike, *[line] * 9))
        assert crowd.rates(alike) == Learned((alike,)).rates(alike), "nor does it take another's place"


def test_a_copy_rate_is_that_of_the_slowest_link(monkeypatch: pytest.MonkeyPatch) -> None:
    def rate(here: int, mine: float, *others: float) -> float:
        monkeypatch.setattr(setup, "ring_of", lambda _model: SimpleNamespace(rate=lambda: mine))
        return setup.copy_rate_of(None, ranks_with(*([other] for other in others)), here)

    assert [rate(1, 20e9), rate(3, 49e9, 12e9, 48e9), rate(2, 49e9, 12e9, 48e9)] == [20e9, 12e9, 0.0]
    monkeypatch.setattr(setup, "ring_of", lambda _model: None)
    assert setup.copy_rate_of(None, ranks_with(), 1) == 0.0


def test_of_a_cards_copies_the_median_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last may be the fastest because other cards are done."""
    through = ring.Ring([HostPages(pin=False).span(4096)], torch.device("cpu"))
    through._stream = SimpleNamespace(synchronize=lambda: None)  # type: ignore[assignment]
    clock = iter((0.0, 4.0, 10.0, 12.0, 20.0, 21.0))
    monkeypatch.setattr(through, "hold", lambda _number: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _device: None)
    monkeypatch.setattr(ring, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert through.rate() == through.spans[0].size / 2
