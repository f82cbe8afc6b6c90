"""Time and memory of each step, taken the same way on both sides.

A step's end is after ``torch.cuda.synchronize()``; a step's time is from the end of the one before. Peaks are those of
the timed steps (the counters are reset after the warm-up), beside them those of the whole run, loading included.
What lies on the card beside torch's allocator (the CUDA context, libraries, other processes) is what the card says is
used, minus what the allocator holds.
"""

import time
from typing import Any

import torch
from transformers import TrainerCallback

from core.contract.errors import ConfigError, MachineError
from core.train.channel.meter import context_bytes

GIB = 2**30


class Watch(TrainerCallback):
    """A callback of the Trainer: the one clock, and the one reader of the allocator's peaks.

    ``until`` is the step after which training ends before its schedule does; 0: at the schedule's end.
    """

    def __init__(self, device: torch.device, warm_up: int, say: Any, every: int, until: int = 0) -> None:
        self.seconds: list[float] = []
        self.peak: dict[str, int] = {}
        self.whole_run_peak: dict[str, int] = {}
        self._device, self._warm_up, self._say, self._every = device, warm_up, say, every
        self._until = until
        self._last = 0.0
        self.first_step_at = 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """The first step's time begins here."""
        self._synchronize()
        if not self._warm_up:
            self._reset()
        self._last = time.perf_counter()

    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
        """After the optimiser's step."""
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
        """After the last step."""
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
    """What torch's allocator may hold in all: the cap without the context, or all that is free; 0 on the CPU."""
    if device.type != "cuda":
        return 0
    if vram_gb:
        return int(vram_gb * GIB) - (context_bytes(device) or 0)
    return int(torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device))


def cap(device: torch.device, vram_gb: float) -> None:
    """Lets torch's allocator have no more than a card of ``vram_gb`` would.

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
