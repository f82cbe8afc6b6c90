"""Tensors that are never whole in memory: each gives a range of its rows, read or computed when it is asked for.

LoRA (Hu et al. 2021, arXiv:2106.09685), for a projection W ``[out, in]`` with A ``[R, in]`` and B ``[out, R]``::

    W' = W + s · B A            s = alpha / R, or alpha / sqrt(R) with rank-stabilised scaling (arXiv:2312.03732)

DoRA (Liu et al. 2024, arXiv:2402.09353), with the trained magnitudes m ``[out]``::

    W' = m · (W + s · B A) / ‖W + s · B A‖   row by row

Rows of W' need the same rows of W and B alone, and all of A, so a range of rows is exact. Sums are float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Protocol

import torch
from bitsandbytes.functional import dequantize_blockwise, get_4bit_type, quantize_blockwise

from core.contract.errors import ModelError
from core.contract.weight_forms import NF4_BLOCK, NF4_NESTED_BLOCK
from core.model.loading.tensor_stream import DTYPES
from core.models.checks.weights import read_header

MOST_ELEMENTS = 4 << 20
"""Of a block: 16 MB in float32, which the allocator keeps and does not give back to the system after each."""
_SMALLEST = 1e-38


class Rows(Protocol):
    """Part of a tensor; ``flat`` counts its values from its beginning, in the order of its rows."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole tensor."""
        ...

    def flat(self, begin: int, end: int) -> torch.Tensor:
        """Values ``[end - begin]``: in float32, or as they are held where they are no floating-point numbers."""
        ...


@dataclass(frozen=True)
class Held:
    """A tensor in a safetensors file, which is opened for each read."""

    file: Path
    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    def flat(self, begin: int, end: int) -> torch.Tensor:
        """See ``Rows``.

        Raises:
            ModelError: the file ends before the tensor does.
        """
        found = torch.empty(end - begin, dtype=self.dtype)
        view, size = found.view(torch.uint8).numpy().data, self.dtype.itemsize
        with self.file.open("rb", buffering=0) as file:
            file.seek(self.offset + begin * size)
            while view and (count := file.readinto(view)):
                view = view[count:]
        if view:
            raise ModelError("model.truncated/end")
        return found.float() if self.dtype.is_floating_point else found

    def whole(self) -> torch.Tensor:
        """All of it."""
        return self.flat(0, prod(self.shape)).view(self.shape)


def held_in(file: Path) -> dict[str, Held]:
    """The tensors of a safetensors file by name.

    Raises:
        ModelError: the file is damaged, or holds numbers that torch does not have.
    """
    header = read_header(file)
    with file.open("rb") as opened:
        data = 8 + int.from_bytes(opened.read(8), "little")
    if unknown := next((name for name, entry in header.items() if entry["dtype"] not in DTYPES), ""):
        raise ModelError("export.dtype", name=unknown[:80], dtype=header[unknown]["dtype"])
    return {
        name: Held(file, data + entry["data_offsets"][0], tuple(entry["shape"]), DTYPES[entry["dtype"]])
        for name, entry in header.items()
    }


@dataclass(frozen=True)
class Requantised:
    """What a model that was loaded in NF4 holds of a matrix: its values quantised with double quantisation, and back.

    The matrix is flattened and cut into blocks, whose largest magnitudes are quantised in turn, over the whole matrix
    (Dettmers et al. 2023, arXiv:2305.14314; ``core.kernels.weights.nf4_reference``). So these are found first.
    """

    base: Rows
    dtype: torch.dtype
    """That the model was loaded with: values are rounded to it before and after."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The base's."""
        return self.base.shape

    @cached_property
    def _magnitudes(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Of each block: that which values are divided by, and that which they are multiplied with again."""
        count = prod(self.shape)
        largest = torch.empty(-(-count // NF4_BLOCK))  # at once: pieces between large temporaries would hold these
        for begin in range(0, count, MOST_ELEMENTS):
            blocks = self._blocks(begin, min(begin + MOST_ELEMENTS, count))
            torch.amax(blocks.abs_(), dim=1, out=largest[begin // NF4_BLOCK :][: len(blocks)])
        offset = largest.mean()
        numbers, state = quantize_blockwise(largest - offset, blocksize=NF4_NESTED_BLOCK)
        return largest, dequantize_blockwise(numbers, state) + offset

    def _blocks(self, begin: int, end: int) -> torch.Tensor:
        """The rounded values ``[blocks, NF4_BLOCK]``; the last block may be filled up with zeros."""
        values = self.base.flat(begin, end).to(self.dtype).float()
        return torch.nn.functional.pad(values, (0, -len(values) % NF4_BLOCK)).view(-1, NF4_BLOCK)

    def flat(self, begin: int, end: int) -> torch.Tensor:
        """See ``Rows``."""
        first, last = begin // NF4_BLOCK, -(-end // NF4_BLOCK)
        blocks = self._blocks(first * NF4_BLOCK, min(last * NF4_BLOCK, prod(self.shape)))
        largest, again = (part[first:last, None] for part in self._magnitudes)
        levels = get_4bit_type("nf4", device="cpu")
        scaled = (blocks * (1.0 / largest.clamp(min=_SMALLEST))).clamp_(-1, 1)
        nearest = levels[torch.bucketize(scaled, (levels[:-1] + levels[1:]) / 2, out_int32=True)]
        values = nearest.mul_(again).to(self.dtype).float().view(-1)
        return values[begin - first * NF4_BLOCK :][: end - begin]


@dataclass(frozen=True)
class LowRank:
    """LoRA's or DoRA's change of a base tensor; ``transposed``: the base holds it as ``[in, out]`` (GPT-2's Conv1D)."""

    base: Rows
    scale: float
    transposed: bool
    a: torch.Tensor
    b: torch.Tensor
    magnitude: torch.Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The base's."""
        return self.base.shape

    def flat(self, begin: int, end: int) -> torch.Tensor:
        """See ``Rows``; whole rows alone."""
        width = self.shape[1]
        start, stop = begin // width, end // width
        changed = self._sum(start, stop)
        if self.magnitude is not None:
            norms = self._column_norms if self.transposed else changed.norm(dim=1, keepdim=True)
            norms = norms.clamp_min(torch.finfo(torch.float32).tiny)  # a row of zeros stays one
            factors = self.magnitude.reshape(-1) if self.transposed else self.magnitude[start:stop].reshape(-1, 1)
            changed = changed.mul_(factors).div_(norms)
        return changed.view(-1)

    def _sum(self, start: int, stop: int) -> torch.Tensor:
        """These rows of ``W + s B A``, as the base holds them."""
        width = self.shape[1]
        held = self.base.flat(start * width, stop * width).view(stop - start, width)
        if self.transposed:
            return held.addmm_(self.a[:, start:stop].T, self.b.T, alpha=self.scale)
        return held.addmm_(self.b[start:stop], self.a, alpha=self.scale)

    @cached_property
    def _column_norms(self) -> torch.Tensor:
        squares = torch.zeros(self.shape[1])
        for start, stop in ranges(self.shape, MOST_ELEMENTS):
            squares += self._sum(start, stop).square().sum(0)
        return squares.sqrt()


def ranges(shape: tuple[int, ...], most_elements: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows of at most so many values, at least a row; a number without dimensions is one row."""
    count = shape[0] if shape else 1
    step = max(1, most_elements // max(1, prod(shape[1:])))
    for start in range(0, count, step):
        yield start, min(start + step, count)
