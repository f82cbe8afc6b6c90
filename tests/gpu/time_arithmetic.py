"""Checks and times 8-bit products at a Mistral-7B layer's sizes: ``python tests/gpu/time_arithmetic.py --out FILE``.

FILE is JSON, written anew after each part, so that a run that is cut off leaves what it has.

checks    quantised rows and weights (NF4 and 16 bits, both orientations) against the reference bit for bit, products in
          every tile against it by their largest difference
products  milliseconds of the four stacks of a layer, forward and backward: bf16 as today, ``torch._scaled_mm`` with our
          quantisers, and our kernels in every tile; the products alone, and what each of the passes around them takes
step      ``core.bench step`` with each arithmetic, in the time that is left

``--tiny`` runs all of it at small sizes, on the CPU too (with ``TRITON_INTERPRET=1`` through the kernels).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

BEGUN = time.monotonic()

import torch  # noqa: E402

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "unit" / "kernels")]

from bitsandbytes.functional import quantize_4bit  # noqa: E402
from nf4_cases import nf4_of  # noqa: E402

from core.kernels.dispatch import use_triton  # noqa: E402
from core.kernels.eightbit import reference, rows, weights  # noqa: E402
from core.kernels.eightbit.formats import FORMATS, Format  # noqa: E402
from core.kernels.eightbit.matrix import EightBit  # noqa: E402
from core.kernels.eightbit.product import Tile, product  # noqa: E402
from core.kernels.eightbit.reference import Besides, Quantised  # noqa: E402
from core.kernels.eightbit.table import table_of  # noqa: E402
from core.kernels.lora import Projection, Stack  # noqa: E402
from core.kernels.weights.bordered import Matrix, Rows  # noqa: E402
from core.kernels.weights.forms import HELD_FORMS, PLAIN  # noqa: E402
from core.kernels.weights.nf4_reference import Nf4  # noqa: E402

Found = dict[str, Any]
CARD = torch.cuda.is_available()
DEVICE = "cuda" if CARD else "cpu"
DTYPE = torch.bfloat16 if CARD else torch.float16
RANK = 16
STACKS = {"qkv": ([4096, 1024, 1024], 4096), "o": ([4096], 4096), "gate_up": ([14336, 14336], 4096),
          "down": ([4096], 14336)}  # fmt: skip
TINY = {"qkv": ([64, 32, 32], 64), "o": ([64], 64), "gate_up": ([96, 96], 64), "down": ([64], 96)}
TILES = {
    "128x256x128 s3": Tile(128, 256, 128, 8, 3, True, True),
    "128x256x128 s3 in two": Tile(128, 256, 128, 8, 3, True, True, 2),
    "128x256x128 s4 in two": Tile(128, 256, 128, 8, 4, True, True, 2),
    "128x256x128 s3 once": Tile(128, 256, 128, 8, 3, True),
    "pointers 128x256x128 s3": Tile(128, 256, 128, 8, 3),
}
TINY_TILES = {"desc 32": Tile(32, 32, 32, 4, 1, True, True, 2), "ptr 32": Tile(32, 32, 32, 4, 1)}
TURNED = ((8, 64), (4, 64), (8, 32), (8, 128), (16, 64), (4, 128))
LYING = ((64, 4), (64, 2), (128, 2), (128, 4), (32, 8))
ROWS = {"qkv forth": (4, 8, 16), "down forth": (8, 16), "gate_up back": (8, 16, 32)}
"""Warps of a program that quantises a row."""


def milliseconds(function: Callable[[], object], least: float = 0.06) -> float:
    """Mean on the card of as many calls as fill ``least`` seconds, after one."""
    function()
    if not CARD:
        begun = time.perf_counter()
        function()
        return round((time.perf_counter() - begun) * 1e3, 3)
    times = []
    for count in (2, 0):
        count = count or max(3, min(200, round(least * 1e3 / max(0.01, times[-1]))))
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(count):
            function()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / count)
    return round(times[-1], 4)


def attempt(function: Callable[[], Any]) -> Any:
    """What it gives, or its error in one line."""
    try:
        return function()
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return f"{type(error).__name__}: {lines[0][:160]} @ {traceback.extract_tb(error.__traceback__)[-1].name}"


def nf4(shape: tuple[int, int]) -> Nf4:
    flat = (torch.randn(shape, device=DEVICE) * torch.rand(shape[0], 1, device=DEVICE) * 0.1).to(DTYPE).reshape(-1)
    return nf4_of(*quantize_4bit(flat, quant_type="nf4", compress_statistics=True), shape)


class Layer:
    """A layer's four stacks in NF4, inputs and output gradients beside their columns."""

    def __init__(self, shapes: dict[str, tuple[list[int], int]], tokens: int) -> None:
        torch.manual_seed(0)
        self.stacks = {name: self._stack(heights, width) for name, (heights, width) in shapes.items()}
        self.x = {name: self._rows(stack, tokens, stack.width) for name, stack in self.stacks.items()}
        self.kept: dict[str, list[Any]] = {}
        self.dy = {name: self._rows(stack, tokens, stack.rows) for name, stack in self.stacks.items()}

    @staticmethod
    def _stack(heights: list[int], width: int) -> Stack:
        parts = []
        for height in heights:
            a, b = torch.randn(RANK, width, device=DEVICE), torch.randn(height, RANK, device=DEVICE)
            held = nf4((height, width))
            parts.append(Projection(held, None, a, b, 0.5, (height, width), HELD_FORMS["nf4"]))
        return Stack(tuple(parts))

    @staticmethod
    def _rows(stack: Stack, tokens: int, width: int) -> torch.Tensor:
        return torch.randn(tokens, width + stack.rank, dtype=DTYPE, device=DEVICE)

    def matrix(self, name: str, form: Format) -> EightBit:
        stack = self.stacks[name]
        return EightBit.of(stack.parts, form, stack.thin, self.x[name], self.kept.setdefault(form.name + name, []))


def operands(layer: Layer, name: str, form: Format, back: bool) -> tuple[Quantised, Quantised, Besides]:
    """The factors of one product, and what is added: in a step the down projection adds the layer's residual."""
    m = layer.matrix(name, form)
    source, edge = (layer.dy[name], len(m.beside)) if back else (layer.x[name], m.below.shape[1])
    up = m.below.T if back else m.beside
    residual = layer.x["o"][:, : len(up)] if name == "down" and not back else None
    besides = Besides(source[:, edge : edge + up.shape[1]], up, residual=residual)
    return rows.quantise_rows(source[:, :edge], form), m.weight(back), besides


def every_pass(layer: Layer) -> list[tuple[str, bool]]:
    return [(name, back) for name in layer.stacks for back in (False, True)]


def by_pass(layer: Layer, function: Callable[[str, bool], float | str]) -> Found:
    """Of each stack and way, and their sum."""
    found: Found = {}
    for name, back in every_pass(layer):
        found[f"{name} {'back' if back else 'forth'}"] = attempt(lambda name=name, back=back: function(name, back))  # type: ignore[misc]
    numbers = [value for value in found.values() if isinstance(value, float)]
    return {**found, "sum": round(sum(numbers), 3) if len(numbers) == len(found) else None}


def checks(tiles: dict[str, Tile], forms: list[Format]) -> Found:
    found: Found = {}
    torch.manual_seed(1)
    x = torch.randn(65, 1024 + 64, device=DEVICE).mul_(torch.rand(65, 1, device=DEVICE) * 9).to(DTYPE)
    x[3], x[5, 7], x[6, 9] = 0.0, float("nan"), float("inf")
    for form in forms:
        ours, wanted = rows.quantise_rows(x[:, :1024], form), reference.quantise_rows(x[:, :1024], form)
        same = torch.equal(ours.scales, wanted.scales) and torch.equal(ours.values.float(), wanted.values.float())
        found[f"{form.name} rows"] = same
        for shape in ((256, 512), (112, 136)):
            plain = torch.randn(shape, device=DEVICE).to(DTYPE)
            for kind, held in (("nf4", nf4(shape)), ("16-bit", plain)):
                extent, form_of = weights.extent_of(held), HELD_FORMS["nf4"] if isinstance(held, Nf4) else PLAIN
                table = table_of([Projection(held, None, None, None, 1.0, shape, form_of)], extent.rows.device)
                for turned in (False, True):
                    told = (reference.inverse(extent.of(turned), form), form, turned)
                    out = torch.zeros(shape[::-1] if turned else shape, dtype=form.dtype, device=DEVICE)
                    given = weights.quantise_stack([held], table, *told, out).float()
                    known = reference.quantise_weight(held, *told).float()
                    off = int((given != known).sum())
                    found[f"{form.name} {kind} {shape} {'turned' if turned else 'as it lies'}"] = off or True
        for name, tile in tiles.items():
            found[f"{form.name} {name}"] = attempt(lambda tile=tile, form=form: product_error(tile, form))  # type: ignore[misc]
    return found


def product_error(tile: Tile, form: Format) -> Found:
    """Against the reference, relative to the largest value, and the reference against the product without 8 bits; of a
    shape with rests on all sides, low, bias and residual."""
    tokens, outputs, width, rank = (300, 528, 1040, 48) if CARD else (40, 48, 80, 16)
    x, w = torch.randn(tokens, width, device=DEVICE), torch.randn(outputs, width, device=DEVICE)
    low, up = (torch.randn(n, rank, device=DEVICE).to(DTYPE) for n in (tokens, outputs))
    bias, residual = (torch.randn(*n, device=DEVICE).to(DTYPE) for n in ((outputs,), (tokens, outputs)))
    left, right = reference.quantise_rows(x, form), reference.quantise_rows(w, form)
    besides = Besides(low, up, bias, residual)
    wanted = reference.product(left, right, besides, torch.float32)
    given = product(left, right, besides, DTYPE, tile=tile).float()
    true = x @ w.T + low.float() @ up.float().T + bias.float() + residual.float()
    return {
        "off": round(float((given - wanted).abs().max() / wanted.abs().max()), 6),
        "of 8 bits": round(float((wanted - true).norm() / true.norm()), 5),
    }


def today(layer: Layer) -> Found:
    """bf16: M made and its product, as a step does it; and the parts of that."""
    return {
        "whole": by_pass(layer, lambda name, back: milliseconds(lambda: _sixteen(layer, name, back))),
        "product alone": by_pass(layer, lambda name, back: _sixteen_alone(layer, name, back)),
    }


def _sixteen(layer: Layer, name: str, back: bool) -> object:
    stack = layer.stacks[name]
    m, _ = stack.matrix(layer.x[name])
    return _product(stack, m, layer.dy[name] if back else layer.x[name], back)


def _product(stack: Stack, m: Matrix, rows: torch.Tensor, back: bool) -> object:
    whole = Rows.of(rows, rows.shape[1] - stack.rank)
    return m.pull(whole) if back else stack.project(whole, m)


def _sixteen_alone(layer: Layer, name: str, back: bool) -> float:
    stack = layer.stacks[name]
    m, _ = stack.matrix(layer.x[name])
    return milliseconds(lambda: _product(stack, m, layer.dy[name] if back else layer.x[name], back))


def around(layer: Layer, form: Format) -> Found:
    """What stands around a product: rows quantised, weights quantised, borders written."""

    def quantised(name: str, back: bool) -> float:
        source, width = (layer.dy, layer.stacks[name].rows) if back else (layer.x, layer.stacks[name].width)
        return milliseconds(lambda: rows.quantise_rows(source[name][:, :width], form))

    return {
        "rows": by_pass(layer, quantised),
        "nf4": by_pass(layer, lambda name, back: milliseconds(lambda: layer.matrix(name, form).weight(back))),
        "borders": by_pass(layer, lambda name, _: milliseconds(lambda: layer.matrix(name, form))),
    }


def weight_tiles(layer: Layer, form: Format) -> Found:
    """Of gate and up's weight in other tiles: words and rows of a program."""
    found: Found = {}
    m, held = layer.matrix("gate_up", form), (weights.TURNED, weights.LYING)
    for weights.TURNED in TURNED:
        found[f"turned {weights.TURNED}"] = attempt(lambda: milliseconds(lambda: m.weight(True)))
    for weights.LYING in LYING:
        found[f"as it lies {weights.LYING}"] = attempt(lambda: milliseconds(lambda: m.weight(False)))
    weights.TURNED, weights.LYING = held
    return found


def row_warps(layer: Layer, form: Format) -> Found:
    """Of some widths with other numbers of warps."""
    found, held = {}, rows.warps_for
    for name, numbers in ROWS.items():
        stack, _, way = name.partition(" ")
        source, width = (layer.dy, layer.stacks[stack].rows) if way == "back" else (layer.x, layer.stacks[stack].width)
        for warps in numbers:
            rows.warps_for = lambda _block, warps=warps: warps  # type: ignore[misc]
            told = source[stack][:, :width]
            found[f"{name} {warps}"] = attempt(lambda told=told: milliseconds(lambda: rows.quantise_rows(told, form)))  # type: ignore[misc]
    rows.warps_for = held
    return found


def alone(layer: Layer, form: Format, tile: Tile) -> Found:
    """Our product with its additions, in a tile."""

    def timed(name: str, back: bool) -> float:
        left, right, besides = operands(layer, name, form, back)
        out = torch.empty(len(left.values), len(right.values), dtype=DTYPE, device=DEVICE)
        return milliseconds(lambda: product(left, right, besides, DTYPE, out, tile))

    return by_pass(layer, timed)


def by_cublas(layer: Layer, form: Format, **options: bool) -> Found:
    """cuBLASLt, with the adapter's part added to its result; ``adapter=False``: the 8-bit product alone."""
    adapter = options.pop("adapter", True)

    def timed(name: str, back: bool) -> float:
        left, right, besides = operands(layer, name, form, back)
        scales = left.scales[:, None], right.scales[None, :]

        def run() -> torch.Tensor:
            y = torch._scaled_mm(left.values, right.values.T, *scales, out_dtype=DTYPE, **options)
            if adapter:
                y.addmm_(besides.low, besides.up.T)
            return y if besides.residual is None or not adapter else y.add_(besides.residual)

        return milliseconds(run)

    return by_pass(layer, timed)


def warm(layer: Layer, tiles: dict[str, Tile], forms: list[Format]) -> float:
    """Compiles every tile at once, in threads: seconds."""
    begun = time.monotonic()
    cases = [(name, form, tile) for name in ("o",) for form in forms for tile in tiles.values()]

    def one(case: tuple[str, Format, Tile]) -> None:
        name, form, tile = case
        for back in (False, True):
            left, right, besides = operands(layer, name, form, back)
            product(left, right, besides, DTYPE, tile=tile)

    operands(layer, "o", forms[0], False)
    with ThreadPoolExecutor(14) as pool:
        list(pool.map(lambda case: attempt(lambda: one(case)), cases))
    if CARD:
        torch.cuda.synchronize()
    return round(time.monotonic() - begun, 2)


def step(arithmetic: str, seconds: float, tiny: bool) -> Any:
    """A dense step of the bench in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "step.json"
        size = ["--model", "random:tiny", "--rows", "dense:64"] if tiny else [
            "--model", "random:mistral-7b", "--rows", "dense:2048", "--batch", "4", "--accumulation", "2",
        ]  # fmt: skip
        words = ["step", *size, "--arithmetic", arithmetic, "--steps", "5", "--warm-up", "2", "--json", str(place)]
        begun = time.monotonic()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "core.bench", *words], cwd=ROOT, timeout=max(1.0, seconds), capture_output=True,
                text=True, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"cut off after {seconds:.0f} s"
        if not place.is_file():
            return done.stderr.strip().splitlines()[-3:]
        told = json.loads(place.read_text(encoding="utf-8"))
        kept = ("seconds_a_step", "tokens_a_second", "losses", "peak_allocated", "peak_reserved", "peak_gib", "memory")
        return {**{key: told[key] for key in kept if key in told}, "took": round(time.monotonic() - begun, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=86.0)
    parser.add_argument("--parts", default="", help="only these parts, by commas")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--steps", default="", help="arithmetics whose dense steps are timed, by commas")
    chosen = parser.parse_args()
    found: Found = {"torch": torch.__version__, "card": torch.cuda.get_device_name() if CARD else "CPU"}

    def part(name: str, function: Callable[[], Any], reserve: float = 4.0) -> None:
        if chosen.parts and name not in chosen.parts.split(","):
            return
        left = chosen.seconds - (time.monotonic() - BEGUN)
        found[name] = attempt(function) if left > reserve else "no time left"
        found.setdefault("at", {})[name] = round(time.monotonic() - BEGUN, 1)
        chosen.out.write_text(json.dumps(found, indent=1), encoding="utf-8")

    forms = [form for form in FORMATS.values() if not CARD or torch.cuda.get_device_capability() >= form.capability]
    tiles = TINY_TILES if chosen.tiny else TILES
    layer = Layer(*((TINY, 48) if chosen.tiny else (STACKS, 8192)))
    found["kernels"] = use_triton(layer.x["o"])
    found["at"] = {"ready": round(time.monotonic() - BEGUN, 1)}
    part("compiled", lambda: warm(layer, tiles, forms))
    part("checks", lambda: checks(tiles, forms))
    part("bf16", lambda: today(layer))
    for form in forms:
        part(f"{form.name} around", lambda form=form: around(layer, form))
        if not form.whole:
            part("fp8 _scaled_mm", lambda form=form: by_cublas(layer, form, use_fast_accum=True))
            part("fp8 _scaled_mm alone", lambda form=form: by_cublas(layer, form, use_fast_accum=True, adapter=False))
        for name, tile in tiles.items():
            part(f"{form.name} {name}", lambda form=form, tile=tile: alone(layer, form, tile))
    part("fp8 weight tiles", lambda: weight_tiles(layer, forms[0]))
    part("fp8 row warps", lambda: row_warps(layer, forms[0]))
    layer.stacks.clear(), layer.x.clear(), layer.dy.clear(), layer.kept.clear()
    if CARD:
        torch.cuda.empty_cache()
    for arithmetic in filter(None, chosen.steps.split(",")):
        left = chosen.seconds - (time.monotonic() - BEGUN)
        part(f"step {arithmetic}", lambda a=arithmetic, s=left - 1: step(a, s, chosen.tiny), 12.0)
    found["took"] = round(time.monotonic() - BEGUN, 1)
    chosen.out.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    with torch.no_grad():
        main()
