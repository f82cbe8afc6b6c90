"""Which backend runs an attention call: plain data and one pure function.

========== ============================================================= ==================== =======================
backend    what it is                                                    needs                backward deterministic
========== ============================================================= ==================== =======================
cudnn      cuDNN's dense attention through torch, grouped heads as       equal rows, sm_90    no (never chosen in
           they are; one plan a shape, so only lengths that come back    or 100, 16 bits      deterministic mode)
flash      FlashAttention-2 inside torch with row bounds, windows and    sm_80, 16 bits       in deterministic mode
           grouped heads
xformers   memory-efficient attention as xformers calls it, where it is  below sm_80, fp16    in deterministic mode
           installed and works; without dropout                          or 32 bits           (keys are not split)
efficient  torch's memory-efficient attention with row bounds and        16 (sm_75: fp16) or  in deterministic mode
           causal windows; keys and values repeated for grouped heads    32 bits              (keys are not split)
flex       compiled FlexAttention: logits ``cap · tanh(logits / cap)``,  Triton, C compiler   yes
           causal, without dropout
rows       row by row through torch; asks the host for the row bounds    anything             as torch's own
========== ============================================================= ==================== =======================

cuDNN plans (tens of milliseconds) once for every (rows, length), so it is chosen for multiples of 128, as rows cut or
padded to a fixed length recur in every step, and for rows so long that their attention takes more than a plan. The
choice depends on the call alone, so a resumed run uses the backend that it used before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import torch

Backend = Literal["cudnn", "flash", "xformers", "efficient", "flex", "rows"]

LINES: dict[Backend, str] = {
    "cudnn": "packed, cuDNN inside torch",
    "flash": "packed, FlashAttention inside torch",
    "xformers": "packed, memory-efficient attention of xformers",
    "efficient": "packed, memory-efficient attention inside torch",
    "flex": "packed, compiled FlexAttention (this model caps its attention logits)",
    "rows": "row by row through torch",
}
FLASH_FROM = (8, 0)
CUDNN_TILE = 128
WORTH_A_PLAN = 12_288
"""Tokens of a row from which cuDNN is the faster one even where its length never comes back: there, on an H100, it
saves 8 ms a layer recomputed of a 7B, and plans for 0.15 s in all."""
LOWEST_CUDNN = 91_501  # earlier versions err at lengths that are no multiple of 128 (pytorch issue 169849)
HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, eq=False)
class Keys:
    """The keys of rows that begin with tokens of the rows before them: K keys of T tokens, a token one of 1 or 2.

    Attributes:
        tokens: int32 ``[K]``: the token that each key is of.
        places: int32 ``[2, T]``: the keys of each token, its own and its second one, or its own twice.
        bounds: of the rows in K, which are the rows in full.
    """

    tokens: torch.Tensor
    places: torch.Tensor
    bounds: Bounds


@dataclass(frozen=True, eq=False)
class Bounds:
    """Where rows begin: row i is tokens ``cu[i]`` to ``cu[i + 1] - 1`` of the flattened token axis.

    Attributes:
        cu: int32 ``[rows + 1]`` on the tokens' device, from 0 to ``tokens``.
        longest: tokens of the longest row, or any larger number up to ``tokens``.
        rows: number of rows.
        tokens: all rows together.
        keys: where rows begin with tokens of others; a row's own tokens are then its last ones.
    """

    cu: torch.Tensor
    longest: int
    rows: int
    tokens: int
    keys: Keys | None = None

    @property
    def equal(self) -> bool:
        """Whether all rows are equally long and no token is of two; does not ask the device."""
        return self.rows * self.longest == self.tokens and self.keys is None

    @property
    def in_full(self) -> Bounds:
        """The rows with all that they see."""
        return self.keys.bounds if self.keys else self

    @staticmethod
    def of(options: Mapping[str, Any], tokens: int, batch: int = 1, device: torch.device | str | None = None) -> Bounds:
        """Reads transformers' keyword arguments; without bounds there, ``batch`` rows of equal length.

        Args:
            options: may hold ``cu_seq_lens_q`` and ``max_length_q``; and, where rows begin with tokens of others,
                ``key_tokens``, ``token_keys`` and bounds of keys.
            tokens: of all rows together.
            batch: number of equal rows, where no bounds are given.
            device: of the tokens; None leaves given bounds where they are.
        """
        cu = options.get("cu_seq_lens_q")
        if cu is None:
            return _equal_rows(tokens, batch, torch.device(device if device is not None else "cpu"))
        cu = cu.to(device=device if device is not None else cu.device, dtype=torch.int32)
        own = Bounds(cu, int(options.get("max_length_q") or tokens), cu.numel() - 1, tokens)
        if (key_tokens := options.get("key_tokens")) is None:
            return own
        full = Bounds(options["cu_seq_lens_k"], int(options["max_length_k"]), own.rows, key_tokens.numel())
        return replace(own, keys=Keys(key_tokens, options["token_keys"], full))


@lru_cache(maxsize=64)
def _equal_rows(tokens: int, batch: int, device: torch.device) -> Bounds:
    """Cached, so that all layers of a micro-batch share one object."""
    length = tokens // batch
    return Bounds(torch.arange(batch + 1, dtype=torch.int32, device=device) * length, length, batch, tokens)


@dataclass(frozen=True)
class AttentionKind:
    """The formula: ``softmax(cap(scale · q kᵀ)) v`` over ``j <= i`` and, in a window W, ``j > i - W``.

    Attributes:
        causal: False (encoders): over the whole row, and in a window W over ``|i - j| < W``.
        dropout: of the attention weights, by the random state of the tensors' device.
    """

    scale: float
    window: int | None = None
    softcap: float | None = None
    causal: bool = True
    dropout: float = 0.0

    def within(self, longest: int) -> AttentionKind:
        """Without the window, where no row is longer than it."""
        if self.window is None or self.window < longest:
            return self
        return replace(self, window=None)


@dataclass(frozen=True)
class Situation:
    """What the choice depends on.

    Attributes:
        capability: of the card; (0, 0) on the CPU.
        cudnn: its version as torch tells it, 91900 for 9.19.0; 0 where there is none.
        flex: whether FlexAttention can be compiled (Triton is there, and no compilation has failed yet).
        deterministic: ``torch.are_deterministic_algorithms_enabled()``.
        xformers: whether it is there and works; asked on cards without FlashAttention only.
    """

    device: str
    capability: tuple[int, int]
    dtype: torch.dtype
    head_dim: int
    window: int | None = None
    softcap: float | None = None
    equal: bool = False
    longest: int = 0
    cudnn: int = 0
    flex: bool = True
    deterministic: bool = False
    causal: bool = True
    dropout: bool = False
    xformers: bool = False


def choose(s: Situation) -> Backend:
    """The fastest backend that computes this exactly."""
    if s.device != "cuda" or s.dtype not in (*HALVES, torch.float32):
        return "rows"
    if s.dtype == torch.bfloat16 and s.capability < FLASH_FROM:
        return "rows"
    if s.softcap is not None:
        return "flex" if s.flex and s.causal and not s.dropout else "rows"
    if s.dtype in HALVES and s.capability >= FLASH_FROM:
        if _cudnn_runs(s):
            return "cudnn"
        if _flash_runs(s):
            return "flash"
    if not s.causal and s.window is not None:
        return "rows"
    return "xformers" if s.xformers and s.capability < FLASH_FROM and not s.dropout else "efficient"


def backend_line(s: Situation) -> str:
    """What will run, for people: for rows of any length and, where it differs, of equal length."""
    chosen = choose(s)
    even = choose(replace(s, equal=True, longest=max(s.longest, 2 * CUDNN_TILE)))
    return LINES[chosen] + (", or cuDNN's where all rows of a pass are equally long" if even != chosen else "")


def _cudnn_runs(s: Situation) -> bool:
    """Where it is faster: on an H200 488/394 TFLOP/s forward/backward, FlashAttention-2 284/218."""
    repeats = s.longest >= 2 * CUDNN_TILE and s.longest % CUDNN_TILE == 0
    pays = s.equal and (repeats or s.longest >= WORTH_A_PLAN)
    fits = s.head_dim <= 128 and s.window is None and s.capability[0] in (9, 10)
    return pays and fits and s.cudnn >= LOWEST_CUDNN and not s.deterministic and not s.dropout


def _flash_runs(s: Situation) -> bool:
    """FlashAttention-2's backward has no kernel for heads of 193 to 224 on cards with 99 KiB of shared memory."""
    small = s.capability in ((8, 6), (8, 7), (8, 9)) or s.capability[0] == 12
    return s.head_dim <= 256 and not (small and 192 < s.head_dim <= 224)
