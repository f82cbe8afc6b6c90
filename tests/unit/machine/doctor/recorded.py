"""A machine out of a recording: the files, the words of nvidia-smi, NVML's answers and the rest, as JSON.

``files`` are laid under a folder that stands for ``/``; ``nodes`` are what merely exists. A text may be a list of
lines. What NVML's card leaves out is not supported there. ``hangs`` names who never answers.
"""

import contextlib
import json
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from core.machine.host import Host

MACHINES = sorted((Path(__file__).parent / "machines").glob("*.json"))
GIB = 1 << 30


class Recorded(Host):
    """Answers as that machine did; no word goes to this one."""

    def __init__(self, said: dict[str, Any], root: Path) -> None:
        self.said, self.root = said, root
        self.system, self.python = said["system"], tuple(said["python"])
        self.environment = said["environment"]
        self.never = threading.Event()

    def run(self, command: Sequence[str]) -> str:
        """As Host.run; where it hangs, as a program that the kernel never lets go of."""
        name = command[0].rpartition("/")[2]
        if name in self.said.get("hangs", ()):
            self.never.wait(60)
            return ""
        answers = self.said["nvidia-smi"] or {}
        question = command[1].partition("=")[0] if len(command) > 1 else ""
        return _text(answers.get(question, "")) if name == "nvidia-smi" else ""

    def compiler(self) -> str | None:
        return self.said["compiler"]

    def python_header(self) -> bool:
        return self.said["python_header"]

    def cpu_count(self) -> int:
        return 16

    def memory(self) -> tuple[int, int]:
        if "memory_gb" in self.said:
            total, free = self.said["memory_gb"]
            return total * GIB, free * GIB
        found = dict(re.findall(r"^(\w+):\s+(\d+) kB$", self.text("/proc/meminfo"), re.MULTILINE))
        return int(found["MemTotal"]) << 10, int(found["MemAvailable"]) << 10

    def free_bytes(self, folder: Path) -> int | None:
        return int(self.said["disk_free_gb"] * GIB)

    def writable(self, folder: Path) -> bool:
        return self.said.get("writable", True)

    def seconds_ahead(self, folder: Path) -> float:
        return self.said.get("newest_log_seconds_ahead", -60.0)

    def torch_build(self) -> str:
        return self.said["torch"]

    def xformers(self) -> tuple[str, str]:
        return tuple(self.said.get("xformers", ("", "")))

    @contextlib.contextmanager
    def nvml(self) -> Iterator[Any]:
        if "nvml" in self.said.get("hangs", ()):
            self.never.wait(60)
        yield _nvml(self.said["nvml"]) if self.said["nvml"] else None


def load(path: Path, root: Path) -> tuple[dict[str, Any], Recorded]:
    """The recording and its Host."""
    said = json.loads(path.read_text("utf-8"))
    for name in said["nodes"]:
        (root / name.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for name, text in said["files"].items():
        file = root / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_text(text), "utf-8")
    return said, Recorded(said, root)


def _text(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "\n".join(text) + "\n"


def _nvml(said: dict[str, Any]) -> SimpleNamespace:
    """NVML of these cards; a handle is a card's dictionary, and what it lacks raises as NVML does."""
    cards = said["cards"]
    return SimpleNamespace(
        nvmlDeviceGetCount=lambda: len(cards),
        nvmlDeviceGetHandleByIndex=lambda index: cards[index],
        nvmlDeviceGetHandleByUUID=lambda uuid: next(card for card in cards if card["uuid"] == uuid),
        nvmlDeviceGetUUID=lambda card: card["uuid"],
        nvmlDeviceGetName=lambda card: card["name"],
        nvmlDeviceGetMemoryInfo=lambda card: SimpleNamespace(
            total=card["memory"][0], used=card["memory"][1], free=card["memory"][0] - card["memory"][1]
        ),
        nvmlDeviceGetCudaComputeCapability=lambda card: tuple(card["capability"]),
        nvmlDeviceGetEnforcedPowerLimit=lambda card: card["power_limit"],
        nvmlSystemGetDriverVersion=lambda: said["driver"],
    )
