"""Attention with capped logits on a card: FlexAttention, compiled once a process.

    s_ij = cap · tanh(scale · q_i·k_j / cap)     j from first(i) to i     first(i) = max(start of i's row, i - W + 1)

``first`` is an int32 tensor, so one compiled kernel serves all rows and windows. A block of 128 queries sees the blocks
of 128 keys from that of its first query's ``first`` to its own: this block mask is made on the device, once for all
layers of a micro-batch. T is padded to whole blocks, at least two, and dynamic: no length recompiles. The backward pass
uses no atomic additions and is deterministic.
"""

import logging
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from core.model.attention.choice import AttentionKind, Bounds

BLOCK = 128
LARGE_HEAD = 128
FIRST_BLOCKS = (11, 13, 17, 19)
# 32 x 256 x 2 bytes are 16 KiB: four such tiles of a backward pass fit 99 KiB, and in one stage the forward fits 64.
SMALL_TILES = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_M1": 16, "BLOCK_N1": 32, "BLOCK_M2": 32, "BLOCK_N2": 16,
               "num_stages": 1, "num_warps": 4}  # fmt: skip
ROOMY_BYTES = 160 * 1024

log = logging.getLogger(__name__)
_state = {"failed": False}
_masks: Any = WeakTensorKeyDictionary()


def failed() -> bool:
    """Whether a compilation has failed in this process."""
    return _state["failed"]


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bounds: Bounds, kind: AttentionKind
) -> torch.Tensor | None:
    """``[T, heads, head_dim]``, or None where FlexAttention cannot be compiled (logged once)."""
    sizes = (q.shape[1], k.shape[1], q.shape[2])
    form = AttentionKind(kind.scale, None, kind.softcap)
    if not _works(q.device, q.dtype, sizes, form, torch.is_grad_enabled()):
        return None
    return run(q, k, v, bounds, kind)


@lru_cache(maxsize=32)
def _works(
    device: torch.device, dtype: torch.dtype, sizes: tuple[int, int, int], kind: AttentionKind, backward: bool
) -> bool:
    """Tries the compilation on zeros, with the backward, which torch would only compile in its first backward pass.

    The number of blocks must differ from ``sizes``: torch treats equal sizes as the same symbol.
    """
    if failed():
        return False
    heads, groups, width = sizes
    tokens = BLOCK * next(blocks for blocks in FIRST_BLOCKS if blocks not in sizes)
    bounds = Bounds(torch.tensor([0, BLOCK, tokens], dtype=torch.int32, device=device), tokens, 2, tokens)
    parts = (torch.zeros(tokens, n, width, dtype=dtype, device=device) for n in (heads, groups, groups))
    q, k, v = (part.requires_grad_(backward) for part in parts)
    try:
        result = run(q, k, v, bounds, kind)
        if backward:
            result.sum().backward()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - a compiler may raise anything
        _state["failed"] = True
        log.warning("attention: FlexAttention does not compile here, rows go one by one (%s)", type(error).__name__)
        return False
    return True


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bounds: Bounds, kind: AttentionKind) -> torch.Tensor:
    """The compiled kernel, on rows padded to whole blocks."""
    missing = padded(bounds.tokens) - bounds.tokens
    # Always a copy: a layout that depends on the length would recompile.
    q, k, v = (F.pad(part, (0, 0, 0, 0, 0, missing)).contiguous().transpose(0, 1)[None] for part in (q, k, v))
    options = None
    if q.is_cuda and q.shape[-1] > LARGE_HEAD:  # torch's own tiles for it may exceed the card's shared memory
        card: Any = torch.cuda.get_device_properties(q.get_device())
        options = SMALL_TILES if int(card.shared_memory_per_block_optin) < ROOMY_BYTES else None
    known, key = _masks.setdefault(bounds.cu, {}), (kind.window, bounds.tokens, bounds.cu._version)
    if key not in known:  # made once for all layers
        known[key] = block_mask(first_seen(bounds, kind.window, padded(bounds.tokens)))
    result = _compiled()(
        q, k, v, score_mod=_cap(float(kind.softcap or 0.0), q.device), block_mask=known[key],
        scale=kind.scale, enable_gqa=q.shape[1] != k.shape[1], kernel_options=options,
    )  # fmt: skip
    output: torch.Tensor = result[0, :, : bounds.tokens].transpose(0, 1).contiguous()
    return output


def padded(tokens: int) -> int:
    """Tokens of whole blocks, at least two: torch specialises sizes of 1."""
    return max(2, -(-tokens // BLOCK)) * BLOCK


def first_seen(bounds: Bounds, window: int | None, tokens: int) -> torch.Tensor:
    """int32 ``[tokens]``: the first key that each query sees; tokens after the last row are one more row."""
    position = torch.arange(tokens, dtype=torch.int32, device=bounds.cu.device)
    row = torch.searchsorted(bounds.cu, position, right=True) - 1
    first = bounds.cu[row]
    return first if window is None else torch.maximum(first, position - (window - 1))


def block_mask(first: torch.Tensor) -> Any:
    """FlexAttention's block mask for queries that see keys from ``first`` to themselves."""
    from torch.nn.attention.flex_attention import BlockMask

    blocks = first.numel() // BLOCK
    index = torch.arange(blocks, dtype=torch.int32, device=first.device)
    lowest = first[::BLOCK] // BLOCK  # first never falls along T, so a block's first query sees farthest back
    count = index - lowest + 1
    seen = (lowest[:, None] + index[None, :]).clamp(max=blocks - 1)

    def sees(_batch: Any, _head: Any, query: Any, key: Any) -> Any:
        return (key <= query) & (key >= first[query])

    return BlockMask.from_kv_blocks(count[None, None], seen[None, None], BLOCK_SIZE=BLOCK, mask_mod=sees)


@lru_cache(maxsize=8)
def _cap(cap: float, device: torch.device) -> Any:
    # A tensor: a dynamic compilation would compute with a Python number in float64.
    limit = torch.tensor(cap, dtype=torch.float32, device=device)

    def capped(score: Any, _batch: Any, _head: Any, _query: Any, _key: Any) -> Any:
        return limit * torch.tanh(score / limit)

    return capped


@lru_cache(maxsize=1)
def _compiled() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True, fullgraph=True)
