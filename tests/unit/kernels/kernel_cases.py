"""Every op on drawn shapes: strided rows, in place, against autograd of the textbook, on the CPU and on a card.

Each family draws a case from a ``Random`` and a size class. ``fast`` runs our functions on views inside buffers full of
NaN and asserts that nothing outside of the view changed; ``plain`` is the textbook under autograd. Both give the same
list of outputs and gradients, which ``check_rows`` holds against float64 by the rule of ``core.bench.kernels``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

from core.bench.kernels import errors
from core.kernels import cross_entropy, layer_norm, linear_cross_entropy, reference, rms_norm, rope, swiglu
from core.kernels.weights import magnitudes

Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Rows:
    """A drawn case; ``draw`` gives float32 inputs, which both functions take in the dtype under test."""

    name: str
    fast: Callable[..., Tensors]
    plain: Callable[..., Tensors]
    draw: Callable[[torch.Generator], list[torch.Tensor]]


@dataclass(frozen=True)
class Sizes:
    """From what shapes are drawn."""

    tokens: tuple[int, ...]
    widths: tuple[int, ...]
    heads: tuple[tuple[int, int], ...]
    head_dims: tuple[tuple[int, int], ...]
    """Of a head, and how much of it is turned."""
    vocabularies: tuple[int, ...]
    pads: tuple[tuple[int, int], ...] = ((0, 0), (0, 16), (3, 5), (8, 24))
    """Foreign columns before and behind the rows."""


tiny_sizes = Sizes(
    (0, 1, 2, 5), (3, 16, 33, 77, 160, 1100), ((1, 1), (4, 2), (3, 1)), ((16, 16), (32, 24), (10, 6)), (3, 50, 97)
)


def card_sizes(half: bool) -> Sizes:
    """A few widths only: each new one is a kernel to compile. Other dtypes than the usual one take two of them."""
    many = half or None
    return Sizes(
        (0, 1, 2, 31, 129, 517),
        (4096, 77, 896, 5120, 9217, 16384)[: 6 if many else 2],
        ((32, 8), (14, 2), (3, 1))[: 3 if many else 1],
        ((128, 128), (128, 96), (80, 80))[: 3 if many else 1],
        (32_000, 32_003, 128_256, 256_001)[: 4 if many else 2],
        ((0, 0), (16, 64), (3, 5)) if many else ((0, 0), (16, 64)),
    )


class Strided:
    """Views inside buffers full of NaN, which must still be NaN around the views when all is done."""

    def __init__(self, pad: tuple[int, int]) -> None:
        self.before, self.behind = pad
        self.buffers: list[tuple[torch.Tensor, int]] = []

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        """A copy of ``values [T, ...]``, its rows side by side with foreign ones."""
        flat = values.detach().flatten(1)
        width = flat.shape[1]
        buffer = torch.full_like(flat[:, :1], torch.nan).repeat(1, self.before + width + self.behind)
        view = buffer[:, self.before : self.before + width]
        view.copy_(flat)
        self.buffers.append((buffer, width))
        return view if values.dim() == 2 else view.unflatten(1, values.shape[1:])

    def untouched(self) -> None:
        for buffer, width in self.buffers:
            assert buffer[:, : self.before].isnan().all()
            assert buffer[:, self.before + width :].isnan().all()


def _normal(g: torch.Generator, *shape: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape, generator=g) * scale


def _grads(outputs: Tensors, inputs: Tensors, seeds: Tensors) -> Tensors:
    return list(torch.autograd.grad(outputs, inputs, seeds))


def norm_rows(r: Random, sizes: Sizes) -> Rows:
    """Forward and backward; of rows or of heads, with or without residual, in place where that may be."""
    per_head, add = r.random() < 0.4, r.random() < 0.5
    tokens, pad = r.choice(sizes.tokens), r.choice(sizes.pads)
    inner = (sum(r.choice(sizes.heads)), r.choice(sizes.head_dims)[0]) if per_head else (r.choice(sizes.widths),)
    offset, eps = r.choice((0.0, 1.0)), r.choice((1e-5, 1e-6))
    in_place = r.choice(("none", "dy", "extra", "h"))

    def draw(g: torch.Generator) -> Tensors:
        return [*(_normal(g, tokens, *inner) for _ in range(4)), _normal(g, inner[-1])]

    def fast(x: Any, residual: Any, dy: Any, extra: Any, w: Any) -> Tensors:
        lay = Strided(pad)
        x, dy, extra = lay(x), lay(dy), lay(extra)
        out = lay(torch.zeros_like(x))
        y, h, s = rms_norm.normalize(x, w, eps, offset, lay(residual) if add else None, out=out)
        assert y is out
        assert h is x or add
        assert s.shape == (x.shape[:-1].numel(),)
        if not add:
            over = lay(x)
            assert rms_norm.normalize(over, w, eps, offset, out=over)[0] is over
            assert torch.equal(over, y)
        leaf = h.detach().requires_grad_()
        op = rms_norm.rms_norm(leaf, w, eps, offset)
        alone = _grads([op], [leaf], [dy])
        target = {"none": lay(torch.zeros_like(x)), "dy": dy, "extra": extra, "h": h}[in_place]
        result = [h.clone(), y, rms_norm.normalize_backward(dy, h, w, s, offset, extra, out=target)]
        assert result[2] is target
        lay.untouched()
        return [*result, op, *alone]

    def plain(x: Any, residual: Any, dy: Any, extra: Any, w: Any) -> Tensors:
        h = (x + residual if add else x).detach().requires_grad_()
        y = reference.rms_norm(h, w, eps, offset)
        both = _grads([y, h * 1.0], [h], [dy, extra])
        return [h, y, *both, y, *_grads([reference.rms_norm(h, w, eps, offset)], [h], [dy])]

    name = f"norm {tokens}x{inner} pad {pad} add {add} offset {offset:g} over {in_place}"
    return Rows(name, fast, plain, draw)


def layer_norm_rows(r: Random, sizes: Sizes) -> Rows:
    """Both outputs and every gradient; with or without residual and bias.

    Not three wide: three values that happen to lie together make 1/std large, and every error with it.
    """
    tokens, pad = r.choice(sizes.tokens), r.choice(sizes.pads)
    width = r.choice([width for width in sizes.widths if width > 8])
    add, bias, eps = r.random() < 0.7, r.random() < 0.7, r.choice((1e-5, 1e-12))

    def draw(g: torch.Generator) -> Tensors:
        rows = [_normal(g, tokens, width) + 0.5 for _ in range(4)]
        return [*rows, 1 + 0.3 * _normal(g, width), _normal(g, width)]

    def through(function: Callable[..., Tensors]) -> Callable[..., Tensors]:
        def both(*values: Any) -> Tensors:
            x, residual, dy, extra, w, b = (value.detach().requires_grad_() for value in values)
            outputs = function(x, residual, w, b)
            leaves = [x, *([residual] if add else []), w, *([b] if bias else [])]
            return [*outputs, *_grads(outputs, leaves, [dy, extra][: len(outputs)])]

        return both

    def fast(x: Any, residual: Any, w: Any, b: Any) -> Tensors:
        if add:
            return list(layer_norm.add_norm(x, residual, w, b if bias else None, eps))
        return [layer_norm.layer_norm(x, w, b if bias else None, eps)]

    def strided(*values: Any) -> Tensors:
        lay = Strided(pad)
        given = through(fast)(*(lay(value) for value in values[:4]), *values[4:])
        lay.untouched()
        return given

    def plain(x: Any, residual: Any, w: Any, b: Any) -> Tensors:
        y = reference.layer_norm(x, w, b if bias else None, eps, residual if add else None)
        return [y, x + residual] if add else [y]

    name = f"layer norm {tokens}x{width} pad {pad} add {add} bias {bias}"
    return Rows(name, strided, through(plain), draw)


def gate_rows(r: Random, sizes: Sizes) -> Rows:
    tokens, width, pad = r.choice(sizes.tokens), r.choice(sizes.widths), r.choice(sizes.pads)
    kind = r.choice(("silu", "gelu_tanh"))

    def draw(g: torch.Generator) -> Tensors:
        return [_normal(g, tokens, 2 * width, scale=2.0), _normal(g, tokens, width)]

    def fast(gate_up: Any, dh: Any) -> Tensors:
        lay = Strided(pad)
        gate_up, dh = lay(gate_up), lay(dh)
        h = swiglu.gate(gate_up, kind, lay(torch.zeros_like(dh))).clone()
        swiglu.gate_backward_(dh, gate_up, kind)
        assert torch.equal(dh, h)
        lay.untouched()
        return [h, gate_up]

    def plain(gate_up: Any, dh: Any) -> Tensors:
        gate_up = gate_up.detach().requires_grad_()
        h = (reference.swiglu if kind == "silu" else reference.geglu)(*gate_up.chunk(2, -1))
        return [h, *_grads([h], [gate_up], [dh])]

    return Rows(f"gate {tokens}x{width} {kind} pad {pad}", fast, plain, draw)


def turned_rows(r: Random, sizes: Sizes) -> Rows:
    """``turn_`` forward, backward in place, and ``turn_back`` from gradients laid out as attention leaves them."""
    batch, tokens, shared = r.choice((1, 2, 3)), r.choice(sizes.tokens), r.random() < 0.5
    (hq, hk), (dim, turned), pad = r.choice(sizes.heads), r.choice(sizes.head_dims), r.choice(sizes.pads)
    flat, heads = batch * tokens, hq + hk

    def draw(g: torch.Generator) -> Tensors:
        angles = _normal(g, 1 if shared else batch, tokens, turned, scale=3.0)
        return [*(_normal(g, flat, (heads + hk) * dim) for _ in range(2)), angles.cos(), angles.sin()]

    def fast(x: Any, dy: Any, cos: Any, sin: Any) -> Tensors:
        lay = Strided(pad)
        y, back, out = lay(x), lay(dy), lay(torch.zeros_like(x))
        rope.turn_(y, cos, sin, heads, dim)
        assert torch.equal(y[:, heads * dim :], x[:, heads * dim :])
        rope.turn_(back, cos, sin, heads, dim, backward=True)
        apart = [part.transpose(0, 1).contiguous().transpose(0, 1) for part in _parts(lay(dy), hq, hk, dim)]
        rope.turn_back(*apart[:2], _parts(lay(dy), hq, hk, dim)[2], cos, sin, out)
        assert torch.equal(out[:, heads * dim :], dy[:, heads * dim :])
        lay.untouched()
        return [y, out, back]

    def plain(x: Any, dy: Any, cos: Any, sin: Any) -> Tensors:
        x = x.detach().requires_grad_()
        q, k, v = (part.unflatten(0, (batch, tokens)).transpose(1, 2) for part in _parts(x, hq, hk, dim))
        y = [*reference.rope(q, k, cos, sin), v]
        joined = torch.cat([part.transpose(1, 2).flatten(2) for part in y], -1).flatten(0, 1)
        return [joined, *_grads([joined], [x], [dy]) * 2]

    name = f"turn {batch}x{tokens} heads {hq}/{hk} dim {dim}/{turned} shared {shared} pad {pad}"
    return Rows(name, fast, plain, draw)


def _parts(rows: torch.Tensor, hq: int, hk: int, dim: int) -> tuple[torch.Tensor, ...]:
    heads = rows.unflatten(1, (hq + 2 * hk, dim))
    return heads[:, :hq], heads[:, hq : hq + hk], heads[:, hq + hk :]


def _labels(g: torch.Generator, tokens: int, vocabulary: int, ignored: float) -> torch.Tensor:
    labels = torch.randint(0, vocabulary, (tokens,), generator=g)
    return torch.where(torch.rand(tokens, generator=g) < ignored, reference.IGNORED, labels)


def loss_rows(r: Random, sizes: Sizes) -> Rows:
    tokens, vocabulary, pad = min(40, r.choice(sizes.tokens)), r.choice(sizes.vocabularies), r.choice(sizes.pads)
    scale, cap, ignored = r.choice((1.0, 0.5)), r.choice((0.0, 0.0, 30.0)), r.choice((0.0, 0.3, 1.0))

    def draw(g: torch.Generator) -> Tensors:
        return [_normal(g, tokens, vocabulary, scale=4.0), _labels(g, tokens, vocabulary, ignored)]

    def fast(logits: Any, labels: Any) -> Tensors:
        lay = Strided(pad)
        logits = lay(logits)
        alone = cross_entropy.cross_entropy(logits, labels, scale, cap)
        losses = cross_entropy.cross_entropy_gradient_(logits, labels, scale, cap)
        assert not alone[labels == reference.IGNORED].any()
        assert not logits[labels == reference.IGNORED].any()
        assert not losses[labels == reference.IGNORED].any()
        lay.untouched()
        return [alone, losses, logits]

    def plain(logits: Any, labels: Any) -> Tensors:
        logits = logits.detach().requires_grad_()
        losses = reference.cross_entropy(logits, labels, scale, cap)
        return [losses, losses, *_grads([losses.sum()], [logits], [torch.ones_like(losses.sum())])]

    name = f"loss {tokens}x{vocabulary} scale {scale:g} cap {cap:g} ignored {ignored:g} pad {pad}"
    return Rows(name, fast, plain, draw)


def head_rows(r: Random, sizes: Sizes) -> Rows:
    """Head and loss in one, its gradient scaled by what comes from above.

    Those are powers of two, one a token: a matrix product's largest error over a few dozen results is chance, and so
    both sides multiply the same numbers, before and after.
    """
    tokens, vocabulary, width = min(129, r.choice(sizes.tokens)), r.choice(sizes.vocabularies), r.choice((8, 24, 61))
    scale, cap, ignored = r.choice((1.0, 0.5)), r.choice((0.0, 0.0, 30.0)), r.choice((0.0, 0.3, 1.0))

    def draw(g: torch.Generator) -> Tensors:
        hidden, weight = _normal(g, tokens, width), _normal(g, vocabulary, width, scale=0.3)
        scales = torch.tensor([0.25, -1.0, 0.0, 2.0])[torch.arange(tokens) % 4]
        return [hidden, weight, _labels(g, tokens, vocabulary, ignored), scales]

    def through(function: Callable[..., torch.Tensor]) -> Callable[..., Tensors]:
        def both(hidden: Any, weight: Any, labels: Any, grad: Any) -> Tensors:
            hidden = hidden.detach().requires_grad_()
            losses = function(hidden, weight, labels, scale, cap)
            result = [losses, *_grads([losses], [hidden], [grad.to(losses.dtype)])]
            assert not (labels == reference.IGNORED).all() or not any(part.any() for part in result)
            return result

        return both

    fast, plain = through(linear_cross_entropy.linear_cross_entropy), through(reference.linear_cross_entropy)
    name = f"head {tokens}x{width} V {vocabulary} scale {scale:g} cap {cap:g} ignored {ignored:g}"
    return Rows(name, fast, plain, draw)


def dots_rows(r: Random, sizes: Sizes) -> Rows:
    """Sums over tokens, of values around one so that no sum is chance alone."""
    tokens, width, pad = r.choice((*sizes.tokens, 1100)), r.choice(sizes.widths), r.choice(sizes.pads)

    def draw(g: torch.Generator) -> Tensors:
        return [1.0 + _normal(g, tokens, width) for _ in range(2)]

    def fast(dy: Any, y: Any) -> Tensors:
        lay = Strided(pad)
        given = magnitudes.column_dots(lay(dy), lay(y))
        lay.untouched()
        return [given]

    return Rows(f"dots {tokens}x{width} pad {pad}", fast, lambda dy, y: [reference.column_dots(dy, y)], draw)


FAMILIES = {
    "norm": norm_rows, "layer norm": layer_norm_rows, "gate": gate_rows, "turn": turned_rows, "loss": loss_rows,
    "head": head_rows, "dots": dots_rows,
}  # fmt: skip


def check_rows(family: str, sizes: Sizes, number: int, dtype: torch.dtype, device: str) -> None:
    """Draws case ``number`` of a family and asserts the rule for each of its outputs.

    The largest of three errors is chance, so a small case is drawn with several seeds and their errors lie together.
    """
    case = FAMILIES[family](Random(f"{family} {number}"), sizes)
    drawn = case.draw(torch.Generator().manual_seed(number))
    times = 4 if sum(value.numel() for value in drawn) < 4096 else 1
    seen = [_results(case, 1000 * number + seed, dtype, device) for seed in range(times)]
    for index, results in enumerate(zip(*seen, strict=True)):
        wanted, theirs, ours = (torch.stack(parts) for parts in zip(*results, strict=True))
        assert_rule(f"{case.name} {dtype} result {index}", ours, theirs, wanted, dtype)


def _results(case: Rows, seed: int, dtype: torch.dtype, device: str) -> list[tuple[torch.Tensor, ...]]:
    """For each output the truth, plain torch's and ours."""
    inputs = [move(value, dtype, "cpu") for value in case.draw(torch.Generator().manual_seed(seed))]
    ways = ((case.plain, torch.float64), (case.plain, dtype), (case.fast, dtype))
    truth, plain, fast = (function(*(move(value, kind, device) for value in inputs)) for function, kind in ways)
    return list(zip(truth, plain, fast, strict=True))


def assert_rule(where: str, ours: torch.Tensor, theirs: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    """Our error against ``wanted`` (float64) beside plain torch's, as root mean square and as maximum."""
    assert ours.shape == wanted.shape, where
    if not ours.numel():
        return
    ours, theirs, wanted = ours.detach(), theirs.detach(), wanted.detach()
    for error, usual, allowed in errors(ours, theirs, wanted, torch.finfo(dtype).eps):
        assert error <= allowed, (where, error, usual, allowed)


def move(value: torch.Tensor, dtype: torch.dtype, device: str) -> torch.Tensor:
    """A tensor in another place, and in another dtype where it is no integer."""
    return value.to(device=device, dtype=dtype if value.is_floating_point() else value.dtype)
