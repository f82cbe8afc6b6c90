"""Checks every op of ``core.kernels`` on this machine: its error against float64, compared with that of plain torch.

Inputs are random, rounded to the dtype. The truth is the textbook formula in float64 with autograd's gradients, *plain*
the same formula in the dtype, *ours* the op that training calls. Every result must satisfy::

    error(ours) <= 1.5 · error(plain) + half a unit in the last place of the largest value

in root mean square and in maximum. Without a card ours are the references: that checks their hand-written backward
passes, but no kernel.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from core.bench.report import machine_facts, markdown
from core.kernels import cross_entropy, layer_norm, linear_cross_entropy, reference, rms_norm, rope, swiglu
from core.kernels.dispatch import use_triton
from core.kernels.lora import Projection, lora_linears
from core.kernels.weights import nf4
from core.kernels.weights.nf4_reference import Nf4

FACTOR = 1.5
EPS = 1e-5
Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Size:
    """T tokens, D hidden, V vocabulary, H heads of 64."""

    tokens: int
    width: int
    vocabulary: int
    heads: int


SMALL, LARGE = Size(67, 256, 1003, 4), Size(515, 2048, 32_003, 32)
"""For the CPU and for a card; sizes are odd where an op allows it."""


@dataclass(frozen=True)
class Case:
    """An op. ``plain`` is the differentiable formula in torch, with gradients where the op gives some."""

    name: str
    draw: Callable[[torch.Generator, Size], Tensors]
    ours: Callable[..., Tensors]
    plain: Callable[..., Tensors]


def prove(say: Callable[[str], None], device: torch.device | None = None) -> dict[str, Any]:
    """Checks all ops in the dtypes that this device trains in; ``say`` gets a line for each."""
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    bf16 = device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)
    dtypes = (torch.float32, torch.bfloat16 if bf16 else torch.float16)
    kernels = use_triton(torch.empty(0, device=device))
    total = len(CASES) * len(dtypes)
    rows = []
    for number, (case, dtype) in enumerate(((case, dtype) for case in CASES for dtype in dtypes), start=1):
        say(f"{case.name}, {_word(dtype)}: begins ({number} of {total})")
        rows.append(_checked(case, dtype, device))
    return {
        "bench": "kernels",
        **machine_facts(device),
        "path": "kernels" if kernels else "textbook",
        "rows": rows,
        "agrees": all(row["agrees"] for row in rows),
    }


def table(result: dict[str, Any]) -> str:
    """A Markdown table with a row for each op and dtype."""
    head = ("op", "dtype", "ours", "plain torch", "allowed", "")
    cells = [
        (row["op"], row["dtype"], *(f"{row[name]:.2e}" for name in ("error", "plain_error", "allowed")),
         "agrees" if row["agrees"] else "DIFFERS")
        for row in result["rows"]
    ]  # fmt: skip
    ran = "Triton kernels" if result["path"] == "kernels" else "the references (no kernels on this machine)"
    return f"{markdown(head, cells)}\n\nran       {ran}"


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _checked(case: Case, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """The result of a case that comes nearest to, or furthest beyond, its allowed error."""
    size = LARGE if device.type == "cuda" else SMALL
    drawn = [_moved(value, dtype, device) for value in case.draw(torch.Generator().manual_seed(3407), size)]
    truth = case.plain(*(_moved(value, torch.float64, device) for value in drawn))
    plain, ours = case.plain(*drawn), case.ours(*drawn)
    measured = [
        each for three in zip(ours, plain, truth, strict=True) for each in errors(*three, torch.finfo(dtype).eps)
    ]
    error, usual, allowed = max(measured, key=lambda item: item[0] / item[2] if item[2] else float(item[0] > 0))
    agrees = all(one <= limit for one, _, limit in measured)
    named = {"op": case.name, "dtype": _word(dtype), "results": len(truth)}
    return {**named, "error": error, "plain_error": usual, "allowed": allowed, "agrees": agrees}


def errors(
    ours: torch.Tensor, plain: torch.Tensor, truth: torch.Tensor, eps: float
) -> list[tuple[float, float, float]]:
    """``(error of ours, error of plain, allowed)`` as root mean square and as maximum.

    ``truth`` is float64; NaN counts as an infinite error.
    """
    slack = 0.5 * eps * float(truth.abs().max())
    measured = []
    for measure in (lambda d: d.square().mean().sqrt(), lambda d: d.abs().max()):
        mine, usual = (float(measure((part.double() - truth).nan_to_num(nan=torch.inf))) for part in (ours, plain))
        measured.append((mine, usual, FACTOR * usual + slack))
    return measured


def _moved(value: torch.Tensor, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return value.to(device, dtype if value.is_floating_point() else value.dtype)


def _grad(function: Callable[..., torch.Tensor], leaves: Sequence[torch.Tensor], seed: torch.Tensor) -> Tensors:
    """Autograd's gradients of ``function`` at ``leaves``."""
    fresh = [leaf.detach().requires_grad_() for leaf in leaves]
    return torch.autograd.grad(function(*fresh), fresh, seed)


# ── the ops ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _normal(g: torch.Generator, *shape: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape, generator=g) * scale


def _norm_rows(g: torch.Generator, size: Size) -> Tensors:
    shape = (size.tokens, size.width)
    return _normal(g, *shape), _normal(g, size.width), _normal(g, *shape)


def _norm_backward(x: torch.Tensor, weight: torch.Tensor, dy: torch.Tensor) -> Tensors:
    _, h, s = rms_norm.normalize(x, weight, EPS)
    return (rms_norm.normalize_backward(dy, h, weight, s),)


def _layer_norm_rows(g: torch.Generator, size: Size) -> Tensors:
    rows = tuple(_normal(g, size.tokens, size.width) for _ in range(3))
    return *rows, 1 + 0.3 * _normal(g, size.width), _normal(g, size.width)


def _layer_norm(function: Callable[..., torch.Tensor]) -> Callable[..., Tensors]:
    def both(x: torch.Tensor, residual: torch.Tensor, dy: torch.Tensor, *weights: torch.Tensor) -> Tensors:
        def value(x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return function(x, w, b, EPS, residual)

        leaves = (x, residual, *weights)
        return value(*leaves), *_grad(value, leaves, dy)

    return both


def _turned_rows(g: torch.Generator, size: Size) -> Tensors:
    angles = torch.rand(size.tokens, 32, generator=g).repeat(1, 2)[None] * 6.28
    return _normal(g, size.tokens, size.heads * 64), angles.cos(), angles.sin(), _normal(g, size.tokens, size.heads, 64)


def _turn(rows: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, _dy: torch.Tensor) -> Tensors:
    out = rows.clone()
    rope.turn_(out, cos, sin, out.shape[1] // 64, 64)
    return (out,)


def _turn_plain(rows: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, _dy: torch.Tensor) -> Tensors:
    heads = rows.unflatten(1, (-1, 64)).transpose(0, 1)[None]
    return (reference.rope(heads, heads, cos, sin)[0][0].transpose(0, 1).flatten(1),)


def _turn_back(rows: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, dy: torch.Tensor) -> Tensors:
    out = rows.new_empty(rows.shape[0], 3 * rows.shape[1])
    rope.turn_back(dy, dy.flip(1).contiguous(), dy, cos, sin, out)
    return (out,)


def _turn_back_plain(rows: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, dy: torch.Tensor) -> Tensors:
    def back(d: torch.Tensor) -> torch.Tensor:
        return _grad(lambda r: _turn_plain(r, cos, sin, d)[0], [rows], d.flatten(1))[0]

    return (torch.cat([back(dy), back(dy.flip(1)), dy.flatten(1)], dim=1),)


def _gate_rows(g: torch.Generator, size: Size) -> Tensors:
    return _normal(g, size.tokens, 2 * size.width), _normal(g, size.tokens, size.width)


def _gate(kind: str) -> Callable[..., Tensors]:
    def ours(gate_up: torch.Tensor, dh: torch.Tensor) -> Tensors:
        h = swiglu.gate(gate_up, kind, torch.empty_like(dh))
        both, again = gate_up.clone(), dh.clone()
        swiglu.gate_backward_(again, both, kind)
        return h, both, again

    return ours


def _gate_plain(formula: Callable[..., torch.Tensor]) -> Callable[..., Tensors]:
    def plain(gate_up: torch.Tensor, dh: torch.Tensor) -> Tensors:
        def value(both: torch.Tensor) -> torch.Tensor:
            return formula(*both.chunk(2, dim=-1))

        h = value(gate_up)
        return h, *_grad(value, [gate_up], dh), h

    return plain


def _logits(g: torch.Generator, size: Size) -> Tensors:
    labels = torch.randint(0, size.vocabulary, (size.tokens,), generator=g)
    labels[::5] = reference.IGNORED
    return _normal(g, size.tokens, size.vocabulary, scale=3.0), labels


def _label_gradient(logits: torch.Tensor, labels: torch.Tensor) -> Tensors:
    gradient = logits.clone()
    return cross_entropy.cross_entropy_gradient_(gradient, labels), gradient


def _label_gradient_plain(logits: torch.Tensor, labels: torch.Tensor) -> Tensors:
    losses = reference.cross_entropy(logits, labels)
    return losses, *_grad(lambda z: reference.cross_entropy(z, labels), [logits], torch.ones_like(losses))


def _head(g: torch.Generator, size: Size) -> Tensors:
    return _normal(g, size.tokens, size.width), _normal(g, size.vocabulary, size.width, scale=0.05), _logits(g, size)[1]


def _head_with(function: Callable[..., torch.Tensor]) -> Callable[..., Tensors]:
    def both(hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> Tensors:
        leaf = hidden.detach().requires_grad_()
        losses = function(leaf, weight, labels)
        return losses.detach(), *torch.autograd.grad(losses.sum(), leaf)

    return both


def _lora_rows(g: torch.Generator, size: Size) -> Tensors:
    width, rank = size.width, 16
    weight, a, b = _normal(g, width, width, scale=0.05), _normal(g, rank, width, scale=0.1), _normal(g, width, rank)
    return _normal(g, size.tokens, width), weight, a, b, _normal(g, size.tokens, width)


def _dora_rows(g: torch.Generator, size: Size) -> Tensors:
    *lora, dy = _lora_rows(g, size)
    return *lora, 1.0 + _normal(g, size.width).abs(), dy


def _lora(function: Callable[..., torch.Tensor]) -> Callable[..., Tensors]:
    def both(x: torch.Tensor, w: torch.Tensor, *rest: torch.Tensor) -> Tensors:
        def value(x: torch.Tensor, *adapter: torch.Tensor) -> torch.Tensor:
            return function(x, w, *adapter)

        *adapter, dy = rest
        return value(x, *adapter), *_grad(value, [x, *adapter], dy)

    return both


def _projection(w: torch.Tensor, a: torch.Tensor, b: torch.Tensor, m: torch.Tensor | None = None) -> Projection:
    return Projection(lambda: w, None, a, b, 0.5, (len(w), w.shape[1]), magnitude=m)


def _nf4_parts(g: torch.Generator, size: Size) -> Tensors:
    packed = torch.randint(0, 256, (size.width * size.width // 2,), generator=g).to(torch.uint8)
    code = torch.linspace(-1, 1, 16)
    return packed, code, torch.rand(size.width * size.width // 64, generator=g) + 0.01


def _four_bits(packed: torch.Tensor, code: torch.Tensor, absmax: torch.Tensor) -> Tensors:
    height = int((2 * packed.numel()) ** 0.5)
    wide = (code.float(), absmax.float())
    weight = Nf4(packed, wide[1], wide[0], 64, None, None, 1, None, (height, height), code.dtype)
    return (nf4.dequantize(weight),)


def _four_bits_plain(packed: torch.Tensor, code: torch.Tensor, absmax: torch.Tensor) -> Tensors:
    numbers = torch.stack((packed >> 4, packed & 15), dim=-1).flatten().long()
    height = int(numbers.numel() ** 0.5)
    return ((code[numbers].view(-1, 64) * absmax[:, None]).view(height, height),)


CASES = (
    Case("RMS norm", _norm_rows, lambda x, w, _: (rms_norm.normalize(x, w, EPS)[0],),
         lambda x, w, _: (reference.rms_norm(x, w, EPS),)),
    Case("RMS norm, backward", _norm_rows, _norm_backward,
         lambda x, w, dy: _grad(lambda r: reference.rms_norm(r, w, EPS), [x], dy)),
    Case("layer norm with residual and gradients", _layer_norm_rows, _layer_norm(layer_norm.layer_norm),
         _layer_norm(reference.layer_norm)),
    Case("rotation (RoPE)", _turned_rows, _turn, _turn_plain),
    Case("rotation, backward", _turned_rows, _turn_back, _turn_back_plain),
    Case("SwiGLU gate and backward", _gate_rows, _gate("silu"), _gate_plain(reference.swiglu)),
    Case("GeGLU gate and backward", _gate_rows, _gate("gelu_tanh"), _gate_plain(reference.geglu)),
    Case("cross-entropy and its gradient", _logits, _label_gradient, _label_gradient_plain),
    Case("head and cross-entropy in one", _head, _head_with(linear_cross_entropy.linear_cross_entropy),
         _head_with(reference.linear_cross_entropy)),
    Case("LoRA products and gradients", _lora_rows,
         _lora(lambda x, w, a, b: lora_linears(x, [_projection(w, a, b)])),
         _lora(lambda x, w, a, b: x @ w.T + 0.5 * ((x @ a.T) @ b.T))),
    Case("DoRA products and gradients", _dora_rows,
         _lora(lambda x, w, a, b, m: lora_linears(x, [_projection(w, a, b, m)])),
         _lora(lambda x, w, a, b, m: reference.dora_linear(x, w, (a, b), 0.5, m))),
    Case("NF4 to 16 bits", _nf4_parts, _four_bits, _four_bits_plain),
)  # fmt: skip
