"""Readings: a step's time, this process's memory, and the card's own sensors."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psutil
import torch

from core.machine.hardware import GpuReading, read_gpu


@dataclass(frozen=True)
class Lap:
    """A step's real tokens and its seconds."""

    tokens: int = 0
    seconds: float = 0.0

    @property
    def tokens_per_second(self) -> float | None:
        """None where no time passed."""
        return self.tokens / self.seconds if self.seconds > 0 else None


class Meter:
    """Times steps, from the end of the one before and without what ran ``aside``.

    While entered it reads the card once a second, on a thread of its own: NVML may take long.
    """

    def __init__(self, card_uuid: str = "", others: Sequence[str] = ()) -> None:
        self._uuid, self._others = card_uuid, tuple(others)
        self.card = GpuReading()
        """The newest reading; all None without a card."""
        self.others = tuple(GpuReading() for _ in others)
        """Those of the cards beside it, in the order of their ranks."""
        self.last = Lap()
        self._closed = threading.Event()
        self._begun, self._aside = time.perf_counter(), 0.0

    def __enter__(self) -> Meter:
        if self._uuid:
            threading.Thread(target=self._watch, name="card", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def restart(self) -> None:
        """The next step begins now."""
        self._begun, self._aside = time.perf_counter(), 0.0

    def lap(self, tokens: int) -> Lap:
        """This step so far; it becomes the last one."""
        self.last = Lap(tokens, max(0.0, time.perf_counter() - self._begun - self._aside))
        return self.last

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Leaves the block (an evaluation, checkpoint or sample) out of the step's time."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._aside += time.perf_counter() - begun

    def _watch(self) -> None:
        while not self._closed.is_set():
            self.card = read_gpu(self._uuid)
            self.others = tuple(map(read_gpu, self._others))
            self._closed.wait(1.0)


def context_bytes(device: torch.device) -> int | None:
    """Card memory used outside torch's allocator, other programs included; None on the CPU."""
    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    return int(total - free - torch.cuda.memory_reserved(device))


def held_bytes(device: torch.device) -> int:
    """Card memory that torch's allocator holds now."""
    return int(torch.cuda.memory_stats_as_nested_dict(device)["reserved_bytes"]["all"]["current"])


def peak_bytes(device: torch.device) -> tuple[int, int | None]:
    """Peaks of tensors on the card and of torch's allocator, gaps included; on the CPU the resident size now, and None.

    Asked after every step, while the card waits: so once, and nested, since flattening the answer takes longer.
    """
    if device.type != "cuda":
        return int(psutil.Process(os.getpid()).memory_info().rss), None
    counted = torch.cuda.memory_stats_as_nested_dict(device)
    return int(counted["allocated_bytes"]["all"]["peak"]), int(counted["reserved_bytes"]["all"]["peak"])
