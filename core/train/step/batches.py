"""Which rows make which step, how an optimizer batch is cut into micro-batches, and a micro-batch made into tensors.

To transformers' Trainer a "batch" is one whole optimizer batch: the row numbers of one step, a pure function of (seed,
epoch, batch). No iterator is ever replayed on a resume: whoever asks for the batch of a step gets it.

Packed: rows one after another on one token axis, kept apart by their bounds; no padding is computed::

    tokens  a a a a b b c c c      positions 0 1 2 3 0 1 0 1 2      bounds 0 4 6 9

Padded: one row a line, filled up to the longest. Either way the cut is a pure function of the rows' lengths and one
number, tokens a micro-batch, so that the same batch is always cut alike.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy
import torch

from core.data.deal.packing import cut, epoch_batches
from core.train.step.rows import IGNORED, Rows, TextRows


class Sampler(Protocol):
    """The optimizer batches of a run, by the number of steps done before each."""

    @property
    def rows(self) -> int:
        """How many there are to train on."""

    def __len__(self) -> int: ...

    def after(self, step: int) -> list[int] | None:
        """The rows of the step that follows ``step`` done ones; None where that was the last."""


@dataclass(frozen=True)
class BatchSampler:
    """The batches of a run over ``rows`` rows, dealt anew in each epoch."""

    rows: int
    rows_per_step: int
    seed: int
    total_steps: int

    def __len__(self) -> int:
        """Batches of one epoch; the last may be partial."""
        return -(-self.rows // self.rows_per_step)

    def after(self, step: int) -> list[int] | None:
        """The rows of the step that follows ``step`` done ones; None where that was the last."""
        if step >= self.total_steps:
            return None
        epoch, number = divmod(step, len(self))
        return list(dealt(self.rows, self.rows_per_step, epoch, self.seed)[number])


@dataclass(frozen=True)
class BatchLoader:
    """Stands where the Trainer expects a DataLoader: the rest of the epoch from ``position()`` steps on."""

    sampler: Sampler
    position: Callable[[], int]

    @property
    def dataset(self) -> range:
        """The Trainer counts examples by it."""
        return range(self.sampler.rows)

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[dict[str, list[int]]]:
        first = self.position()
        for step in range(first, (first // len(self) + 1) * len(self)):
            if (batch := self.sampler.after(step)) is None:
                return
            yield {"rows": batch}


dealt = lru_cache(maxsize=2)(epoch_batches)
"""An epoch is dealt once, not at each of its steps."""


def split_batch(rows: Rows, batch: Sequence[int], tokens_per_pass: int, packed: bool) -> list[list[int]]:
    """The micro-batches of an optimizer batch, as row numbers."""
    lengths = [rows.length(row) for row in batch]
    groups = cut(lengths, tokens_per_pass) if packed else cut_padded(lengths, tokens_per_pass)
    return [[batch[place] for place in group] for group in groups]


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
    tokens = sum(lengths)
    # Each part begins at a multiple of 512 bytes, as a tensor of its own would: kernels are compiled by alignment.
    apart = -(-tokens // 64) * 64
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
