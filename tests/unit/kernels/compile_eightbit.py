"""Compiles the 8-bit kernels for compute capabilities, without a card: ``python compile_eightbit.py 75 89``.

Prints a line a kernel; fails where one wants more shared memory than such a card gives a block, where registers spill,
where a product does not run on the matrix units of its format, or where 8-bit values are stored one by one.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from core.kernels import rms_norm, swiglu
from core.kernels.eightbit import kept, product, rows, weights
from core.kernels.eightbit.formats import FORMATS, Format
from core.kernels.eightbit.product import DEEP, Tile
from core.kernels.eightbit.reference import TINY
from core.kernels.eightbit.table import FIELDS, HIGH
from tests.unit.kernels.compile_kernels import BACKWARD, FORWARD, SHARED_BYTES

TOOL = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
TYPES = {"fp8": "fp8e4nv", "int8": "i8"}
UNITS = {"fp8": r"(mma\S*e4m3|tcgen05\.mma\S*f8f6f4)", "int8": r"mma\S*s8"}
SCALES = dict.fromkeys(
    ("scales", "x_scales", "w_scales", "factors", "nested_absmax", "nested_code", "offset", "code"), "*fp32"
)
DIGITS = {"NESTED": True, "GROUP": 256, "BLOCKSIZE": 64}
ADDED = {"BIASED": True, "ADDED": True}


@dataclass(frozen=True)
class Source:
    """A kernel, types of its arguments, its constants, and what its code must say."""

    name: str
    function: Any
    types: dict[str, str]
    constants: dict[str, Any]
    warps: int = 4
    stages: int = 3
    says: str = ""
    wide: bool = field(default=True)
    """Whether every store to memory is of 8 bytes at least a thread, but those of one value a row."""


def sources(form: Format, half: str, tile: Tile | None) -> Iterator[Source]:
    """All kernels of a format, products in the card's tile."""
    eight, way = f"*{TYPES[form.name]}", {"WHOLE": form.whole, "EXACT": False}
    ranged = {"LARGEST": form.largest, **way}
    held = {**SCALES, "out": eight, "table": "*i64"}
    row = {"out": eight, "scales": "*fp32", "x": half}
    for block, once in ((4096, True), (rows.AT_ONCE, True), (rows.PIECE, False)):
        told = {"BLOCK": block, "ONCE": once, "TINY": TINY, **ranged}
        yield Source(f"rows, {block} {once}", rows._kernel, row, told, rows.warps_for(block))
    yield from made_at_once(eight, half, ranged)
    for name, function, (side, tall), high in (
        ("as it lies", weights._rows_of_nf4, weights.LYING, {}),
        ("turned", weights._turned_of_nf4, weights.TURNED, {"HIGH": HIGH}),
    ):  # fmt: skip
        told = {**high, "SIDE": side, "TALL": tall, "PARTS": 3, "FIELDS": FIELDS, **DIGITS, **way}
        yield Source(f"nf4 {name}", function, held, told, weights.WARPS)
    for side, tall, is_turned in ((64, 128, True), (256, 16, False)):
        told = {"SIDE": side, "TALL": tall, "TURNED": is_turned, **way}
        yield Source(f"16 bits, turned {is_turned}", weights._of_plain, {**held, "weight": half}, told, weights.WARPS)
    besides = dict.fromkeys(("y", "low", "up", "bias", "residual"), half) | SCALES
    if tile is None:
        told = {"TALL": product.SCALED[0], "SIDE": product.SCALED[1], **ADDED}
        yield Source("sums scaled", product._scaled, {**besides, "sums": "*i32"}, told)
        return
    for more in (("RANKED",), ("RANKED", "BIASED"), ("RANKED", "ADDED"), ("ADDED",)):
        plus = {name: name in more for name in (*ADDED, "RANKED")}
        told = {"TALL": tile.tall, "SIDE": tile.side, "DEPTH": tile.deep, "GROUP": product.GROUP, "DEEP": DEEP,
                "WHOLE": form.whole}  # fmt: skip
        if tile.described:
            blocks = {"x": (tile.tall, tile.deep), "w": (tile.side, tile.deep)}
            types = {name: f"tensordesc<{eight[1:]}[{high}, {deep}]>" for name, (high, deep) in blocks.items()}
            pieces = 2 if more == ("ADDED",) else tile.pieces
            types["y"] = types["residual"] = f"tensordesc<{half[1:]}[{tile.tall}, {tile.side // pieces}]>"
            function, way = product._by_descriptors, {"FLAT": tile.lasting, "PIECES": pieces}
        else:
            types, function, way = {"x": eight, "w": eight}, product._by_pointers, {"EVEN": True}
        yield Source(
            f"product {' '.join(more)}", function, {**besides, **types}, {**told, **plus, **way},
            tile.warps, tile.stages, UNITS[form.name], wide=False,
        )  # fmt: skip


def made_at_once(eight: str, half: str, way: dict[str, Any]) -> Iterator[Source]:
    """Norms and gates that quantise what they make."""
    told = {"EIGHT": True, "TINY": TINY, **way}
    norm = {"heads": 1, "ROWS": 1, "BLOCK": 4096, "ADD": True, **told}
    types = {**dict.fromkeys((*FORWARD, *BACKWARD, "gate", "up"), half), **SCALES, "inverse": "*fp32", "eight": eight}
    types |= {"eight_scales": "*fp32", "kept": "*i8"} | dict.fromkeys(("eps", "offset"), "fp32")
    yield Source("norm forward", rms_norm._forward, types, norm, 8)
    yield Source("norm backward", rms_norm._backward, types, norm, 8)
    gate = {"BLOCK": swiglu.WIDEST_PIECE, "GELU": False, "SCALED": kept.BLOCK, **told}
    warps = swiglu.WIDEST_PIECE // 256
    for name in ("KEPT", "ROUNDED"):
        flags = {"KEPT": False, "ROUNDED": False, name: True}
        yield Source(f"gate backward {name}", swiglu._backward, types, {**gate, **flags}, warps)


def compiled(source: Source, capability: int) -> Any:
    """As a launch would compile it: what is not ``varying`` is a multiple of 16."""
    kinds = {
        parameter.name: "constexpr" if parameter.name in source.constants else source.types.get(parameter.name, "i32")
        for parameter in source.function.params
    }
    hints = {
        (parameter.num,): [["tt.divisibility", 16]]
        for parameter in source.function.params
        if kinds[parameter.name].startswith(("*", "i")) and not parameter.do_not_specialize
    }
    options = {"num_warps": source.warps, "num_stages": source.stages, "enable_fp_fusion": False}
    described = ASTSource(source.function, kinds, source.constants, hints)
    return triton.compile(described, target=GPUTarget("cuda", capability, 32), options=options)


def spilled(binary: bytes) -> int:
    """Bytes of a thread's stack."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        told = subprocess.run([TOOL, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    found = re.search(r"STACK:(\d+)", told.stdout)
    assert found, told.stdout
    return int(found[1])


def main(capability: int, without: Collection[str] = ()) -> None:
    """Compiles all that such a card runs, but those that are named."""
    half, card = "*bf16" if capability >= 80 else "*fp16", divmod(capability, 10)
    tile = product.tile_for(card)
    for form in FORMATS.values():
        if card < form.capability:
            continue
        for source in sources(form, half, tile):
            if source.name in without:
                continue
            name = f"{form.name} {source.name}"
            made = compiled(source, capability)
            shared, stack, code = made.metadata.shared, spilled(made.asm["cubin"]), made.asm["ptx"]
            if shared > SHARED_BYTES[capability] * 1024:
                sys.exit(f"{name} wants {shared} bytes of shared memory on sm_{capability}")
            if stack:
                sys.exit(f"{name} spills {stack} bytes on sm_{capability}")
            if source.says and not re.search(source.says, code):
                sys.exit(f"{name} does not run on matrix units of sm_{capability}")
            if source.wide and re.search(r"st\.global\S*\.b(8|16)\b", code):
                sys.exit(f"{name} stores single values on sm_{capability}")
            print(f"compiled {name} for sm_{capability}: {shared} bytes of shared memory")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        main(int(argument))
