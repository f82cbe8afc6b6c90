"""Times the element-wise kernels at Mistral-7B's sizes on a card: ``python tests/gpu/time_elementwise.py``.

Prints one JSON object: for each kernel and token count the median time in microseconds and the terabytes a second that
the counted bytes make of it (each value read or written once; the logits twice read), beside a copy of the same card.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from core.kernels import cross_entropy, linear_cross_entropy, rms_norm, rope, swiglu
from core.kernels.dispatch import use_triton

D, I, V, Q, K, HEAD = 4096, 14336, 32_000, 32, 8, 128  # noqa: E741 - the field's letters
RANKS = 64
CUDA = torch.device("cuda", 0)
Row = tuple[str, Callable[[], Any], int]


def buffer(tokens: int, width: int) -> torch.Tensor:
    """``[T, width]`` in rows that are wider by the adapters' ranks, as the layers keep activations."""
    return torch.randn(tokens, width + RANKS, device=CUDA, dtype=torch.bfloat16)[:, :width]


def norms(tokens: int) -> list[Row]:
    x, residual, dy, extra, out = (buffer(tokens, D) for _ in range(5))
    w = torch.ones(D, device=CUDA, dtype=torch.bfloat16)
    _, h, s = rms_norm.normalize(x, w, 1e-5, residual=residual)
    size = x.numel() * 2
    heads = buffer(tokens, (Q + 2 * K) * HEAD)[:, : (Q + K) * HEAD].unflatten(1, (Q + K, HEAD))
    narrow = w[:HEAD]
    return [
        ("normalize", lambda: rms_norm.normalize(x, w, 1e-5, out=out), 2 * size),
        ("normalize with residual", lambda: rms_norm.normalize(x, w, 1e-5, residual=residual, out=out), 4 * size),
        ("normalize of heads", lambda: rms_norm.normalize(heads, narrow, 1e-6, out=heads), 4 * heads.numel()),
        ("normalize_backward", lambda: rms_norm.normalize_backward(dy, h, w, s, extra=extra, out=dy), 4 * size),
    ]


def gates(tokens: int) -> list[Row]:
    gate_up, h = buffer(tokens, 2 * I), buffer(tokens, I)
    size = h.numel() * 2
    return [
        ("gate", lambda: swiglu.gate(gate_up, "silu", h), 3 * size),
        ("gate_backward_", lambda: swiglu.gate_backward_(h, gate_up, "silu"), 6 * size),
    ]


def turns(tokens: int) -> list[Row]:
    rows, out = buffer(tokens, (Q + 2 * K) * HEAD), buffer(tokens, (Q + 2 * K) * HEAD)
    dq, dk, dv = (torch.randn(tokens, count, HEAD, device=CUDA, dtype=torch.bfloat16) for count in (Q, K, K))
    angles = torch.randn(1, tokens, HEAD, device=CUDA)
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    tables = 2 * cos.numel() * 2
    return [
        ("turn_", lambda: rope.turn_(rows, cos, sin, Q + K, HEAD), 4 * tokens * (Q + K) * HEAD + tables),
        ("turn_back", lambda: rope.turn_back(dq, dk, dv, cos, sin, out), 4 * tokens * (Q + 2 * K) * HEAD + tables),
    ]


def losses(tokens: int) -> list[Row]:
    logits = torch.randn(2048, V, device=CUDA, dtype=torch.bfloat16)
    large = torch.randn(512, 128_256, device=CUDA, dtype=torch.bfloat16)
    labels, some = torch.randint(0, V, (2048,), device=CUDA), torch.randint(0, V, (512,), device=CUDA)
    none = torch.full_like(labels, -100)
    hidden, weight = torch.randn(tokens, D, device=CUDA).bfloat16(), torch.randn(V, D, device=CUDA).bfloat16() * 0.02
    targets = torch.randint(0, V, (tokens,), device=CUDA)
    leaf = hidden.requires_grad_()
    head = linear_cross_entropy.linear_cross_entropy
    return [
        ("loss and gradient", lambda: cross_entropy.cross_entropy_gradient_(logits, labels), 6 * logits.numel()),
        ("loss and gradient, V 128256", lambda: cross_entropy.cross_entropy_gradient_(large, some), 6 * large.numel()),
        ("loss alone", lambda: cross_entropy.cross_entropy(logits, labels), 2 * logits.numel()),
        ("loss, all ignored", lambda: cross_entropy.cross_entropy_gradient_(logits, none), 2 * logits.numel()),
        ("head and loss (its products too)", lambda: head(leaf, weight, targets), 0),
    ]


def microseconds(function: Callable[[], Any], repeats: int = 30) -> float:
    """Median over repeats, each after 256 MiB were written over, so that nothing lies in the cache."""
    flush = torch.empty(2**28, dtype=torch.uint8, device=CUDA)
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
    return statistics.median(begin.elapsed_time(end) * 1000 for begin, end in times)


def main() -> None:
    """Prints the table."""
    assert use_triton(torch.empty(1, device=CUDA)), "the kernels do not run here"
    source = torch.empty(2**29, dtype=torch.uint8, device=CUDA)
    target = torch.empty_like(source)
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(CUDA),
        "copy_tb_s": round(2 * source.numel() / microseconds(lambda: target.copy_(source)) / 1e6, 3),
    }
    for tokens in (8192, 3712):
        rows = [row for group in (norms, gates, turns, losses) for row in group(tokens)]
        table = found[f"T={tokens}"] = {}
        for name, function, moved in rows:
            taken = microseconds(function)
            table[name] = {"us": round(taken, 1), "tb_s": round(moved / taken / 1e6, 3) if moved else None}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
