"""What Luthier calls of xformers (0.0.34), in plain torch: its masks, its checks, and the two passes of its operator.

    memory_efficient_attention_forward_requires_grad(q, k, v, attn_bias, scale, op) -> output, log-sum-exps
    memory_efficient_attention_backward(gradient, output, log-sum-exps, q, k, v, attn_bias, scale, op) -> dq, dk, dv

Heads are ``[1, T, heads, size]``, as many of k and v as of q; log-sum-exps ``[rows, heads, longest up to a multiple of
32]``, float32 or finer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

PAD = 32


@dataclass(frozen=True)
class BlockDiagonalMask:
    lengths: tuple[int, ...]
    causal: bool = False
    window: int | None = None

    @staticmethod
    def from_seqlens(lengths: list[int], *, device: torch.device) -> BlockDiagonalMask:
        assert all(isinstance(length, int) for length in lengths)
        return BlockDiagonalMask(tuple(lengths))

    def make_causal(self) -> BlockDiagonalMask:
        return replace(self, causal=True)

    def make_local_attention(self, window: int) -> BlockDiagonalMask:
        assert window > 0
        return replace(self, causal=True, window=window)

    def seen(self, length: int) -> torch.Tensor:
        distance = torch.arange(length)[:, None] - torch.arange(length)[None, :]
        ahead = distance >= 0 if self.causal else torch.ones(length, length, dtype=torch.bool)
        return ahead & (distance < self.window) if self.window else ahead


@dataclass
class Fmha:
    """``calls``: (rows, longest, heads) of each backward pass, whose room goes by them."""

    calls: list[tuple[int, int, int]] = field(default_factory=list)
    cutlass: Any = field(default_factory=lambda: SimpleNamespace(FwOp="forward", BwOp="backward"))
    attn_bias: Any = field(default_factory=lambda: SimpleNamespace(BlockDiagonalMask=BlockDiagonalMask))

    def memory_efficient_attention_forward_requires_grad(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, attn_bias: BlockDiagonalMask, scale: float, op: str
    ) -> tuple[torch.Tensor, torch.Tensor]:
        assert op == "forward"
        self.check(attn_bias, q, k, v)
        out, longest = torch.empty_like(q, memory_format=torch.contiguous_format), max(attn_bias.lengths)
        sums = q.new_full((len(attn_bias.lengths), q.shape[2], -(-longest // PAD) * PAD), torch.inf)
        for row, (cut, logits) in enumerate(self.logits(attn_bias, q, k, scale)):
            sums[row, :, : logits.shape[1]] = logits.logsumexp(-1)
            out[0, cut] = (logits.softmax(-1) @ v[0, cut].transpose(0, 1)).transpose(0, 1)
        return out, sums

    def memory_efficient_attention_backward(
        self, gradient: torch.Tensor, out: torch.Tensor, sums: torch.Tensor, q: torch.Tensor, k: torch.Tensor,
        v: torch.Tensor, *, attn_bias: BlockDiagonalMask, scale: float, op: str,
    ) -> tuple[torch.Tensor, ...]:  # fmt: skip
        assert op == "backward"
        self.check(attn_bias, q, k, v)
        rows, longest = len(attn_bias.lengths), max(attn_bias.lengths)
        assert out.is_contiguous(), "its strides are taken for granted"
        assert gradient.shape == out.shape == q.shape
        assert sums.shape == (rows, q.shape[2], -(-longest // PAD) * PAD)
        self.calls.append((rows, longest, q.shape[2]))
        dq, dk, dv = (torch.empty(part.shape, dtype=part.dtype) for part in (q, k, v))
        for row, (cut, logits) in enumerate(self.logits(attn_bias, q, k, scale)):
            weights = (logits - sums[row, :, : logits.shape[1], None]).exp()
            own_q, own_k, own_v, own_out, own = (part[0, cut].transpose(0, 1) for part in (q, k, v, out, gradient))
            slope = weights * (own @ own_v.transpose(1, 2) - (own * own_out).sum(-1, keepdim=True)) * scale
            dv[0, cut] = (weights.transpose(1, 2) @ own).transpose(0, 1)
            dq[0, cut] = (slope @ own_k).transpose(0, 1)
            dk[0, cut] = (slope.transpose(1, 2) @ own_q).transpose(0, 1)
        return dq, dk, dv

    def check(self, bias: BlockDiagonalMask, *heads: torch.Tensor) -> None:
        assert len({part.shape for part in heads}) == 1, "heads are not repeated for anybody"
        for part in heads:
            assert part.dim() == 4
            assert part.shape[:2] == (1, sum(bias.lengths))
            assert part.stride(-1) == 1
            assert part.shape[-1] % 8 == part.stride(-2) % 8 == 0, "not aligned"

    @staticmethod
    def logits(bias: BlockDiagonalMask, q: torch.Tensor, k: torch.Tensor, scale: float) -> Any:
        for start, end in pairwise([0, *torch.tensor(bias.lengths).cumsum(0).tolist()]):
            cut = slice(start, end)
            made = q[0, cut].transpose(0, 1) @ k[0, cut].permute(1, 2, 0) * scale
            yield cut, made.masked_fill(~bias.seen(end - start), -torch.inf)


def modules(fmha: Any) -> dict[str, ModuleType]:
    """For ``sys.modules``."""
    package, ops = ModuleType("xformers"), ModuleType("xformers.ops")
    package.ops, ops.fmha = ops, fmha  # type: ignore[attr-defined]
    return {"xformers": package, "xformers.ops": ops, "xformers.ops.fmha": fmha}
