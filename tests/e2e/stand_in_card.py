"""A card for a studio on a machine without one: a driver's answers, and a PyTorch that is no CPU build, on PYTHONPATH.

The studio then judges, proposes and says everything as beside such a card. No run may be started: nothing computes.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["stand_in_card"]

DRIVER = """
from types import SimpleNamespace

def nvmlInit(): ...
def nvmlShutdown(): ...
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetHandleByUUID(uuid): return 0
def nvmlDeviceGetUUID(card): return "GPU-stands-in"
def nvmlDeviceGetName(card): return {name!r}
def nvmlDeviceGetMemoryInfo(card): return SimpleNamespace(total={total}, free={free}, used={total} - {free})
def nvmlDeviceGetUtilizationRates(card): return SimpleNamespace(gpu=0)
def nvmlDeviceGetTemperature(card, kind): return 40
def nvmlDeviceGetPowerUsage(card): return 30_000
def nvmlDeviceGetCudaComputeCapability(card): return 8, 9
def nvmlDeviceGetEnforcedPowerLimit(card): return 200_000
def nvmlSystemGetDriverVersion(): return "580.65"
"""


def stand_in_card(folder: Path, gib: int = 12, name: str = "NVIDIA GeForce RTX 4070") -> dict[str, str]:
    """Environment variables under which a studio finds a card of so many GB, one of them in use."""
    facts = {"name": name, "total": gib << 30, "free": (gib - 1) << 30}
    (folder / "pynvml.py").write_text(DRIVER.format(**facts), encoding="utf-8")
    build = folder / "torch-2.11.0+cu128.dist-info"
    build.mkdir()
    (build / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0+cu128\n", encoding="utf-8")
    return {"PYTHONPATH": str(folder)}
