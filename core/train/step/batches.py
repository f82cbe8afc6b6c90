"""The rows of each step, their cut into micro-batches, and a micro-batch's tensors.

transformers' Trainer gets a whole optimizer batch at once: the row numbers of one step, a function of (seed, step), so
no iterator is replayed on a resume. The cut is a function of lengths and tokens per micro-batch alone.

Packed: rows end to end, kept apart by their bounds. Padded: one row per line, filled up to the longest::

    tokens  a a a a b b c c c      positions 0 1 2 3 0 1 0 1 2      bounds 0 4 6 9

Packed, the prompt of a pair is read once: its second answer follows the first one, and attention gives it the prompt's
keys and values again. All else in a model is of one token, and computed once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, Protocol

import numpy
import torch

from core.data.deal.packing import cut, epoch_batches
from core.train.step.ragged import Ids
from core.train.step.rows import IGNORED, Rows, Tokens

_DTYPES = {4: torch.int32, 8: torch.int64}


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

    The first label of every sequence is ignored: it would be predicted from another row's last token. Tokens that a
    sequence shares with the one before it are not repeated; then keys have bounds of their own (``_key_places``).
    """
    own = [sequence.own for sequence in sequences]
    bounds = numpy.array([0, *accumulate(own)])
    ids, labels, positions = (numpy.empty(bounds[-1], dtype=numpy.int64) for _ in range(3))
    for sequence, start, end in zip(sequences, bounds[:-1], bounds[1:], strict=True):
        ids[start:end], labels[start:end] = sequence.ids[sequence.shared :], sequence.labels[sequence.shared :]
        positions[start:end] = numpy.arange(sequence.shared, len(sequence))
        labels[start] = IGNORED
    lines = {"input_ids": ids[None], "labels": labels[None], "position_ids": positions[None]}
    places = {"cu_seq_lens_q": bounds.astype(numpy.int32)}
    if any(sequence.shared for sequence in sequences):
        places |= _key_places(sequences, bounds)
    there: dict[str, torch.Tensor | int] = _sent_together(lines | places, device)
    there.setdefault("cu_seq_lens_k", there["cu_seq_lens_q"])
    return there | {"max_length_q": max(own), "max_length_k": max(map(len, sequences))}


def _key_places(sequences: Sequence[Tokens], bounds: Ids) -> dict[str, Ids]:
    """Where the keys of sequences are that begin with tokens of the ones before them, all int32.

    ``cu_seq_lens_k`` are the bounds of the K keys, a sequence's shared tokens counted; ``key_tokens [K]`` is the token
    that each key is of, ``token_keys [2, T]`` the keys of each token: its own, and its second or the same again::

        tokens  p p p c c │ p r r      keys  p p p c c │ p p p r r      key_tokens  0 1 2 3 4 │ 0 1 5 6 7
    """
    ends = numpy.array([0, *accumulate(map(len, sequences))])
    key_tokens, token_keys = numpy.empty(ends[-1], numpy.int32), numpy.empty((2, bounds[-1]), numpy.int32)
    before = 0
    for sequence, token, key in zip(sequences, bounds[:-1], ends[:-1], strict=True):
        shared, end = sequence.shared, key + len(sequence)
        key_tokens[key + shared : end] = numpy.arange(token, token + sequence.own)
        token_keys[:, token : token + sequence.own] = numpy.arange(key + shared, end)
        key_tokens[key : key + shared] = again = key_tokens[before : before + shared]
        token_keys[1, again] = numpy.arange(key, key + shared)
        before = key
    return {"cu_seq_lens_k": ends.astype(numpy.int32), "key_tokens": key_tokens, "token_keys": token_keys}


def _sent_together(arrays: dict[str, Ids], device: torch.device) -> dict[str, Any]:
    """Arrays as tensors on the device, in one buffer, for a card in page-locked memory, which is copied asynchronously.

    Each begins at a multiple of 512 bytes: kernels are compiled by alignment.
    """
    starts = [0, *accumulate(-(-array.nbytes // 512) * 512 for array in arrays.values())]
    buffer = torch.empty(starts[-1], dtype=torch.uint8, pin_memory=device.type == "cuda")
    for start, array in zip(starts, arrays.values(), strict=False):
        buffer[start : start + array.nbytes].numpy()[:] = array.reshape(-1).view(numpy.uint8)
    there = buffer.to(device, non_blocking=True)
    return {
        name: there[start : start + array.nbytes].view(_DTYPES[array.itemsize]).view(array.shape)
        for start, (name, array) in zip(starts, arrays.items(), strict=False)
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
