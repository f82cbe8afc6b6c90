"""What would help this machine: each finding is one line and one action.

A pure function of what was read (``Machine`` and a few probes), so that machines nobody here owns can be tested from
recordings. Nothing is loaded and nothing is changed.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.hardware import Machine

__all__ = ["Finding", "Surroundings", "findings", "read_surroundings"]

GIB = 1 << 30


@dataclass(frozen=True)
class Finding:
    """One thing noticed. ``action`` is empty where nothing is to be done."""

    level: Literal["fine", "advice", "fault"]
    code: str
    text: str
    action: str = ""


@dataclass(frozen=True)
class Surroundings:
    """What matters beside the hardware: tools that Triton's first kernel wants, and where the root folder lies."""

    compiler: str | None
    python_header: bool
    home: Path
    hub_reachable: bool | None = None


def read_surroundings(home: Path) -> Surroundings:
    """Looks for a C compiler on PATH (or $CC) and for Python.h of this interpreter."""
    names = (os.environ.get("CC", ""), "gcc", "clang", "cc")
    compiler = next((found for name in names if name and (found := shutil.which(name))), None)
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return Surroundings(compiler, header.exists(), home)


def findings(machine: Machine, around: Surroundings) -> list[Finding]:
    """Everything worth saying, faults first."""
    order = {"fault": 0, "advice": 1, "fine": 2}
    found = [*_card(machine), *_kernels(machine, around), *_memory(machine), *_disk(machine, around)]
    return sorted(found, key=lambda finding: order[finding.level])


def _card(machine: Machine) -> Iterator[Finding]:
    card = machine.gpu
    if card is None:
        where = "in Windows (WSL uses the Windows driver)" if machine.wsl else "for your card"
        yield Finding(
            "advice", "gpu.none", f"No NVIDIA GPU answers ({machine.gpu_problem}): everything works, training is slow.",
            "Set up again with a CUDA build: python3 launcher.py --torch cu128 (or cu126, cu130)."
            if "CPU build" in machine.gpu_problem
            else f"If there is one, install a current NVIDIA driver {where} and start again.",
        )  # fmt: skip
        return
    size = f"{card.total_bytes / GIB:.0f} GB" if card.total_bytes else "unknown memory"
    yield Finding("fine", "gpu.found", f"{card.name}, {size}, driver {card.driver or 'unknown'}.")
    if card.compute_capability and card.compute_capability < (7, 5):
        yield Finding(
            "advice", "gpu.old", f"{card.name} is older than the fast kernels know (compute capability 7.5).",
            "Runs take the plain path: right, but slower.",
        )  # fmt: skip
    elif card.compute_capability and not card.bf16:
        yield Finding("fine", "gpu.fp16", f"{card.name} has no bfloat16: runs use float16.")
    if card.total_bytes and card.free_bytes is not None and card.free_bytes < 0.75 * card.total_bytes:
        held = (card.total_bytes - card.free_bytes) / GIB
        yield Finding(
            "advice", "gpu.busy", f"Other programs hold {held:.1f} of {card.total_bytes / GIB:.1f} GB of the card.",
            "Close games, browsers with video and other notebooks before a large run.",
        )  # fmt: skip


def _kernels(machine: Machine, around: Surroundings) -> Iterator[Finding]:
    if machine.gpu is None:
        return
    if around.compiler and around.python_header:
        yield Finding(
            "fine", "kernels.tools", "A C compiler and Python's headers are there: fast kernels can be built."
        )
        return
    missing = "a C compiler" if not around.compiler else "Python's headers"
    yield Finding(
        "advice", "kernels.tools", f"Triton wants {missing}, found none: runs take the plain, slower path.",
        "sudo apt install gcc python3-dev",
    )  # fmt: skip


def _memory(machine: Machine) -> Iterator[Finding]:
    total, free = machine.ram_total_bytes / GIB, machine.ram_free_bytes / GIB
    if total < 8:
        cure = "Raise 'memory=' in .wslconfig, then: wsl --shutdown" if machine.wsl else "Prefer models up to 1B."
        yield Finding("advice", "ram.small", f"This machine has {total:.1f} GB of memory; loading a 7B wants 8.", cure)
    elif free < 2:
        yield Finding("advice", "ram.low", f"Only {free:.1f} GB of memory is free.", "Close other programs first.")
    else:
        yield Finding(
            "fine", "ram", f"{free:.1f} of {total:.1f} GB of memory are free, {machine.cpu_count} processor cores."
        )


def _disk(machine: Machine, around: Surroundings) -> Iterator[Finding]:
    free = machine.disk_free_bytes
    if free is None:
        yield Finding(
            "advice", "disk.unknown", f"The free disk at {around.home} cannot be read.", "Check that it is mounted."
        )
    elif free < 2 * GIB:
        yield Finding(
            "fault", "disk.full", f"Only {free / GIB:.1f} GB of disk are free at {around.home}.",
            "Make room, or move the root folder: --home DIR.",
        )  # fmt: skip
    elif free < 20 * GIB:
        yield Finding(
            "advice", "disk.low", f"{free / GIB:.0f} GB of disk are free; a 7B takes 15, its merge 15 more.",
            "Make room before a large download, or move the root folder: --home DIR.",
        )  # fmt: skip
    else:
        yield Finding("fine", "disk", f"{free / GIB:.0f} GB of disk are free at {around.home}.")
    if machine.wsl and around.home.is_relative_to("/mnt"):
        yield Finding(
            "advice", "disk.mnt", f"{around.home} lies on the Windows disk, which WSL reads slowly.",
            "Keep runs in the Linux home: --home ~/luthier-studio",
        )  # fmt: skip
