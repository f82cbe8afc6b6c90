"""Times the gate with its low products at Mistral-7B's sizes: ``python tests/gpu/time_gate_lora.py``.

Prints one JSON object. For each token count, microseconds forward and backward: of the separate kernels, of the gate
alone, of the fused kernels as they are set, and the best of all tiles ``[tokens, columns, warps, stages, stretches]``;
``floor`` is what a copy of as many bytes takes here. ``packed`` has sB's rows side by side, not as a view of M.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from triton.runtime.errors import OutOfResources
from triton.testing import do_bench

from core.kernels import gate_lora, swiglu
from core.kernels.gate_lora import Tiles

D, I, RANK, GATE_RANK = 4096, 14336, 16, 32  # noqa: E741 - the field's letters
TILES = [(16, 64, 2), (16, 128, 4), (16, 256, 4), (32, 64, 4), (32, 128, 4), (32, 128, 8), (64, 32, 4), (64, 64, 4),
         (64, 64, 8), (64, 128, 8), (128, 32, 4), (128, 64, 8)]  # fmt: skip
STAGES = [1, 2, 3]
STRETCHES = [1, 2, 4, 8, 16]
LISTED = 8
Passes = dict[str, Callable[[], object]]


def microseconds(call: Callable[[], object], rep: int = 25) -> float:
    """Median on the card; the second cache is emptied between calls."""
    return round(float(do_bench(call, warmup=5, rep=rep, return_mode="median")) * 1000, 1)


class Layer:
    """One layer's buffers and matrices. In-place passes run again and again on their own results."""

    def __init__(self, tokens: int) -> None:
        def rows(height: int, width: int) -> torch.Tensor:
            return torch.randn(height, width, device="cuda", dtype=torch.bfloat16) * 0.1

        self.tokens = tokens
        self.gate_up, self.t = rows(tokens, 2 * I + GATE_RANK), rows(tokens, I)
        self.out = rows(tokens, I + RANK)
        self.a = rows(D + RANK, I + RANK)[D:, :I]
        self.sb = rows(2 * I + GATE_RANK, D + GATE_RANK)[: 2 * I, D:]

    def fused(self, sb: torch.Tensor | None = None) -> Passes:
        sb = self.sb if sb is None else sb
        return {
            "forward": lambda: gate_lora.gate_low(self.gate_up, "silu", self.a, self.out),
            "backward": lambda: gate_lora.gate_low_backward_(self.t, self.gate_up, "silu", self.a, sb),
        }

    def alone(self) -> Passes:
        wide, t = self.gate_up[:, : 2 * I], self.out[:, :I]
        return {
            "forward": lambda: swiglu.gate(wide, "silu", t),
            "backward": lambda: swiglu.gate_backward_(self.t, wide, "silu"),
        }

    def separate(self) -> Passes:
        wide, t, gates = self.gate_up[:, : 2 * I], self.out[:, :I], self.alone()

        def forward() -> None:
            gates["forward"]()
            torch.mm(t, self.a.T, out=self.out[:, I:])

        def backward() -> None:
            gates["backward"]()
            torch.mm(wide, self.sb, out=self.gate_up[:, 2 * I :])
            torch.mm(self.t, self.a.T)

        return {"forward": forward, "backward": backward}


def swept(layer: Layer, which: str) -> list[tuple[float, list[int]]]:
    """All settings, the fastest first; what does not fit on the card is left out."""
    name, call = which.upper(), layer.fused()[which]
    held, found = (getattr(gate_lora, name), gate_lora.PROGRAMS), []
    for (tokens, columns, warps), stages in itertools.product(TILES, STAGES):
        tiles, seen = Tiles(tokens, columns, warps, stages), set()
        setattr(gate_lora, name, tiles)
        for stretches in STRETCHES:
            gate_lora.PROGRAMS = stretches * -(-layer.tokens // tokens)
            ranks = 100 * RANK // 3 if which == "forward" else 100 * (RANK + GATE_RANK) // 6
            splits = gate_lora._stretches(layer.t, tiles, ranks)[1]
            if splits in seen:
                continue
            seen.add(splits)
            try:
                found.append((microseconds(call, 15), [tokens, columns, warps, stages, splits]))
            except OutOfResources:
                break
    setattr(gate_lora, name, held[0])
    gate_lora.PROGRAMS = held[1]
    return sorted(found)


def of_tokens(tokens: int, bytes_a_microsecond: float) -> dict[str, Any]:
    """Both passes for so many tokens."""
    layer = Layer(tokens)
    ways = {"separate": layer.separate(), "gate alone": layer.alone(), "as set": layer.fused(),
            "packed": layer.fused(layer.sb.contiguous())}  # fmt: skip
    result: dict[str, Any] = {}
    for which, values in (("forward", 3 * I), ("backward", 6 * I)):
        times = {name: microseconds(passes[which]) for name, passes in ways.items()}
        best = swept(layer, which)
        result[which] = {
            "floor": round(2 * values * tokens / bytes_a_microsecond, 1), **times, "tried": len(best),
            "best": [[taken, *setting] for taken, setting in best[:LISTED]],
        }  # fmt: skip
    return result


def main() -> None:
    """Prints the table."""
    source = torch.empty(2**29, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    speed = 2 * source.numel() / microseconds(lambda: target.copy_(source))
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "copy_tb_s": round(speed / 1e6, 3)}
    found["set"] = {"forward": str(gate_lora.FORWARD), "backward": str(gate_lora.BACKWARD)}
    for tokens in (8192, 3712):
        found[f"T={tokens}"] = of_tokens(tokens, speed)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
