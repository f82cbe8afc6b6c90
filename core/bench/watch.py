"""Time and memory of each step, measured the same way on both sides.

A step lasts from the end of the one before to after its own ``torch.cuda.synchronize()``. Peaks are those of the timed
steps (counters are reset after the warm-up) and those of the whole run, loading included.
"""

import time
from typing import Any

import torch
from transformers import TrainerCallback

from core.contract.errors import ConfigError, MachineError
from core.train.channel.meter import context_bytes

GIB = 2**30


class Watch(TrainerCallback):
    """Times steps and reads the allocator's peaks; ends training after step ``until`` (0: with the schedule)."""

    def __init__(self, device: torch.device, warm_up: int, say: Any, every: int, until: int = 0) -> None:
        self.seconds: list[float] = []
        self.peak: dict[str, int] = {}
        self.whole_run_peak: dict[str, int] = {}
        self._device, self._warm_up, self._say, self._every = device, warm_up, say, every
        self._until = until
        self._last = 0.0
        self.first_step_at = 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Starts the clock."""
        self._synchronize()
        if not self._warm_up:
            self._reset()
        self._last = time.perf_counter()

    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
        """Notes the step's time."""
        self._synchronize()
        now = time.perf_counter()
        self.seconds.append(now - self._last)
        self.first_step_at = self.first_step_at or now
        if state.global_step == self._warm_up:
            self._reset()
        if self._every and state.global_step % self._every == 0:
            self._say(f"step {state.global_step} of {state.max_steps}, {self.seconds[-1]:.3f} s")
        if self._until and state.global_step >= self._until:
            control.should_training_stop = True
        self._last = time.perf_counter()

    def finish(self) -> None:
        """Reads the peaks after the last step."""
        self.peak = _peaks(self._device)
        self._keep()

    def _reset(self) -> None:
        self._keep()
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)

    def _keep(self) -> None:
        for name, size in _peaks(self._device).items():
            self.whole_run_peak[name] = max(size, self.whole_run_peak.get(name, 0))

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _peaks(device: torch.device) -> dict[str, int]:
    if device.type != "cuda":
        return {}
    return {
        "allocated": int(torch.cuda.max_memory_allocated(device)),
        "reserved": int(torch.cuda.max_memory_reserved(device)),
    }


def allowed_bytes(device: torch.device, vram_gb: float) -> int:
    """Bytes that torch's allocator may hold: the cap minus the context, or all that is free; 0 on the CPU."""
    if device.type != "cuda":
        return 0
    if vram_gb:
        return int(vram_gb * GIB) - (context_bytes(device) or 0)
    return int(torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device))


def cap(device: torch.device, vram_gb: float) -> None:
    """Limits torch's allocator to a card of ``vram_gb`` GiB; 0 sets no limit.

    Raises:
        ConfigError: there is no card to cap.
        MachineError: the card's context alone is larger.
    """
    if not vram_gb:
        return
    if device.type != "cuda":
        raise ConfigError("bench.cap/no_card")
    allowed, total = allowed_bytes(device, vram_gb), torch.cuda.mem_get_info(device)[1]
    if allowed <= 0:
        raise MachineError("bench.cap/no_room", vram_gb=vram_gb)
    torch.cuda.set_per_process_memory_fraction(min(1.0, allowed / total), device)
