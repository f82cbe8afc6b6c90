"""Packed attention: rows end to end on the token axis, none seeing another.

``luthier_packed`` is registered with transformers as an attention function **and** as a mask function (without the
second a padded batch would silently lose its mask)::

    tokens   a a a a b b c c c        cu_seq_lens = [0, 4, 6, 9]

With row bounds ``cu_seq_lens_q``, token i of a row sees tokens j <= i of its row (and j > i - W in a layer with a
sliding window W), by ``backends.attend``; of an encoder's row, whose modules say ``is_causal = False``, all tokens
(|i - j| < W). Without bounds it is transformers' ``sdpa`` with the mask.
"""

from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from core.model.attention.backends import attend, capped, situation
from core.model.attention.choice import AttentionKind, Bounds, backend_line
from core.model.loading.assemble import classes_of

NAME = "luthier_packed"
_OF_ONE_ROW = frozenset({"full_attention", "sliding_attention"})
"""Types of layers in which tokens meet by attention alone, over the row or a window of it."""
_LOSE_BOUNDS = frozenset({"nemotron"})
"""Types of models whose layers pass no row bounds on to their attention."""


def register() -> None:
    """Registers ``luthier_packed`` with transformers in this process; idempotent."""
    AttentionInterface.register(NAME, packed_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def choose_attention(config: Any) -> str:
    """``luthier_packed`` where the model's class takes its attention from transformers' registry, else ``eager``.

    With ``eager`` transformers keeps packed rows apart by a mask.
    """
    classes = classes_of(config)
    return NAME if classes and getattr(classes[0], "_supports_attention_backend", False) else "eager"


def keeps_apart(config: Any) -> bool:
    """Whether a loaded decoder keeps packed rows apart. Convolutions, recurrences and linear attention do not: their
    tokens see those of the row before."""
    others = set(getattr(config, "layer_types", None) or ()) - _OF_ONE_ROW
    bounds = config._attn_implementation == NAME and config.model_type not in _LOSE_BOUNDS
    return bounds and not others


def attention_line(device: torch.device, dtype: torch.dtype, config: Any, packed: bool = True) -> str:
    """What will run, for people. ``packed``: rows are laid end to end, not padded."""
    if choose_attention(config) != NAME:
        return "attention: the model's own, rows kept apart by a mask"
    if not packed:
        return "attention: padded, torch's own under a mask"
    softcap = getattr(config, "attn_logit_softcapping", None)
    kind = AttentionKind(1.0, None, float(softcap) if softcap else None)
    heads, hidden = getattr(config, "num_attention_heads", 1), getattr(config, "hidden_size", 0)
    head_dim = int(getattr(config, "head_dim", None) or hidden // max(1, heads))
    return "attention: " + backend_line(situation(device, dtype, head_dim, kind))


def bounds_mask(device: torch.device) -> torch.Tensor:
    """An ``attention_mask`` that means: row bounds keep the rows apart.

    Four dimensions and no element: transformers passes a four-dimensional mask on unchanged. Without one it would
    search the positions for packed rows (a synchronisation) and build a T×T mask.
    """
    return torch.empty(1, 1, 0, 0, dtype=torch.bool, device=device)


def says_bounds(mask: torch.Tensor | None) -> bool:
    """Whether the mask is None or ``bounds_mask``."""
    return mask is None or (mask.dim() == 4 and mask.numel() == 0)


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attention in transformers' convention.

    Args:
        module: the calling attention module; ``num_key_value_groups`` and ``is_causal`` are read from it.
        query: ``[batch, heads, T, head_dim]``; ``key`` and ``value`` may have fewer heads.
        attention_mask: read only where no row bounds are given.
        dropout: on attention weights.
        scaling: of the logits; None means 1/sqrt(head_dim).
        options: ``cu_seq_lens_q`` int32 ``[rows + 1]``, ``max_length_q``, ``sliding_window``, ``softcap``.

    Returns:
        ``[batch, T, heads, head_dim]`` and None (no weights are kept).
    """
    cu = options.get("cu_seq_lens_q")
    softcap = options.get("softcap")
    window = options.get("sliding_window")
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    attention_mask = None if says_bounds(attention_mask) else attention_mask
    if cu is None or query.shape[0] != 1 or query.shape[2] != key.shape[2]:
        if softcap is None:
            return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **options)
        return capped(query, key, value, attention_mask, scale=scale, cap=float(softcap), drop=dropout), None
    bounds = Bounds.of(options, query.shape[2], device=query.device)
    kind = AttentionKind(
        scale, int(window) if window else None, float(softcap) if softcap is not None else None,
        causal=getattr(module, "is_causal", True), dropout=dropout,
    )  # fmt: skip
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    return attend(q, k, v, bounds, kind)[None], None
