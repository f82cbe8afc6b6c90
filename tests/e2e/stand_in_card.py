"""Cards for a studio on a machine without one: a driver's answers, and a PyTorch that is no CPU build, on PYTHONPATH.

The studio then judges, proposes and says everything as beside such cards. No run may be started: nothing computes.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["stand_in_card"]

DRIVER = """
from types import SimpleNamespace

CARDS = {cards!r}

def nvmlInit(): ...
def nvmlShutdown(): ...
def nvmlDeviceGetCount(): return len(CARDS)
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetHandleByUUID(uuid): return int(uuid[-1])
def nvmlDeviceGetUUID(card): return f"GPU-stands-in-{{card}}"
def nvmlDeviceGetName(card): return CARDS[card][0]
def nvmlDeviceGetMemoryInfo(card):
    total = CARDS[card][1] << 30
    return SimpleNamespace(total=total, free=total - (1 << 30), used=1 << 30)
def nvmlDeviceGetUtilizationRates(card): return SimpleNamespace(gpu=0)
def nvmlDeviceGetTemperature(card, kind): return 40
def nvmlDeviceGetPowerUsage(card): return 30_000
def nvmlDeviceGetCudaComputeCapability(card): return 8, 9
def nvmlDeviceGetEnforcedPowerLimit(card): return 200_000
def nvmlSystemGetDriverVersion(): return "580.65"
"""


def stand_in_card(
    folder: Path, gib: int = 12, name: str = "NVIDIA GeForce RTX 4070", *more: tuple[str, int]
) -> dict[str, str]:
    """Environment variables under which a studio finds a card of so many GB, one of them in use; and ``more`` by name
    and GB."""
    (folder / "pynvml.py").write_text(DRIVER.format(cards=[(name, gib), *more]), encoding="utf-8")
    build = folder / "torch-2.11.0+cu128.dist-info"
    build.mkdir()
    (build / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0+cu128\n", encoding="utf-8")
    return {"PYTHONPATH": str(folder)}
