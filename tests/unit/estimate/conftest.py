"""Machines, models and data of known size, so that every estimate here is arithmetic."""

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.machine.hardware import Gpu, Machine
from core.models.catalog import catalogue

GIB = 1024**3
CPU = Machine((), 2, 24 * GIB, 20 * GIB, 100 * GIB, "Linux", wsl=False)
SPECS = {spec.key: spec.model_copy(update={"cached": False, "folder": ""}) for spec in catalogue()}
"""The catalogue as on a machine that has nothing cached."""


def card(
    free_gib: float | None, capability: tuple[int, int] | None = (8, 6), name: str = "NVIDIA GeForce RTX 3060"
) -> Machine:
    """A machine with one card of this much free memory (None: the driver does not say)."""
    free = None if free_gib is None else int(free_gib * GIB)
    gpu = Gpu(0, "GPU-1", name, None if free is None else free + GIB, free, capability)
    return Machine((gpu,), 8, 32 * GIB, 24 * GIB, 100 * GIB, "Linux", wsl=False)


def rows(lengths: tuple[int, ...], max_length: int = 2048, trained: tuple[int, ...] | None = None) -> DataFacts:
    """Facts of rows with these lengths; half of each is trained."""
    return DataFacts(
        rows=len(lengths), lengths=lengths, max_length=max_length, longest=max(lengths),
        trained=trained or tuple(min(length, max_length) // 2 for length in lengths), mean=sum(lengths) / len(lengths),
    )  # fmt: skip


def model(key: str) -> ModelSpec:
    """A model of the catalogue."""
    return SPECS[key]


def changed(config: RunConfig, changes: dict[str, str]) -> RunConfig:
    """The config with changes by dotted key, read from text as a window reads them."""
    raw = config.model_dump()
    for key, value in changes.items():
        part, _, field = key.partition(".")
        raw[part][field] = value
    return RunConfig.model_validate(raw)
