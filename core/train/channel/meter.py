"""Readings: time of a step without what is no step, memory of this process, and what the card says of itself."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import torch

from core.machine.hardware import GpuReading, read_gpu


@dataclass(frozen=True)
class Lap:
    """One step as the meter saw it: its real tokens and its seconds."""

    tokens: int = 0
    seconds: float = 0.0

    @property
    def tokens_per_second(self) -> float | None:
        """None where no time passed."""
        return self.tokens / self.seconds if self.seconds > 0 else None


class Meter:
    """Times steps; while it is entered, asks the card (``card_uuid``) once a second from a thread of its own.

    NVML may take long, and a step must not wait for it. A step is timed from the end of the one before, without
    evaluations, checkpoints and samples in between.
    """

    def __init__(self, card_uuid: str = "") -> None:
        self._uuid = card_uuid
        self.card = GpuReading()
        """The newest reading; all None without a card."""
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
        """What happens inside belongs to no step."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._aside += time.perf_counter() - begun

    def _watch(self) -> None:
        while not self._closed.is_set():
            self.card = read_gpu(self._uuid)
            self._closed.wait(1.0)


def context_bytes(device: torch.device) -> int | None:
    """What is used on the card beside torch's allocator, other programs included; None on the CPU."""
    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    return int(total - free - torch.cuda.memory_reserved(device))


def held_bytes(device: torch.device) -> int:
    """What torch's allocator holds of the card now; asked as in ``peak_bytes``, for it is asked after every step."""
    return int(torch.cuda.memory_stats_as_nested_dict(device)["reserved_bytes"]["all"]["current"])


def peak_bytes(device: torch.device) -> tuple[int, int | None]:
    """Peak of this process's tensors on the card, and of what torch's allocator held, gaps included.

    On the CPU the process's resident size now, and None. The allocator is asked once, and its answer not flattened into
    a list of all it counts, for this happens after every step, while the card waits.
    """
    if device.type != "cuda":
        return int(psutil.Process(os.getpid()).memory_info().rss), None
    counted = torch.cuda.memory_stats_as_nested_dict(device)
    return int(counted["allocated_bytes"]["all"]["peak"]), int(counted["reserved_bytes"]["all"]["peak"])
