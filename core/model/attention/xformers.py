"""Memory-efficient attention by xformers, on cards without FlashAttention (below sm_80), where it is installed.

Nothing requires it. It is imported on such a card only, and taken where the installed version fits the installed torch
and a first pass, forward and backward, went through. Of xformers' kernels these cards have one, its CUTLASS operator;
in 0.0.34 and later that is torch's own (``aten._efficient_attention_forward``), so that both backends give the same.

Its masks are made of lengths that the host knows: it is asked for them once a micro-batch.
"""

import logging
from functools import lru_cache
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from core.machine.imports import unmet_by, version_of
from core.model.attention.choice import AttentionKind, Bounds
from core.model.attention.efficient import Efficient, Heads, Library, Tensors

log = logging.getLogger(__name__)
_rows: Any = WeakTensorKeyDictionary()


@lru_cache(maxsize=8)
def usable(device: torch.device) -> bool:
    """Whether it is there and computes; what keeps an installed one from it is logged once."""
    if not version_of("xformers"):
        return False
    if wanted := unmet_by("xformers", "torch"):
        log.warning("xformers is made for torch %s: attention runs inside torch.", wanted)
        return False
    try:
        _try(device)
    except Exception as error:  # noqa: BLE001 - whatever an optional library does, a run goes on without it
        log.warning("xformers does not work here (%s): attention runs inside torch.", str(error).splitlines()[:1])
        return False
    return True


def _try(device: torch.device) -> None:
    q = torch.zeros(24, 2, 64, dtype=torch.float16, device=device, requires_grad=True)
    bounds = Bounds(torch.tensor([0, 16, 24], dtype=torch.int32, device=device), 16, 2, 24)
    with torch.enable_grad():
        Efficient.apply(q, q[:, :1], q[:, :1], bounds, AttentionKind(0.125), XFORMERS).sum().backward()


def _forward(heads: Heads, bounds: Bounds, kind: AttentionKind) -> Tensors:
    fmha = _library()
    named = {"attn_bias": _mask(bounds, kind), "scale": kind.scale, "op": fmha.cutlass.FwOp}
    result: Tensors = fmha.memory_efficient_attention_forward_requires_grad(*heads, **named)
    return result


def _backward(gradient: torch.Tensor, heads: Heads, seen: Tensors, bounds: Bounds, kind: AttentionKind) -> Heads:
    fmha = _library()
    named = {"attn_bias": _mask(bounds, kind), "scale": kind.scale, "op": fmha.cutlass.BwOp}
    result: Heads = fmha.memory_efficient_attention_backward(gradient, *seen, *heads, **named)
    return result


def _library() -> Any:
    from xformers.ops import fmha

    return fmha


def _mask(bounds: Bounds, kind: AttentionKind) -> Any:
    """xformers' bias of these rows. Their lengths are kept as long as their bounds, which all layers share."""
    rows = _rows.get(bounds.cu)
    if rows is None:
        lengths = bounds.cu.diff().tolist()
        rows = _rows[bounds.cu] = _library().attn_bias.BlockDiagonalMask.from_seqlens(lengths, device=bounds.cu.device)
    if not kind.causal:
        return rows
    return rows.make_causal() if kind.window is None else rows.make_local_attention(kind.window)


XFORMERS = Library(_forward, _backward)
