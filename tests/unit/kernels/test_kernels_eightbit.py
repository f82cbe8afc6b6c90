"""8-bit products: their definition, and the kernels against it.

Runs twice: by the references, and (started by ``test_kernels_triton``) as Triton code in Triton's interpreter.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import product as combined
from typing import Any

import pytest
import torch
from nf4_cases import draw, draw_stack

from core.kernels import reference as plain
from core.kernels import rms_norm, swiglu
from core.kernels.dispatch import use_triton
from core.kernels.eightbit import reference, rows, weights
from core.kernels.eightbit.arithmetics import ARITHMETICS, SIXTEEN
from core.kernels.eightbit.formats import FORMATS, Format
from core.kernels.eightbit.kept import BLOCK, Kept
from core.kernels.eightbit.matrix import EightBit
from core.kernels.eightbit.product import Tile, by_library, product
from core.kernels.eightbit.reference import Besides, Quantised
from core.kernels.eightbit.table import table_of
from core.kernels.lora import Projection, Stack, lora_linears
from core.kernels.weights.forms import HELD_FORMS, PLAIN
from core.kernels.weights.nf4_reference import Nf4

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DTYPES = (torch.float32, torch.float16) if INTERPRETED else (torch.float32, torch.float16, torch.bfloat16)
TILES = (Tile(32, 32, 32, 4, 1), Tile(64, 32, 32, 4, 1, True), Tile(32, 32, 64, 4, 1, True, True, 2))
FORMS = [pytest.param(form, id=form.name) for form in FORMATS.values()]
RARELY: Any = pytest.mark.slow if INTERPRETED else ()
"""What the interpreter, which takes long, runs in the long run only."""
SHAPES, STACKS = [(16, 64), (144, 72), (32, 1032), (7, 27)], ["nf4", "plain"]
FIRST, *OTHERS = FORMATS
UNIT = {"fp8": 2.0**-4, "int8": 0.5 / 127}
"""Half a step of the format: of fp8 by the value's size, of int8 by the row's largest."""


def in_turn(*choices: list[Any]) -> list[Any]:
    """Every combination; the interpreter by default takes those of an even number of second choices."""
    return [
        pytest.param(*chosen, marks=() if sum(map(list.index, choices, chosen)) % 2 == 0 else RARELY)
        for chosen in combined(*choices)
    ]


@pytest.mark.parametrize("form", FORMS)
def test_a_row_is_rounded_to_the_nearest_of_its_own_scale(form: Format) -> None:
    x = torch.randn(9, 200, generator=torch.Generator().manual_seed(1)) * torch.logspace(-9, 9, 9)[:, None]
    x[4] = 0.0
    found = reference.quantise_rows(x, form)
    most = x.abs().amax(1, keepdim=True)
    allowed = UNIT[form.name] * (most if form.whole else x.abs()) + most * 2.0**-18
    assert ((found.wide() - x).abs() <= allowed).all()
    assert found.values.float().abs().amax() == form.largest
    assert not found.values[4].float().any()
    assert found.scales[4] == 0


@pytest.mark.parametrize("form", FORMS)
def test_ties_go_to_the_even_neighbour(form: Format) -> None:
    ties = {"int8": ([127.0, 0.5, 1.5, -2.5], [127, 0, 2, -2]), "fp8": ([448.0, 17.0, 19.0, -25.0], [448, 16, 20, -24])}
    given, wanted = ties[form.name]
    assert rows.quantise_rows(torch.tensor([given]), form).values.float().tolist() == [wanted]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_finite_afterwards(form: Format, bad: float) -> None:
    """The guards of training look for it in losses and gradients: an 8-bit integer cannot hold it."""
    x, w = torch.randn(3, 64), torch.randn(16, 64)
    x[1, 5] = bad
    y = product(rows.quantise_rows(x, form), reference.quantise_rows(w, form), Besides(), torch.float32)
    assert y[1].isnan().all()
    assert y[::2].isfinite().all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_are_those_of_the_definition(form: Format, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "AT_ONCE", 128)  # wider rows are read twice
    g = torch.Generator().manual_seed(2)
    for width in (16, 100, 128, 300):
        wide = (torch.randn(6, width + 24, generator=g) * torch.rand(6, 1, generator=g) * 9).to(dtype)
        wide[2], wide[3, 9] = 0.0, float("nan")
        view = wide[:, 8 : 8 + width]
        found, wanted = rows.quantise_rows(view, form), reference.quantise_rows(view, form)
        sound = torch.tensor([True, True, True, False, True, True])
        assert found.scales[3].isnan()
        assert wanted.scales[3].isnan()
        assert torch.equal(found.scales[sound], wanted.scales[sound])
        assert torch.equal(found.values.float()[sound], wanted.values.float()[sound])
    assert use_triton(wide) == INTERPRETED
    assert rows.quantise_rows(view[:0], form).values.shape == (0, 300)


@pytest.mark.parametrize(("name", "shape"), in_turn(list(FORMATS), SHAPES))
def test_weights_are_those_of_the_definition(name: str, shape: tuple[int, int]) -> None:
    """From NF4 with and without nested scales and from plain weights; as they lie and turned; into strided rows."""
    torch.manual_seed(3)
    form = FORMATS[name]
    for held in (draw(shape, torch.float16, nested=SHAPES.index(shape) < 2).weight, torch.randn(shape).half()):
        part = Projection(held, None, None, None, 1.0, shape, HELD_FORMS["nf4"] if isinstance(held, Nf4) else PLAIN)
        extent = weights.extent_of(held)
        assert torch.equal(extent.rows, reference.wide_weight(held).half().abs().amax(1).float())
        for turned in (False, True):
            told = (reference.inverse(extent.of(turned), form), form, turned)
            room = torch.zeros(shape[1], shape[0] + 8) if turned else torch.zeros(shape[0], shape[1] + 8)
            room = room.to(form.dtype)
            weights.quantise_stack([held], table_of([part], torch.device("cpu")), *told, room[:, 8:])
            assert torch.equal(room[:, 8:].float(), reference.quantise_weight(held, *told).float())
            assert not room[:, :8].float().any()


@pytest.mark.parametrize("name", [FIRST, *(pytest.param(name, marks=RARELY) for name in OTHERS)])
def test_a_stack_is_made_as_its_parts_are(name: str) -> None:
    """In one launch of NF4: heights that fill no tile, a part without an adapter, and the adapters beside."""
    torch.manual_seed(13)
    form = FORMATS[name]
    heights, width = [48, 16, 80], 72
    stack = draw_stack(heights, width, [8, 0, 4], torch.float32).stack
    like = torch.zeros(1, width, dtype=torch.float16)
    kept: list[object] = []
    m = EightBit.of(stack.parts, form, stack.thin, like, kept)
    for turned in (False, True):
        made, factors = m.weight(turned), m.known.factors.of(turned)
        for number, part in enumerate(stack.parts):
            rows = slice(sum(heights[:number]), sum(heights[: number + 1]))
            wanted = reference.quantise_weight(part.frozen(), factors if turned else factors[rows], form, turned)
            assert torch.equal((made.values[:, rows] if turned else made.values[rows]).float(), wanted.float())
    beside, below = torch.zeros(sum(heights), 16), torch.zeros(16, width)
    first, _, last = stack.parts
    assert first.a is not None
    assert first.b is not None
    assert last.a is not None
    assert last.b is not None
    beside[:48, :8], beside[64:, 8:12] = first.b * first.scale, last.b * last.scale
    below[:8], below[8:12] = first.a, last.a
    assert torch.equal(m.beside, beside.half())
    assert torch.equal(m.below, below.half())
    with torch.no_grad():
        moved = [replace(part, a=None if part.a is None else part.a + 1) for part in stack.parts]
    assert torch.equal(EightBit.of(moved, form, stack.thin, like, kept).below[:8], (first.a + 1).half())
    assert EightBit.of(stack.parts, form, stack.thin, like, kept).known.units is m.known.units


@pytest.mark.parametrize(("name", "tile"), in_turn(list(FORMATS), list(TILES)))
def test_products_are_those_of_the_definition(name: str, tile: Tile) -> None:
    """With rests on every side, adapter columns, bias and residual, into strided rows."""
    form = FORMATS[name]
    g = torch.Generator().manual_seed(4)
    for number, (tokens, outputs, width, rank) in enumerate(((5, 32, 64, 0), (70, 48, 96, 8), (33, 48, 80, 40))):
        for dtype in DTYPES[number % 2 :][:1] if INTERPRETED else DTYPES[:2]:  # the interpreter takes long
            x = torch.randn(tokens, width + rank, generator=g).to(dtype)
            left = rows.quantise_rows(x[:, :width], form)
            right = reference.quantise_rows(torch.randn(outputs, width, generator=g), form)
            up = torch.randn(rank, outputs, generator=g).to(dtype).T
            added = torch.randn(outputs, generator=g), torch.randn(tokens, outputs + 8, generator=g)[:, :outputs]
            besides = Besides(x[:, width:], up, *(more.to(dtype) for more in added)) if rank else Besides()
            wanted = reference.product(left, right, besides, dtype)
            out = torch.full((tokens, outputs + 8), 7.0, dtype=dtype)
            product(left, right, besides, dtype, out[:, 8:], tile)
            torch.testing.assert_close(out[:, 8:], wanted, rtol=1e-3, atol=1e-4 if dtype == torch.float32 else 2e-3)
            assert (out[:, :8] == 7).all()


@pytest.mark.parametrize(("inner", "kind"), in_turn([40, 256, 1100], ["silu", "gelu_tanh"]))
def test_a_gate_kept_in_eight_bits_is_within_half_a_step_of_each_block(
    inner: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels against the definition bit for bit; what was recomputed gives the same gradients; NaN is found again."""
    monkeypatch.setattr(swiglu, "WIDEST_PIECE", 512)  # rows of several pieces, the last of them not full
    g = torch.Generator().manual_seed(14)
    dtype = torch.float32 if inner == 40 else torch.float16
    rows_ = (torch.randn(5, 2 * inner + 8, generator=g) * torch.logspace(-6, 1, 5)[:, None]).to(dtype)
    rows_[1, :130] = 0.0
    both, dh = rows_[:, : 2 * inner], torch.randn(5, inner, generator=g).to(dtype)
    kept, defined = Kept.room(both), Kept.room(both)
    h = swiglu.gate(both, kind, torch.empty_like(dh), kept)
    defined.fill(both)
    assert torch.equal(h, swiglu.gate(both, kind, torch.empty_like(dh)))
    assert torch.equal(kept.values, defined.values)
    assert torch.equal(kept.scales, defined.scales)
    steps = kept.scales.repeat_interleave(BLOCK, 1)
    one = -(-inner // BLOCK) * BLOCK
    steps = torch.cat((steps[:, :inner], steps[:, one : one + inner]), 1)
    assert ((kept.wide() - both.float()).abs() <= 0.5001 * steps).all()
    found, again, wanted = torch.zeros_like(rows_), rows_.clone(), both.float()
    t, t_again, t_wanted = dh.clone(), dh.clone(), dh.float()
    swiglu.gate_backward_(t, found[:, : 2 * inner], kind, kept)
    swiglu.gate_backward_(t_again, again[:, : 2 * inner], kind, rounded=True)
    assert torch.equal(found[:, : 2 * inner], again[:, : 2 * inner])
    assert torch.equal(t, t_again)
    for form in FORMATS.values():
        made, found_again, t_made = Quantised.room(both, form), torch.zeros_like(both), dh.clone()
        swiglu.gate_backward_(t_made, found_again, kind, kept, eight=made)
        assert torch.equal(found_again, found[:, : 2 * inner])
        assert torch.equal(t_made, t)
        assert same(made, reference.quantise_rows(found_again, form))
    plain.gate_backward_(t_wanted, wanted.copy_(kept.wide()), kind)
    torch.testing.assert_close(t.float(), t_wanted, rtol=2e-3, atol=1e-5)
    torch.testing.assert_close(found[:, : 2 * inner].float(), wanted, rtol=2e-3, atol=1e-5)
    both[2, 3] = float("nan")
    swiglu.gate(both, kind, torch.empty_like(dh), kept)
    assert kept.wide()[2, : min(inner, BLOCK)].isnan().all()
    assert kept.wide()[3].isfinite().all()


def test_norms_write_what_they_make_in_eight_bits_as_well() -> None:
    g = torch.Generator().manual_seed(15)
    for tokens, width, form in ((3, 40, FORMATS["int8"]), (5, 1100, FORMATS["fp8"]), (2, 4096, FORMATS["int8"])):
        dtype = torch.float16
        x, residual, dy, extra = (torch.randn(tokens, width + 8, generator=g).to(dtype)[:, :width] for _ in range(4))
        x[1], residual[1] = 0.0, 0.0
        w, made = torch.randn(width, generator=g).to(dtype), Quantised.room(x, form)
        plain_y, plain_h, s = rms_norm.normalize(x, w, 1e-5, 0.0, residual)
        y, h, _ = rms_norm.normalize(x, w, 1e-5, 0.0, residual, eight=made)
        assert torch.equal(y, plain_y)
        assert torch.equal(h, plain_h)
        assert same(made, reference.quantise_rows(y, form))
        dh = rms_norm.normalize_backward(dy, h, w, s, 0.0, extra, eight=made)
        assert torch.equal(dh, rms_norm.normalize_backward(dy, h, w, s, 0.0, extra))
        assert same(made, reference.quantise_rows(dh, form))


def same(one: Quantised, other: Quantised) -> bool:
    """Bit for bit."""
    return torch.equal(one.values.float(), other.values.float()) and torch.equal(one.scales, other.scales)


def test_sums_of_the_library_give_the_same_product() -> None:
    """Cards on which Triton multiplies no integers; few rows too, which the library refuses."""
    g, form = torch.Generator().manual_seed(9), FORMATS["int8"]
    dtype = torch.float16 if INTERPRETED else torch.float32
    for tokens, rank in ((40, 8), (3, 0), (33, 0)):
        x = torch.randn(tokens, 64 + rank, generator=g).to(dtype)
        left = reference.quantise_rows(x[:, :64], form)
        right = reference.quantise_rows(torch.randn(48, 64, generator=g), form)
        up, bias, residual = (torch.randn(*n, generator=g).to(dtype) for n in ((48, rank), (48,), (tokens, 48)))
        for besides in (Besides(x[:, 64:], up), Besides(x[:, 64:], up, bias, residual)):
            out = torch.empty(tokens, 48, dtype=dtype)
            if use_triton(out):
                by_library(left, right, besides, out)
            else:
                product(left, right, besides, dtype, out)
            wanted = reference.product(left, right, besides, torch.float32)
            torch.testing.assert_close(out.float(), wanted, rtol=2e-3, atol=2e-2 if INTERPRETED else 1e-3)


@pytest.mark.parametrize(("name", "held"), in_turn(list(FORMATS), STACKS))
def test_a_stack_in_eight_bits_is_near_the_one_in_sixteen(name: str, held: str) -> None:
    """Forward and input gradient by their whole size; the adapters' gradients by direction."""
    torch.manual_seed(5)
    heights, width, ranks = [32, 16, 16] if INTERPRETED else [64, 32, 32], 64 if INTERPRETED else 128, [8, 0, 4]
    stacked = draw_stack(heights, width, ranks, torch.float32)
    stack = stacked.stack if held == "nf4" else stacked.plain
    allowed = {"fp8": 0.05, "int8": 0.015}[name]
    dtype = torch.float16 if INTERPRETED else torch.float32
    x = torch.randn(40, width, dtype=dtype)
    given: dict[str, list[torch.Tensor]] = {}
    for arithmetic in (SIXTEEN, ARITHMETICS[name]):
        leaf = x.clone().requires_grad_()
        parts = [replace(part) for part in stack.parts]
        for part in parts:
            for tensor in part.adapters:
                tensor.requires_grad_()
        one = Stack(tuple(parts)).computed_in(arithmetic)
        assert one.arithmetic is arithmetic
        y = run(leaf, one)
        seed = torch.randn(y.shape, generator=torch.Generator().manual_seed(6)).to(dtype)
        given[arithmetic.name] = [y, *torch.autograd.grad(y, [leaf, *one.adapters], seed)]
    wanted, found = given.values()
    for one_of, other in zip(wanted, found, strict=True):
        assert (one_of - other).norm() <= allowed * one_of.norm()


def run(x: torch.Tensor, stack: Stack) -> torch.Tensor:
    """The autograd function of single projections, over a stack as it is given."""
    from core.kernels.lora import _LoraLinear

    y: torch.Tensor = _LoraLinear.apply(x, stack, *stack.adapters)
    return y


@pytest.mark.parametrize("name", FORMATS)
def test_an_adapter_never_goes_through_eight_bits(name: str) -> None:
    """Beside a frozen weight of zeros its part is as exact as in 16 bits, both ways."""
    torch.manual_seed(7)
    a, b, x = torch.randn(4, 64, requires_grad=True), torch.randn(32, 4, requires_grad=True), torch.randn(9, 64)
    zero = torch.zeros(32, 64)
    part = Projection(lambda: zero, torch.randn(32), a, b, 0.5, (32, 64))
    leaf = x.requires_grad_()
    y, wanted = run(leaf, Stack((part,)).computed_in(ARITHMETICS[name])), lora_linears(leaf, [part])
    torch.testing.assert_close(y, wanted, rtol=1e-5, atol=1e-5)
    seed = torch.randn_like(y)
    torch.testing.assert_close(
        torch.autograd.grad(y, [leaf, a, b], seed),
        torch.autograd.grad(wanted, [leaf, a, b], seed),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("name", FORMATS)
def test_what_it_does_not_serve_stays_in_sixteen(name: str) -> None:
    def part(outputs: int = 32, dora: bool = False, started: bool = False) -> Projection:
        a, b = torch.randn(4, 64), torch.randn(outputs, 4)
        m = torch.rand(outputs) if dora else None
        start = (a.clone(), b.clone()) if started else None
        return Projection(lambda: torch.zeros(outputs, 64), None, a, b, 1.0, (outputs, 64), start=start, magnitude=m)

    for parts, eight in (
        ((part(),), True), ((part(), part(48)), True), ((part(33),), False), ((part(), part(dora=True)), False),
        ((part(started=True),), False),
    ):  # fmt: skip
        stack = Stack(parts)
        assert (stack.computed_in(ARITHMETICS[name]).arithmetic is not SIXTEEN) == eight


def test_scales_of_a_stack_s_columns_are_shared() -> None:
    """One product sums over all rows of a stack, so that its turned matrix has one scale a column."""
    torch.manual_seed(8)
    stack, form = draw_stack([32, 48], 64, [8, 4], torch.float32).stack, FORMATS["int8"]
    m, _ = stack.computed_in(ARITHMETICS["int8"]).matrix(torch.zeros(1, 64))
    whole = torch.cat([reference.wide_weight(part.frozen()) for part in stack.parts])
    most = whole.abs()
    for turned, extent in ((False, most.amax(1)), (True, most.amax(0))):
        found: Quantised = m.weight(turned)  # type: ignore[attr-defined]
        torch.testing.assert_close(found.scales, extent / form.largest)
        torch.testing.assert_close(
            found.wide(), whole.T if turned else whole, rtol=0, atol=0.51 * float(most.max()) / 127
        )
