"""Times NF4 dequantisation on this card, ours in every variant beside bitsandbytes': ``python tests/gpu/time_nf4.py``.

Prints one JSON object: microseconds a call for Mistral-7B's four shapes in bfloat16, double quantised; ``fill`` only
writes as many bytes, which is the floor. Weights and results rotate, and the second cache is emptied between calls.
``border`` is a bordered matrix of one projection of rank 16; ``host`` is what a call costs the host.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "unit" / "kernels")]

from bitsandbytes.functional import dequantize_4bit, quantize_4bit  # noqa: E402
from nf4_cases import nf4_of  # noqa: E402
from triton.testing import do_bench  # noqa: E402

from core.kernels.lora import Projection, Stack  # noqa: E402
from core.kernels.weights import nf4  # noqa: E402
from core.kernels.weights.forms import HELD_FORMS  # noqa: E402
from core.kernels.weights.nf4 import dequantize  # noqa: E402

SHAPES = [(14336, 4096), (4096, 14336), (4096, 4096), (1024, 4096)]
TILES = [(128, 4, 4), (128, 2, 4), (128, 8, 4), (256, 2, 8), (256, 4, 8), (256, 4, 4), (512, 1, 4), (512, 2, 8)]
RANK, ROTATING = 16, 4


def microseconds(call: Callable[[], object]) -> float:
    """Median on the card."""
    return round(float(do_bench(call, warmup=20, rep=100, return_mode="median")) * 1000, 2)


def host_microseconds(call: Callable[[], object], count: int = 200) -> float:
    """Mean on the host, which does not wait for the card."""
    call()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(count):
        call()
    spent = time.perf_counter() - begun
    torch.cuda.synchronize()
    return round(spent / count * 1e6, 2)


def rotating(things: list[Any]) -> Iterator[Any]:
    return itertools.cycle(things)


def of_shape(shape: tuple[int, int]) -> dict[str, Any]:
    """All times for weights of one shape."""
    height, width = shape
    made = [quantize_4bit(torch.randn(shape, device="cuda", dtype=torch.bfloat16) * 0.02, quant_type="nf4",
                          compress_statistics=True) for _ in range(ROTATING)]  # fmt: skip
    outs = rotating([torch.empty(shape, device="cuda", dtype=torch.bfloat16) for _ in range(ROTATING)])
    theirs, weights = rotating(made), rotating([nf4_of(packed, state, shape) for packed, state in made])
    a, b = torch.randn(RANK, width, device="cuda"), torch.randn(height, RANK, device="cuda")
    form, like = HELD_FORMS["nf4"], torch.empty(0, device="cuda", dtype=torch.bfloat16)
    parts = [Projection(nf4_of(*one, shape), None, a, b, 1.0, shape, form) for one in made]
    stacks = rotating([Stack((part,)) for part in parts])

    def ours() -> object:
        return dequantize(next(weights), next(outs))

    def bordered() -> object:
        return next(stacks).matrix(like)

    def bitsandbytes() -> object:
        packed, state = next(theirs)
        return dequantize_4bit(packed, state, out=next(outs))

    held = (nf4.WORDS, nf4.ROWS, nf4.WARPS)
    found: dict[str, Any] = {
        "bytes": int(height * width * (0.5 + 1 / 64 + 2)),
        "fill": microseconds(lambda: next(outs).zero_()),
        "bitsandbytes": microseconds(bitsandbytes),
        "dequantize": microseconds(ours),
        "border": microseconds(bordered),
        "host": {name: host_microseconds(call) for name, call in
                 {"bitsandbytes": bitsandbytes, "dequantize": ours, "border": bordered}.items()},
        "variants": {},
    }  # fmt: skip
    for tile in TILES:
        nf4.WORDS, nf4.ROWS, nf4.WARPS = tile
        stacks = rotating([Stack((part,)) for part in parts])  # a table counts programs of its tile
        found["variants"][str(tile)] = [microseconds(ours), microseconds(bordered)]
    nf4.WORDS, nf4.ROWS, nf4.WARPS = held
    found["terabytes_per_second"] = round(found["bytes"] / found["dequantize"] / 1e6, 2)
    found["times_bitsandbytes"] = round(found["bitsandbytes"] / found["dequantize"], 2)
    return found


def main() -> None:
    """Times each shape."""
    found = {f"{height}x{width}": of_shape((height, width)) for height, width in SHAPES}
    print(json.dumps({"card": torch.cuda.get_device_name(), "microseconds": found}, indent=1))


if __name__ == "__main__":
    main()
