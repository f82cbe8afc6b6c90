"""The rows of each step, their cut into micro-batches, and a micro-batch's tensors.

transformers' Trainer gets a whole optimizer batch at once: the row numbers of one step, a function of (seed, step), so
no iterator is replayed on a resume. The cut is a function of lengths and tokens per micro-batch alone.

Packed: rows end to end, kept apart by their bounds. Padded: one row per line, filled up to the longest::

    tokens  a a a a b b c c c      positions 0 1 2 3 0 1 0 1 2      bounds 0 4 6 9
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy
import torch

from core.data.deal.packing import cut, epoch_batches
from core.train.step.rows import IGNORED, Ids, Rows, Tokens


class Sampler(Protocol):
    """The optimizer batches of a run, by the number of steps done before each."""

    @property
    def rows(self) -> int:
        """Number of rows to train on."""

    def __len__(self) -> int: ...

    def after(self, step: int) -> list[int] | None:
        """The rows of the step that follows ``step`` done ones; None where that was the last."""


@dataclass(frozen=True)
class BatchSampler:
    """The batches of a run over ``rows`` rows, shuffled anew in each epoch."""

    rows: int
    rows_per_step: int
    seed: int
    total_steps: int

    def __len__(self) -> int:
        """Batches per epoch; the last may be partial."""
        return -(-self.rows // self.rows_per_step)

    def after(self, step: int) -> list[int] | None:
        """The rows of the step that follows ``step`` done ones; None where that was the last."""
        if step >= self.total_steps:
            return None
        epoch, number = divmod(step, len(self))
        return list(dealt(self.rows, self.rows_per_step, epoch, self.seed)[number])


@dataclass(frozen=True)
class BatchLoader:
    """In place of the Trainer's DataLoader: the rest of the epoch from ``position()`` steps on."""

    sampler: Sampler
    position: Callable[[], int]

    @property
    def dataset(self) -> range:
        """For the Trainer's count of examples."""
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


def split_batch(rows: Rows, batch: Sequence[int], tokens_per_pass: int, packed: bool) -> list[list[int]]:
    """The micro-batches of an optimizer batch, as row numbers."""
    groups = split_lengths([rows.length(row, packed) for row in batch], tokens_per_pass, packed)
    return [[batch[place] for place in group] for group in groups]


def split_lengths(lengths: list[int], tokens_per_pass: int, packed: bool) -> list[list[int]]:
    """Groups of places in ``lengths``, each within ``tokens_per_pass`` unless it is one."""
    return cut(lengths, tokens_per_pass) if packed else cut_padded(lengths, tokens_per_pass)


def cut_padded(lengths: Sequence[int], tokens_per_pass: int) -> list[list[int]]:
    """Groups row numbers so that rows × longest stays within ``tokens_per_pass``; a longer row is alone."""
    groups: list[list[int]] = []
    longest = 0
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        if groups and (len(groups[-1]) + 1) * longest <= tokens_per_pass:
            groups[-1].append(row)
        else:
            groups.append([row])
            longest = lengths[row]
    return groups


def pack(sequences: Sequence[Tokens], device: torch.device) -> dict[str, torch.Tensor | int]:
    """Sequences end to end: ``input_ids``, ``labels``, ``position_ids`` ``[1, T]`` and the bounds, int32 ``[S + 1]``.

    The first label of every sequence is ignored: it would be predicted from another row's last token. All four lie in
    one buffer, for a card in page-locked memory, which is copied asynchronously.
    """
    lengths = [len(sequence) for sequence in sequences]
    tokens = sum(lengths)
    # Each part begins at a multiple of 512 bytes: kernels are compiled by alignment.
    apart = -(-tokens // 64) * 64
    buffer = torch.empty(3 * apart + len(sequences) // 2 + 1, dtype=torch.long, pin_memory=device.type == "cuda")
    ids, labels, positions = (buffer[part * apart : part * apart + tokens].numpy() for part in range(3))
    bounds = buffer[3 * apart :].view(torch.int32)[: len(sequences) + 1].numpy()
    bounds[0] = start = 0
    for number, (sequence, length) in enumerate(zip(sequences, lengths, strict=True), start=1):
        place = slice(start, start + length)
        ids[place], labels[place] = sequence.ids, sequence.labels
        positions[place] = numpy.arange(length)
        labels[start] = IGNORED
        bounds[number] = start = start + length
    there = buffer.to(device, non_blocking=True)
    ends = there[3 * apart :].view(torch.int32)[: len(sequences) + 1]
    return {
        "input_ids": there[:tokens][None],
        "labels": there[apart : apart + tokens][None],
        "position_ids": there[2 * apart : 2 * apart + tokens][None],
        "cu_seq_lens_q": ends,
        "cu_seq_lens_k": ends,
        "max_length_q": max(lengths),
        "max_length_k": max(lengths),
    }


def pad(sequences: Sequence[Tokens], pad_id: int, device: torch.device) -> dict[str, torch.Tensor | int]:
    """One sequence per line, ``[S, longest]``, padded on the right; padding is masked and never a target."""
    longest = max(map(len, sequences))

    def fill(parts: Iterable[Ids | int], value: int) -> torch.Tensor:
        filled = numpy.full((len(sequences), longest), value, dtype=numpy.int64)
        for line, sequence, part in zip(filled, sequences, parts, strict=True):
            line[: len(sequence)] = part
        return sent(filled, device)

    return {
        "input_ids": fill((sequence.ids for sequence in sequences), pad_id),
        "labels": fill((sequence.labels for sequence in sequences), IGNORED),
        "attention_mask": fill((1 for _ in sequences), 0),
    }


def sent(values: Any, device: torch.device) -> torch.Tensor:
    """Numbers of the host as a tensor on the device; the host does not wait."""
    there = torch.as_tensor(values)
    return (there.pin_memory() if device.type == "cuda" else there).to(device, non_blocking=True)
