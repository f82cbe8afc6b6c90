"""Times every attention backend on this card, side by side, from strided views of one row buffer; prints JSON.

    python tests/gpu/time_attention.py [--steps 30]

``dense`` is 4 rows of 2,048 tokens, ``alpaca`` 16 rows of 90 to 502. Microseconds, medians; ``both`` is forward and
backward; ``host`` is the time until both are enqueued, which matters where kernels are short.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch

from core.model.attention import backends as attention_backends
from core.model.attention.choice import AttentionKind, Bounds

ALPACA = [188, 120, 300, 502, 96, 250, 210, 333, 150, 180, 220, 240, 90, 410, 260, 151]
HEADS, GROUPS, HEAD_DIM = 32, 8, 128
SHAPES = {"dense": [2048] * 4, "alpaca": ALPACA}


def median_us(step: Callable[[], object], steps: int) -> float:
    for _ in range(5):
        step()
    pairs = []
    for _ in range(steps):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        step()
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in pairs) * 1000


def host_us(step: Callable[[], object], steps: int) -> float:
    found = []
    for _ in range(steps):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        step()
        found.append(time.perf_counter() - begun)
    return statistics.median(found) * 1e6


def measure(name: str, lengths: list[int], softcap: float | None, steps: int) -> dict[str, float]:
    tokens = sum(lengths)
    cu = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device="cuda")
    bounds = Bounds(cu, max(lengths), len(lengths), tokens)
    kind = AttentionKind(HEAD_DIM**-0.5, None, softcap)
    dtype = torch.bfloat16 if torch.cuda.get_device_capability() >= (8, 0) else torch.float16
    buffer = torch.randn(tokens, (HEADS + 2 * GROUPS) * HEAD_DIM, dtype=dtype, device="cuda", requires_grad=True)
    q, k, v = buffer.unflatten(1, (-1, HEAD_DIM)).split((HEADS, GROUPS, GROUPS), dim=1)
    q, k, v = (part.detach().requires_grad_() for part in (q, k, v))
    seed = torch.randn(tokens, HEADS, HEAD_DIM, dtype=dtype, device="cuda")
    run = attention_backends.BACKENDS[name]  # type: ignore[index]

    def both() -> object:
        return torch.autograd.grad(run(q, k, v, bounds, kind), (q, k, v), seed)

    result = {"forward": median_us(lambda: run(q, k, v, bounds, kind), steps), "both": median_us(both, steps)}
    return {**result, "host": host_us(both, steps)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    steps = parser.parse_args().steps
    found: dict[str, object] = {"card": torch.cuda.get_device_name(), "torch": torch.__version__,
                                "cudnn": torch.backends.cudnn.version()}  # fmt: skip
    for shape, lengths in SHAPES.items():
        names = ["flash", "efficient", "flex", "rows"] + (["cudnn"] if len(set(lengths)) == 1 else [])
        for name in names:
            try:
                found[f"{shape} {name}"] = measure(name, lengths, 50.0 if name == "flex" else None, steps)
            except RuntimeError as error:
                found[f"{shape} {name}"] = str(error).splitlines()[0]
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
