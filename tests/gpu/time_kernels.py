"""Times kernels at Mistral-7B's sizes: ``python tests/gpu/time_kernels.py [attention|elementwise|nf4 ...]``.

Prints one JSON object. Microseconds are medians, each after 256 MiB were written over, so that nothing lies in the
cache; ``host`` is what a call costs the host, which matters where kernels are short.

attention    every backend from strided views of one row buffer: ``dense`` is 4 rows of 2,048 tokens, ``alpaca`` 16 rows
             of 90 to 502; ``both`` is forward and backward
elementwise  beside the time the terabytes a second that the counted bytes make of it (each value read or written once;
             the logits twice read), and a copy of the same card
nf4          dequantisation, and ``border`` (a bordered matrix of one projection of rank 16), in every tile, beside
             bitsandbytes'; ``fill`` only writes as many bytes, which is the floor
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "unit" / "kernels")]

from bitsandbytes.functional import dequantize_4bit, quantize_4bit  # noqa: E402
from nf4_cases import nf4_of  # noqa: E402

from core.kernels import cross_entropy, layer_norm, linear_cross_entropy, rms_norm, rope, swiglu  # noqa: E402
from core.kernels.dispatch import use_triton  # noqa: E402
from core.kernels.lora import Projection, Stack  # noqa: E402
from core.kernels.weights import nf4  # noqa: E402
from core.kernels.weights.forms import HELD_FORMS  # noqa: E402
from core.model.attention.backends import BACKENDS  # noqa: E402
from core.model.attention.choice import AttentionKind, Bounds  # noqa: E402

BERT = 768
D, I, V, Q, K, HEAD = 4096, 14336, 32_000, 32, 8, 128  # noqa: E741 - the field's letters
RANKS, RANK = 64, 16
ALPACA = [188, 120, 300, 502, 96, 250, 210, 333, 150, 180, 220, 240, 90, 410, 260, 151]
ROWS = {"dense": [2048] * 4, "alpaca": ALPACA}
WEIGHTS = [(14336, 4096), (4096, 14336), (4096, 4096), (1024, 4096)]
TILES = [(128, 4, 4), (128, 2, 4), (128, 8, 4), (256, 2, 8), (256, 4, 8), (256, 4, 4), (512, 1, 4), (512, 2, 8)]
LIKE: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}
Timed = tuple[str, Callable[[], Any], int]


def microseconds(function: Callable[[], Any], repeats: int = 30) -> float:
    """Median on the card."""
    flush = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    for _ in range(5):
        function()
    times = []
    for _ in range(repeats):
        flush.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        function()
        end.record()
        times.append((begin, end))
    torch.cuda.synchronize()
    return round(statistics.median(begin.elapsed_time(end) * 1000 for begin, end in times), 2)


def host_microseconds(function: Callable[[], Any], repeats: int = 30) -> float:
    """Median until a call is enqueued."""
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        function()
        times.append(time.perf_counter() - begun)
    return round(statistics.median(times) * 1e6, 2)


def buffer(tokens: int, width: int) -> torch.Tensor:
    """``[T, width]`` in rows that are wider by the adapters' ranks, as the layers keep activations."""
    return torch.randn(tokens, width + RANKS, **LIKE)[:, :width]


def attention() -> dict[str, Any]:
    found: dict[str, Any] = {"cudnn": torch.backends.cudnn.version()}
    for shape, lengths in ROWS.items():
        for name in ["flash", "efficient", "flex", "rows"] + (["cudnn"] if len(set(lengths)) == 1 else []):
            try:
                found[f"{shape} {name}"] = attention_of(name, lengths)
            except RuntimeError as error:
                found[f"{shape} {name}"] = str(error).splitlines()[0]
    return found


def attention_of(name: str, lengths: list[int]) -> dict[str, float]:
    tokens, run = sum(lengths), BACKENDS[name]  # type: ignore[index]
    cu = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device="cuda")
    bounds, kind = Bounds(cu, max(lengths), len(lengths), tokens), AttentionKind(HEAD**-0.5)
    if name == "flex":
        kind = AttentionKind(HEAD**-0.5, None, 50.0)
    rows = torch.randn(tokens, (Q + 2 * K) * HEAD, **LIKE).unflatten(1, (-1, HEAD))
    q, k, v = (part.detach().requires_grad_() for part in rows.split((Q, K, K), dim=1))
    seed = torch.randn(tokens, Q, HEAD, **LIKE)

    def forward() -> torch.Tensor:
        return run(q, k, v, bounds, kind)

    def both() -> object:
        return torch.autograd.grad(forward(), (q, k, v), seed)

    return {"forward": microseconds(forward), "both": microseconds(both), "host": host_microseconds(both)}


def norms(tokens: int) -> list[Timed]:
    x, residual, dy, extra, out = (buffer(tokens, D) for _ in range(5))
    w = torch.ones(D, **LIKE)
    _, h, s = rms_norm.normalize(x, w, 1e-5, residual=residual)
    size = x.numel() * 2
    heads = buffer(tokens, (Q + 2 * K) * HEAD)[:, : (Q + K) * HEAD].unflatten(1, (Q + K, HEAD))
    return [
        ("normalize", lambda: rms_norm.normalize(x, w, 1e-5, out=out), 2 * size),
        ("normalize with residual", lambda: rms_norm.normalize(x, w, 1e-5, residual=residual, out=out), 4 * size),
        ("normalize of heads", lambda: rms_norm.normalize(heads, w[:HEAD], 1e-6, out=heads), 4 * heads.numel()),
        ("normalize_backward", lambda: rms_norm.normalize_backward(dy, h, w, s, extra=extra, out=dy), 4 * size),
    ]


def layer_norms(tokens: int) -> list[Timed]:
    """At BERT-base's width, weights in float32; the backward pass with sums for these."""
    x, residual, dy = (torch.randn(tokens, BERT, **LIKE) for _ in range(3))
    w, b = torch.ones(BERT, device="cuda"), torch.zeros(BERT, device="cuda")
    _, h, m, s = layer_norm.standardize(x, w, b, 1e-12, residual)
    size = x.numel() * 2
    return [
        ("layer norm with residual", lambda: layer_norm.standardize(x, w, b, 1e-12, residual), 4 * size),
        ("layer norm, backward", lambda: layer_norm.standardize_backward(dy, h, w, m, s), 3 * size),
    ]


def gates_and_turns(tokens: int) -> list[Timed]:
    gate_up, h = buffer(tokens, 2 * I), buffer(tokens, I)
    size = h.numel() * 2
    rows, out = buffer(tokens, (Q + 2 * K) * HEAD), buffer(tokens, (Q + 2 * K) * HEAD)
    dq, dk, dv = (torch.randn(tokens, count, HEAD, **LIKE) for count in (Q, K, K))
    angles = torch.randn(1, tokens, HEAD, device="cuda")
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    tables = 2 * cos.numel() * 2
    return [
        ("gate", lambda: swiglu.gate(gate_up, "silu", h), 3 * size),
        ("gate_backward_", lambda: swiglu.gate_backward_(h, gate_up, "silu"), 6 * size),
        ("turn_", lambda: rope.turn_(rows, cos, sin, Q + K, HEAD), 4 * tokens * (Q + K) * HEAD + tables),
        ("turn_back", lambda: rope.turn_back(dq, dk, dv, cos, sin, out), 4 * tokens * (Q + 2 * K) * HEAD + tables),
    ]


def losses(tokens: int) -> list[Timed]:
    logits, large = torch.randn(2048, V, **LIKE), torch.randn(512, 128_256, **LIKE)
    labels, some = torch.randint(0, V, (2048,), device="cuda"), torch.randint(0, V, (512,), device="cuda")
    none, targets = torch.full_like(labels, -100), torch.randint(0, V, (tokens,), device="cuda")
    hidden, weight = torch.randn(tokens, D, **LIKE).requires_grad_(), torch.randn(V, D, **LIKE) * 0.02
    head = linear_cross_entropy.linear_cross_entropy
    return [
        ("loss and gradient", lambda: cross_entropy.cross_entropy_gradient_(logits, labels), 6 * logits.numel()),
        ("loss and gradient, V 128256", lambda: cross_entropy.cross_entropy_gradient_(large, some), 6 * large.numel()),
        ("loss alone", lambda: cross_entropy.cross_entropy(logits, labels), 2 * logits.numel()),
        ("loss, all ignored", lambda: cross_entropy.cross_entropy_gradient_(logits, none), 2 * logits.numel()),
        ("head and loss (its products too)", lambda: head(hidden, weight, targets), 0),
        ("head and loss, backward too", lambda: head(hidden, weight, targets).sum().backward(), 0),
    ]


def elementwise() -> dict[str, Any]:
    source = torch.empty(2**29, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copied = 2 * source.numel() / microseconds(lambda: target.copy_(source)) / 1e6
    found: dict[str, Any] = {"copy_tb_s": round(copied, 3)}
    for tokens in (8192, 3712):
        table = found[f"T={tokens}"] = {}
        for name, function, moved in (
            *norms(tokens), *layer_norms(tokens), *gates_and_turns(tokens), *losses(tokens),
        ):  # fmt: skip
            taken = microseconds(function)
            table[name] = {"us": taken, "tb_s": round(moved / taken / 1e6, 3) if moved else None}
    return found


def nf4_of_shape(shape: tuple[int, int]) -> dict[str, Any]:
    height, width = shape
    packed, state = quantize_4bit(torch.randn(shape, **LIKE) * 0.02, quant_type="nf4", compress_statistics=True)
    weight, out, like = nf4_of(packed, state, shape), torch.empty(shape, **LIKE), torch.empty(0, **LIKE)
    a, b = torch.randn(RANK, width, device="cuda"), torch.randn(height, RANK, device="cuda")
    part = Projection(weight, None, a, b, 1.0, shape, HELD_FORMS["nf4"])

    def ours() -> list[Callable[[], object]]:
        stack = Stack((part,))  # its table counts programs of the tile that it was made with
        return [lambda: nf4.dequantize(weight, out), lambda: stack.matrix(like)]

    dequantize, border = ours()
    calls = {
        "bitsandbytes": lambda: dequantize_4bit(packed, state, out=out),
        "dequantize": dequantize,
        "border": border,
    }
    found: dict[str, Any] = {name: microseconds(call) for name, call in calls.items()}
    found |= {"fill": microseconds(out.zero_), "host": {name: host_microseconds(call) for name, call in calls.items()}}
    held, tiles = (nf4.WORDS, nf4.ROWS, nf4.WARPS), {}
    for tile in TILES:
        nf4.WORDS, nf4.ROWS, nf4.WARPS = tile
        tiles[str(tile)] = [microseconds(call) for call in ours()]
    nf4.WORDS, nf4.ROWS, nf4.WARPS = held
    moved = height * width * (0.5 + 1 / 64 + 2)
    return {**found, "tiles": tiles, "terabytes_per_second": round(moved / found["dequantize"] / 1e6, 2)}


GROUPS: dict[str, Callable[[], dict[str, Any]]] = {
    "attention": attention,
    "elementwise": elementwise,
    "nf4": lambda: {f"{height}x{width}": nf4_of_shape((height, width)) for height, width in WEIGHTS},
}

if __name__ == "__main__":
    assert use_triton(torch.empty(1, device="cuda")), "the kernels do not run here"
    chosen = sys.argv[1:] or list(GROUPS)
    print(json.dumps({"card": torch.cuda.get_device_name(), **{name: GROUPS[name]() for name in chosen}}, indent=1))
