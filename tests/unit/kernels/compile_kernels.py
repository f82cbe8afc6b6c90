"""Compiles every kernel for compute capabilities, without a card: ``python compile_kernels.py 75 86``.

Prints a line a kernel; fails where one wants more shared memory than such a card gives a block.
"""

from __future__ import annotations

import sys
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from core.kernels import cross_entropy, rms_norm, rope, swiglu

SHARED_BYTES = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 120: 99}
POINTERS = {"fp16": "*fp16", "bf16": "*bf16"}


def sources(half: str) -> list[tuple[str, Any, dict[str, str], dict[str, Any]]]:
    """Name, function, signature (a type for every argument) and constants of each kernel."""
    p = POINTERS[half]
    norm = {"width": "i32", "eps": "fp32", "offset": "fp32", "ADD": "constexpr", "BLOCK": "constexpr"}
    norm_back = {name: kind for name, kind in norm.items() if name != "eps"}
    six = ("batch_stride", "head_stride", "token_stride", "y_batch_stride", "y_head_stride", "y_token_stride")
    turn = dict.fromkeys((*six, "angle_batch_stride", "angle_token_stride", "tokens", "heads", "half"), "i32")
    gated = {"count": "i32", "GELU": "constexpr", "BLOCK": "constexpr"}
    loss = {"row_stride": "i32", "vocabulary": "i32", "scale": "fp32", "softcap": "fp32"}
    pointers = dict.fromkeys(("x", "residual", "weight", "y", "total"), p)
    return [
        ("rms_norm forward", rms_norm._forward, {**pointers, "inverse": "*fp32", **norm}, {"ADD": True, "BLOCK": 4096}),
        (
            "rms_norm backward",
            rms_norm._backward,
            {**dict.fromkeys(("dy", "dtotal", "h", "weight"), p), "inverse": "*fp32", "dx": p, **norm_back},
            {"ADD": True, "BLOCK": 4096},
        ),
        (
            "rope",
            rope._turn,
            {
                **dict.fromkeys(("x", "y", "cos", "sin"), p),
                **turn,
                **dict.fromkeys(("BACKWARD", "HEADS", "HALF"), "constexpr"),
            },
            {"BACKWARD": True, "HEADS": 32, "HALF": 64},
        ),
        (
            "swiglu forward",
            swiglu._forward,
            {**dict.fromkeys(("gate", "up", "h"), p), **gated},
            {"GELU": False, "BLOCK": 1024},
        ),
        (
            "swiglu backward",
            swiglu._backward,
            {**dict.fromkeys(("dh", "gate", "up", "dgate", "dup"), p), **gated},
            {"GELU": True, "BLOCK": 1024},
        ),
        (
            "cross_entropy",
            cross_entropy._kernel,
            {
                "logits": p,
                "labels": "*i64",
                "losses": "*fp32",
                **loss,
                **dict.fromkeys(("CAPPED", "IGNORED", "BLOCK"), "constexpr"),
            },
            {"CAPPED": True, "IGNORED": -100, "BLOCK": 8192},
        ),
    ]


def main(capability: int) -> None:
    """Compiles all of them; bfloat16 begins at 80."""
    target = GPUTarget("cuda", capability, 32)
    for name, function, signature, constants in sources("bf16" if capability >= 80 else "fp16"):
        source = ASTSource(fn=function, signature=signature, constexprs=constants)
        compiled = triton.compile(source, target=target)
        shared = compiled.metadata.shared
        if shared > SHARED_BYTES[capability] * 1024:
            sys.exit(f"{name} wants {shared} bytes of shared memory on sm_{capability}")
        print(f"compiled {name} for sm_{capability}: {shared} bytes of shared memory")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        main(int(argument))
