"""One optimizer batch cut into micro-batches, and a micro-batch made into tensors.

Packed: rows one after another on one token axis, kept apart by their bounds; no padding is computed::

    tokens  a a a a b b c c c      positions 0 1 2 3 0 1 0 1 2      bounds 0 4 6 9

Padded: one row a line, filled up to the longest. Either way the cut is a pure function of the rows' lengths and one
number, tokens a micro-batch, so that the same batch is always cut alike.
"""

from collections.abc import Sequence

import numpy
import torch

from core.train.step.rows import TextRows

IGNORED = -100


def cut_padded(lengths: Sequence[int], tokens_per_pass: int) -> list[list[int]]:
    """Groups row numbers so that rows × longest stays within ``tokens_per_pass``; a longer row is one alone."""
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

    The first label of every row is ignored: its target would be predicted from another row's last token. All four lie
    in one buffer, in page-locked memory for a card, which copies it by itself while this process goes on.
    """
    lengths = [rows.length(row) for row in chosen]
    tokens, apart = sum(lengths), _apart(sum(lengths))
    buffer = torch.empty(3 * apart + len(chosen) // 2 + 1, dtype=torch.long, pin_memory=device.type == "cuda")
    ids, labels, positions = (buffer[part * apart : part * apart + tokens].numpy() for part in range(3))
    bounds = buffer[3 * apart :].view(torch.int32)[: len(chosen) + 1].numpy()
    bounds[0] = start = 0
    for number, (row, length) in enumerate(zip(chosen, lengths, strict=True), start=1):
        place = slice(start, start + length)
        rows.ids.copy_to(row, ids[place])
        rows.labels.copy_to(row, labels[place])
        positions[place] = numpy.arange(length)
        labels[start] = IGNORED
        bounds[number] = start = start + length
    there = buffer.to(device, non_blocking=True)
    ends = there[3 * apart :].view(torch.int32)[: len(chosen) + 1]
    return {
        "input_ids": there[:tokens][None],
        "labels": there[apart : apart + tokens][None],
        "position_ids": there[2 * apart : 2 * apart + tokens][None],
        "cu_seq_lens_q": ends,
        "cu_seq_lens_k": ends,
        "max_length_q": max(lengths),
        "max_length_k": max(lengths),
    }


def _apart(tokens: int) -> int:
    """Each part begins at a multiple of 512 bytes, as a tensor of its own would: kernels are compiled by alignment."""
    return -(-tokens // 64) * 64


def pad(rows: TextRows, chosen: Sequence[int], pad_id: int, device: torch.device) -> dict[str, torch.Tensor | int]:
    """One row a line, ``[rows, longest]``, filled on the right; what fills is masked and never a target."""

    def fill(parts: list[torch.Tensor], value: int) -> torch.Tensor:
        filled = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=value)
        return (filled.pin_memory() if device.type == "cuda" else filled).to(device, non_blocking=True)

    ids = [rows.ids[row] for row in chosen]
    return {
        "input_ids": fill(ids, pad_id),
        "labels": fill([rows.labels[row] for row in chosen], IGNORED),
        "attention_mask": fill([torch.ones_like(row) for row in ids], 0),
    }
