"""Machines and data of known size, so that every estimate here is arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core.contract.catalogue import ModelSpec
from core.contract.data import DataFacts
from core.machine.hardware import Gpu, Machine
from core.models.catalog import catalogue

GIB = 1024**3


def machine_of(
    free_gib: float | None, capability: tuple[int, int] | None = (8, 6), name: str = "NVIDIA GeForce RTX 3060"
) -> Machine:
    """A machine with one card of this much free memory (None: the driver does not say)."""
    free = None if free_gib is None else int(free_gib * GIB)
    card = Gpu(0, "GPU-1", name, None if free is None else free + GIB, free, capability)
    return Machine((card,), 8, 32 * GIB, 24 * GIB, 100 * GIB, "Linux", wsl=False)


def facts_of(lengths: tuple[int, ...], max_length: int = 2048, trained: tuple[int, ...] | None = None) -> DataFacts:
    """Facts of rows with these lengths; half of each is trained."""
    return DataFacts(
        rows=len(lengths),
        lengths=lengths,
        trained=trained or tuple(min(length, max_length) // 2 for length in lengths),
        max_length=max_length,
        longest=max(lengths),
        mean=sum(lengths) / len(lengths),
    )


@pytest.fixture
def card() -> Callable[..., Machine]:
    return machine_of


@pytest.fixture
def cpu() -> Machine:
    return Machine((), 2, 24 * GIB, 20 * GIB, 100 * GIB, "Linux", wsl=False)


@pytest.fixture
def rows() -> Callable[..., DataFacts]:
    return facts_of


@pytest.fixture
def model() -> Callable[[str], ModelSpec]:
    """A catalogue entry by key, as on a machine that has nothing cached."""
    entries = {spec.key: spec.model_copy(update={"cached": False, "folder": ""}) for spec in catalogue()}
    return entries.__getitem__
