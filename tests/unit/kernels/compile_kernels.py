"""Compiles every kernel for compute capabilities, without a card: ``python compile_kernels.py 75 86``.

Prints a line a kernel; fails where one wants more shared memory than such a card gives a block, where rows of a
model's usual sizes are not read and written 16 bytes at a time, or where a token count would compile it anew. Arguments
are typed and hinted as a launch does it: pointers and a model's own sizes are multiples of 16, what is named in
``varying`` may be anything.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from core.kernels import cross_entropy, layer_norm, rms_norm, rope, swiglu
from core.kernels.eightbit import kept
from core.kernels.eightbit.reference import TINY
from core.kernels.eightbit.rows import SIXTEEN_BITS
from core.kernels.weights import magnitudes, nf4, nf4_stack

SHARED_BYTES = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
CHANGING = {"rows", "tokens", "angles", "mean", "inverse", "programs", "labels", "losses"}
"""Arguments whose value or place differs from step to step, in the element-wise kernels."""
FLOATS = ("eps", "offset", "scale", "softcap")
OTHER_POINTERS = {"mean": "*fp32", "inverse": "*fp32", "sums": "*fp32", "losses": "*fp32", "labels": "*i64"}
SIXTEEN = {"EIGHT": False, **SIXTEEN_BITS}
NORMED = {"scales": "*fp32"}


@dataclass(frozen=True)
class Source:
    """A kernel, the names of its half-precision tensors, its constants, and how many narrow accesses are right.

    Those are of one value a row (s, label, loss, target), and the angles, of which each thread loads one. ``others``
    are types of arguments that mean something else elsewhere.
    """

    name: str
    function: Any
    tensors: tuple[str, ...]
    constants: dict[str, Any]
    warps: int = 4
    narrow: int = 0
    others: dict[str, str] = field(default_factory=dict)

    def signature(self, half: str) -> dict[str, str]:
        """A type for every argument."""
        known = {
            **dict.fromkeys(self.tensors, f"*{half}"),
            **OTHER_POINTERS,
            **dict.fromkeys(FLOATS, "fp32"),
            **self.others,
            **dict.fromkeys(self.constants, "constexpr"),
        }
        return {parameter.name: known.get(parameter.name, "i32") for parameter in self.function.params}

    def hints(self, half: str) -> dict[tuple[int], list[list[Any]]]:
        """What a launch would say of alignment."""
        kinds = self.signature(half)
        return {
            (parameter.num,): [["tt.divisibility", 16]]
            for parameter in self.function.params
            if kinds[parameter.name].startswith(("*", "i")) and not parameter.do_not_specialize
        }


NORM = {"heads": 1, "ROWS": 1, "BLOCK": 4096, **SIXTEEN}
WEIGHTS = {"weight": "*fp32", "bias": "*fp32"}
ROWS_OF_BERT = {"ROWS": 2, "BLOCK": 1024}
HEADS = {"ROWS": 16, "BLOCK": 128, **SIXTEEN}
TURN = {"HEADS": 8, "HALF": 64}
BACK = ("dq", "dk", "dv", "out", "cos", "sin")
GATE = {"BLOCK": 1024, "KEPT": False, "SCALED": kept.BLOCK, **SIXTEEN}
FORTH = {"GELU": False, "BLOCK": 1024, "KEPT": False, "SCALED": kept.BLOCK, "TINY": TINY}
ROUNDED = {**GATE, "GELU": True, "ROUNDED": True}
KEPT = {"kept": "*i8", "scales": "*fp32"}
LOSS = {"IGNORED": -100, "PARTS": 2, "LANES": 2048}

FORWARD, BACKWARD = ("x", "residual", "weight", "y", "total", "eight"), ("dy", "extra", "h", "weight", "dh", "eight")
GATES = ("gate", "up", "eight", "eight_scales")
NF4_POINTERS = dict.fromkeys(("nested_absmax", "nested_code", "offset", "code"), "*fp32")
NF4_POINTERS |= {"packed": "*u8", "absmax": "*u8"}
NF4 = {"STEP": None, "NESTED": True, "GROUP": 256, "BLOCKSIZE": 64, "WORDS": 128, "ROWS": 4}

STACK = {"PARTS": 3, "FIELDS": nf4_stack.FIELDS, "SIDE": 64, "TALL": 16, "COLUMNS": 1024, **NF4}

SOURCES = (
    Source("rms_norm forward", rms_norm._forward, FORWARD, {**NORM, "ADD": True}, 8, 1, NORMED),
    Source("rms_norm of heads", rms_norm._forward, FORWARD, {**HEADS, "ADD": False}, 4, 2, NORMED),
    Source("rms_norm backward", rms_norm._backward, BACKWARD, {**NORM, "ADD": True}, 8, 1, NORMED),
    Source(
        "layer_norm forward", layer_norm._forward, ("x", "residual", "y", "total"),
        {**ROWS_OF_BERT, "ADD": True, "BIAS": True}, 4, 4, WEIGHTS,
    ),
    Source(
        "layer_norm backward", layer_norm._backward, ("dy", "extra", "h", "dh"),
        {**ROWS_OF_BERT, "ADD": True, "SUMS": True}, 4, 4, WEIGHTS,
    ),
    Source("rope", rope._turn, ("x", "cos", "sin"), {**TURN, "BACKWARD": False}, 2, 4),
    Source("rope back", rope._turn_back, BACK, {**TURN, "REST": 0, "WHOLE": 128}, 2, 8),
    Source("rope back, a part", rope._turn_back, BACK, {**TURN, "REST": 32, "WHOLE": 128}, 2, 12),
    Source("swiglu forward", swiglu._forward, (*GATES, "h", "kept", "scales"), FORTH),
    Source("swiglu backward", swiglu._backward, (*GATES, "dh", "kept", "scales"), ROUNDED),
    Source(
        "swiglu forward, kept", swiglu._forward, (*GATES, "h"), {**FORTH, "BLOCK": 512, "KEPT": True}, 2, 4, KEPT
    ),
    Source("swiglu backward, kept", swiglu._backward, (*GATES, "dh"), {**ROUNDED, "KEPT": True}, 4, 4, KEPT),
    Source("cross_entropy", cross_entropy._kernel, ("logits",), {**LOSS, "CAPPED": True, "GRADIENT": True}, 8, 4),
    Source(
        "cross_entropy alone", cross_entropy._kernel, ("logits",), {**LOSS, "CAPPED": False, "GRADIENT": False}, 8, 4
    ),
    # Words, magnitudes and B are read one by one, but every store is of 16 bytes.
    Source("nf4", nf4._kernel, ("out",), NF4, 4, 26, NF4_POINTERS),
    Source(
        "nf4 of a stack", nf4_stack._kernel, ("out",),
        {**STACK, "SCALED": False}, 4, 53, {"table": "*i64", "factors": "*fp32"},
    ),
    Source(
        "nf4 of a stack, scaled", nf4_stack._kernel, ("out",),
        {**STACK, "SCALED": True}, 4, 60, {"table": "*i64", "factors": "*fp32"},
    ),
    Source(
        "column dots", magnitudes._dots, ("dy", "y"), {"COLUMNS": magnitudes.COLUMNS, "ROWS": magnitudes.ROWS},
        4, 1, {"out": "*fp32"},
    ),
)  # fmt: skip


def narrow_accesses(ptx: str) -> int:
    """Global loads and stores of less than 16 bytes a thread."""
    widths = re.findall(r"(?:ld|st)\.global\S*?(?:\.v(\d))?\.b(\d+)", ptx)
    return sum(int(many or 1) * int(bits) < 128 for many, bits in widths)


def main(capability: int, without: Collection[str] = ()) -> None:
    """Compiles all of them but those that are named; bfloat16 begins at 80."""
    target = GPUTarget("cuda", capability, 32)
    half = "bf16" if capability >= 80 else "fp16"
    for source in SOURCES:
        if source.name in without:
            continue
        free = {parameter.name for parameter in source.function.params if parameter.do_not_specialize}
        named = {parameter.name for parameter in source.function.params if not parameter.is_constexpr}
        if source.function not in (nf4._kernel, nf4_stack._kernel) and free != named & CHANGING:
            sys.exit(f"{source.name} is compiled anew for {named & CHANGING ^ free}")
        described = ASTSource(source.function, source.signature(half), source.constants, source.hints(half))
        compiled = triton.compile(described, target=target, options={"num_warps": source.warps})
        shared, narrow = compiled.metadata.shared, narrow_accesses(compiled.asm["ptx"])
        if shared > SHARED_BYTES[capability] * 1024:
            sys.exit(f"{source.name} wants {shared} bytes of shared memory on sm_{capability}")
        if narrow > source.narrow:
            sys.exit(
                f"{source.name} has {narrow} narrow accesses on sm_{capability}, {source.narrow} at most are right"
            )
        print(f"compiled {source.name} for sm_{capability}: {shared} bytes of shared memory")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        main(int(argument))
