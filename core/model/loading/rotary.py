"""Rotary positions that each row's own length decides (dynamic NTK), of rows that lie end to end."""

from itertools import pairwise
from typing import Any

import torch
from torch import nn

from core.contract.config.positions import BY_ROPE_TYPE


class RotaryByRow(nn.Module):
    """transformers' rotary embedding, asked for each long row as if it were alone.

    transformers takes the longest position that it saw last for all rows: these would then depend on what is packed
    beside them, and on the rows before.

    Args:
        rotary: its module, whose ``inv_freq`` are those of rows that are not stretched.
    """

    def __init__(self, rotary: Any) -> None:
        super().__init__()
        self.rotary, self._made = rotary, int(rotary.original_max_seq_len)

    @torch.no_grad()
    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin ``[B, T, D]`` of positions ``[B, T]``, which begin anew with each row."""
        cos, sin = self._alone(x, position_ids.clamp(max=self._made - 1))
        for row, positions in enumerate(position_ids):
            far = int(positions.max()) >= self._made  # else nothing of it is stretched
            bounds = _bounds(positions) if far else []
            for start, end in pairwise(bounds):
                if int(positions[end - 1]) >= self._made:
                    own = self._alone(x, positions[None, start:end])
                    cos[row, start:end], sin[row, start:end] = own[0][0], own[1][0]
        return cos, sin

    def _alone(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of one row, by a module that has seen none."""
        self.rotary.inv_freq = self.rotary.original_inv_freq.to(x.device)
        self.rotary.max_seq_len_cached = self._made
        cos, sin = self.rotary(x, positions)
        return cos, sin


def _bounds(positions: torch.Tensor) -> list[int]:
    """Where rows begin among ``[T]``, and the end."""
    begins = (positions[1:] <= positions[:-1]).nonzero().flatten() + 1
    return [0, *begins.tolist(), len(positions)]


def place_by_row(model: Any) -> None:
    """Swaps the model's rotary embedding where a row's length decides its positions."""
    for parent in list(model.modules()):
        rotary = getattr(parent, "rotary_emb", None)
        row = BY_ROPE_TYPE.get(str(getattr(rotary, "rope_type", "")))
        if row is not None and row.by_length:
            parent.rotary_emb = RotaryByRow(rotary)
