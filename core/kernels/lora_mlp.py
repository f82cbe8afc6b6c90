"""The second half of a decoder layer: output projection, residual, norm, gated MLP, residual.

Forward, for attention's rows a ``[T, H]`` and the residual x ``[T, D]``::

    o = stack_o(a)           (Gemma 2 and 3: o = rms_norm(o))
    h = x + o                n = rms_norm(h)
    [g | u] = stack_gu(n)    t = f(g) · u
    z = stack_d(t)           (Gemma 2 and 3: z = rms_norm(z))
    y = h + z

Kept are a, h, ``[g | u]``, an inverse root mean square a token, and ``a A'``, ``n A'`` and ``t A'``; t is recomputed, n
is not needed (``core.kernels.lora.Normed``). Backward writes f's gradient over ``[g | u]`` and t over dt, which saves a
third tensor of that width; a second backward is therefore refused on a card (on the CPU it works on a copy). Where
products are in eight bits, ``[g | u]`` is kept in them as well (``core.kernels.eightbit.kept``), its gradient is
written into a tensor of its own, and ``t A'`` is left to the backward pass.

A recomputation (``core.model.layers.recompute``) needs no values of z: with ``wanted=False`` t and the last product are
skipped, y has no memory, and ``t A'`` is left to the backward pass.

DoRA's magnitudes need each projection's results: o and z are kept as well (z of a recomputation is made again), and
``[g | u]`` is copied a piece of the tokens at a time before the gradient is written over it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from core.kernels.dispatch import uncast
from core.kernels.eightbit.kept import Kept
from core.kernels.lora import Scaled, Stack
from core.kernels.lora_qkv import Norm, Tensors
from core.kernels.rms_norm import normalize, normalize_backward
from core.kernels.swiglu import gate, gate_backward_
from core.kernels.weights.bordered import Bordered, Rows
from core.kernels.weights.magnitudes import column_dots

PIECE_VALUES = 2**23
"""Values of ``[g | u]`` that are copied at once."""


@dataclass(frozen=True)
class Mlp:
    """A decoder layer's second half. ``after_attention`` and ``after_mlp`` are Gemma's norms before each residual."""

    o: Stack
    gate_up: Stack
    down: Stack
    norm: Norm
    activation: str = "silu"
    after_attention: Norm | None = None
    after_mlp: Norm | None = None

    def keeping(self) -> Mlp:
        """A copy for a recomputation: M of ``o`` and ``gate_up`` is kept (that of ``down`` is not made)."""
        return replace(self, o=self.o.keeping(), gate_up=self.gate_up.keeping())

    def held(self) -> Mlp:
        """A copy for many tiles of tokens: every M is kept for as long as the copy is there."""
        return replace(self, o=self.o.held(), gate_up=self.gate_up.held(), down=self.down.held())

    @property
    def adapters(self) -> list[torch.Tensor]:
        """The adapters of the three stacks, in order."""
        return [*self.o.adapters, *self.gate_up.adapters, *self.down.adapters]


def _norm(x: torch.Tensor, norm: Norm | None, keep: bool) -> tuple[torch.Tensor, Tensors]:
    """``(normalised, tensors for the backward pass)``, x the first of them; without a norm x where it is to be kept."""
    if norm is None:
        return x, (x,) if keep else ()
    y, _, s = normalize(x, norm.weight, norm.eps, norm.offset)
    return y, (x, s)


def _norm_backward(dy: torch.Tensor, norm: Norm | None, kept: Tensors) -> torch.Tensor:
    return dy if norm is None else normalize_backward(dy, kept[0], norm.weight, kept[1], norm.offset)


class _LoraMlp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, a: torch.Tensor, x: torch.Tensor, mlp: Mlp, wanted: bool, *_adapters: torch.Tensor
    ) -> torch.Tensor:
        bordered = mlp.o.bordered(a)
        m, g_o = mlp.o.matrix(a)
        o, kept_o = _norm(mlp.o.project(bordered, m), mlp.after_attention, mlp.o.scaled)
        del m
        low_o = mlp.o.kept(bordered)
        del bordered
        n = mlp.gate_up.room(x, mlp.gate_up.width, made=True)
        _, h, s = normalize(o, mlp.norm.weight, mlp.norm.eps, mlp.norm.offset, x, out=n.values, eight=n.eight)
        del o
        rows = mlp.gate_up.room(x, mlp.gate_up.rows)
        m, g = mlp.gate_up.matrix(x)
        mlp.gate_up.project(n, m, rows.values)
        del m
        low = mlp.gate_up.kept(n)
        del n
        kept_z: Tensors = ()
        y, low_d, g_d = h.new_empty(()).expand_as(h), None, None
        gates = Kept.room(rows.values) if wanted and mlp.gate_up.arithmetic.form else None
        if wanted or mlp.after_mlp is not None:
            y, low_d, g_d, kept_z = _down(h, rows, mlp, gates)
        both = (rows.kept, None) if gates is None else (gates.values, gates.scales)
        low_d = low_d if mlp.gate_up.arithmetic.form is None else None  # of t as the backward pass makes it again
        ctx.save_for_backward(a, low_o, h, s, low, *both, low_d, g_o, g, g_d, *kept_o, *kept_z)
        ctx.mlp, ctx.split, ctx.used_up = mlp, len(kept_o), False
        return y

    @staticmethod
    @uncast
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        mlp: Mlp = ctx.mlp
        a, low_o, h, s, low, both, scales, low_d, g_o, g, g_d, *kept = ctx.saved_tensors
        kept_o, kept_z = tuple(kept[: ctx.split]), tuple(kept[ctx.split :])
        gates = None if scales is None else Kept(both, scales)
        if gates is not None:
            rows = mlp.gate_up.room(h, mlp.gate_up.rows, made=True)
        elif ctx.used_up and both.is_cuda:
            raise RuntimeError("This layer's activations were used up by the first backward pass.")
        else:
            rows = mlp.gate_up.beside(both if both.is_cuda else both.clone(), made=True)
        del both
        ctx.used_up = True
        dz = _norm_backward(dy, mlp.after_mlp, kept_z)
        dots, down = _down_backward(dz, rows, mlp, (low_d, g_d, kept_z[0] if kept_z else None), gates)
        m, _ = mlp.gate_up.matrix(h, g)
        mlp.gate_up.pull_low(rows, m)
        dn = m.pull(rows)
        del m
        middle = mlp.gate_up.gradients(
            h, low, rows, mlp.norm.normed(s), None if g is None or dots is None else Scaled(g, dots)
        )
        del rows
        dh, do = _middle_backward((dn, dy), (h, s), mlp, kept_o)
        scaled = None if g_o is None else Scaled.of(g_o, do.values, kept_o[0])
        m, _ = mlp.o.matrix(h, g_o)
        mlp.o.pull_low(do, m)
        da = m.pull(do)
        return da, dh, None, None, *mlp.o.gradients(a, low_o, do, scaled=scaled), *middle, *down


def _middle_backward(d: Tensors, kept: Tensors, mlp: Mlp, kept_o: Tensors) -> tuple[torch.Tensor, Rows]:
    """``(dh [T, D], do [T, D])``; ``d`` is (dn, dy). Without ``after_attention`` dh is do's values."""
    (dn, dy), (h, s) = d, kept
    do, between, norm = mlp.o.room(h, mlp.o.rows, made=True), mlp.after_attention, mlp.norm
    if between is None:
        dh = normalize_backward(dn, h, norm.weight, s, norm.offset, dy, out=do.values, eight=do.eight)
    else:
        dh = normalize_backward(dn, h, norm.weight, s, norm.offset, dy, out=dn)
        first, inverse = kept_o
        normalize_backward(dh, first, between.weight, inverse, between.offset, out=do.values, eight=do.eight)
    return dh, do


def _down(
    h: torch.Tensor, rows: Rows, mlp: Mlp, gates: Kept | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, Tensors]:
    """``(y, t A', g, what is kept of z)``; fills ``gates``."""
    t = mlp.down.room(h, mlp.down.width)
    gate(rows.values, mlp.activation, t.values, gates)
    (down,), (m, g) = mlp.down.parts, mlp.down.matrix(h)
    if mlp.after_mlp is not None or g is not None or down.apart or down.bias is not None:
        z, kept = _norm(mlp.down.project(t, m), mlp.after_mlp, g is not None)
        return h + z, mlp.down.kept(t), g, kept
    mlp.down.low(t, m)
    return m.project(t, residual=h), mlp.down.kept(t), g, ()


def _down_backward(
    dz: torch.Tensor, rows: Rows, mlp: Mlp, kept: tuple[torch.Tensor | None, ...], gates: Kept | None
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    """Turns ``rows`` from ``[g | u]`` into its gradient; returns ``Scaled.dots`` of it, and the gradients of the down
    projection's adapter. ``gates``: where ``[g | u]`` is then.

    ``kept`` are ``t A'``, DoRA's g and z; what is None is computed from t.
    """
    low, g, z = kept
    m, g = mlp.down.matrix(dz, g)
    bordered = mlp.down.bordered(dz)
    mlp.down.pull_low(bordered, m)
    t = m.pull(bordered)
    dots = _gate_backward(t, rows, mlp, gates)
    if low is None:
        low = torch.mm(t, m.below[: mlp.down.thin].T)
    if g is not None and z is None:
        (part,) = mlp.down.parts
        assert isinstance(m, Bordered)  # no other arithmetic serves magnitudes
        z = torch.mm(t, m.frozen.T).addmm_(low, m.beside[:, : mlp.down.thin].T)
        z = z if part.bias is None else z.add_(part.bias)
    scaled = None if g is None or z is None else Scaled.of(g, bordered.values, z)
    return dots, mlp.down.gradients(t, low, bordered, scaled=scaled)


def _gate_backward(dt: torch.Tensor, rows: Rows, mlp: Mlp, gates: Kept | None) -> torch.Tensor | None:
    """``gate_backward_``; returns ``Scaled.dots`` of ``[g | u]`` and its gradient, None without magnitudes."""
    both = rows.values
    if not mlp.gate_up.scaled:
        rounded = mlp.gate_up.arithmetic.form is not None and gates is None
        gate_backward_(dt, both, mlp.activation, gates, rounded, rows.eight)
        return None
    count, dots = max(1, PIECE_VALUES // mlp.gate_up.rows), column_dots(both[:0], both[:0])
    for d, piece in zip(dt.split(count), both.split(count), strict=True):
        before = piece.clone()
        gate_backward_(d, piece, mlp.activation)
        dots += column_dots(piece, before)
    return dots


def lora_mlp(a: torch.Tensor, x: torch.Tensor, mlp: Mlp, wanted: bool = True) -> torch.Tensor:
    """The layer's output ``[T, D]`` of attention's rows ``a [T, H]`` and the residual ``x [T, D]``.

    Args:
        wanted: False where only the backward pass is needed: the output then has no values.
    """
    y: torch.Tensor = _LoraMlp.apply(a, x, mlp, wanted, *mlp.adapters)
    return y
