"""One window cut into forward passes, and a pass made into tensors.

Packed: rows one after another on one token axis, kept apart by their bounds; no padding is computed::

    tokens  a a a a b b c c c      positions 0 1 2 3 0 1 0 1 2      bounds 0 4 6 9

Padded: one row a line, filled up to the longest. Either way the cut is a pure function of the rows' lengths and one
number, tokens a pass, so that the same window is always cut alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from core.train.rows import TextRows

__all__ = ["IGNORED", "cut_padded", "pack", "pad"]

IGNORED = -100


def cut_padded(lengths: Sequence[int], tokens_per_pass: int) -> list[list[int]]:
    """Groups row numbers so that rows × longest stays within ``tokens_per_pass``; a longer row is a pass alone."""
    passes: list[list[int]] = []
    longest = 0
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        if passes and (len(passes[-1]) + 1) * longest <= tokens_per_pass:
            passes[-1].append(row)
        else:
            passes.append([row])
            longest = lengths[row]
    return passes


def pack(rows: TextRows, chosen: Sequence[int], device: torch.device) -> dict[str, torch.Tensor | int]:
    """Rows end to end: ``input_ids``, ``labels``, ``position_ids`` ``[1, T]`` and the bounds, int32 ``[rows + 1]``.

    The first label of every row is ignored: its target would be predicted from another row's last token.
    """
    ids = [rows.ids[row] for row in chosen]
    labels = [rows.labels[row] for row in chosen]
    for label in labels:
        label[0] = IGNORED
    lengths = torch.tensor([len(row) for row in ids], dtype=torch.int32)
    bounds = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0)).to(device)
    longest = int(lengths.max())
    return {
        "input_ids": torch.cat(ids)[None].to(device),
        "labels": torch.cat(labels)[None].to(device),
        "position_ids": torch.cat([torch.arange(len(row)) for row in ids])[None].to(device),
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds,
        "max_length_q": longest,
        "max_length_k": longest,
    }


def pad(rows: TextRows, chosen: Sequence[int], pad_id: int, device: torch.device) -> dict[str, torch.Tensor | int]:
    """One row a line, ``[rows, longest]``, filled on the right; what fills is masked and never a target."""

    def fill(parts: list[torch.Tensor], value: int) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=value).to(device)

    ids = [rows.ids[row] for row in chosen]
    return {
        "input_ids": fill(ids, pad_id),
        "labels": fill([rows.labels[row] for row in chosen], IGNORED),
        "attention_mask": fill([torch.ones_like(row) for row in ids], 0),
    }
