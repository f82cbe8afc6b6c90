"""Processes of one machine that load one model at once, a card each: streamed layers lie in its memory once for all.

The first reads them from disk, quantises them, writes them to shared memory and tells the others what lies where, layer
by layer. The others take them from there; what stays on a card, each reads itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import nn

from core.contract.errors import RunError
from core.machine.children.shared_memory import SharedMemory
from core.model.layers.peft_bnb import held_tensors, hold_at, matrices_of, read_quantised
from core.model.loading.tensor_stream import DTYPES, WORDS
from core.model.streaming.host_pages import aligned

WAIT_SECONDS = 1800.0
"""For one more layer of a slow disk; a first process that died is noticed at once, elsewhere."""
BLOCK_SCALES = ("weight.absmax", "weight.nested_absmax")
"""Of what a checkpoint holds beside quantised values: these grow with them, and the rest is small."""


@dataclass(frozen=True)
class Together:
    """This process among them. ``memory``: what they share; None: each has a copy of its own."""

    count: int = 1
    first: bool = True
    memory: SharedMemory | None = None

    @property
    def reads(self) -> bool:
        """Whether it reads streamed layers from disk itself."""
        return self.first or self.memory is None

    @property
    def copies(self) -> int:
        """How many of them the machine's memory holds."""
        return self.count if self.memory is None else 1

    def tell(self, number: int, **line: Any) -> None:
        """Tells the others, where there are some."""
        if self.memory is not None:
            self.memory.tell(number, **line)

    def told(self, number: int) -> dict[str, Any]:
        """What the first says of layer ``number`` once it is there.

        Raises:
            RunError: it does not come.
        """
        assert self.memory is not None
        try:
            return self.memory.told(number, WAIT_SECONDS)
        except TimeoutError:
            raise RunError("ranks.no_weights", minutes=WAIT_SECONDS / 60) from None


ALONE = Together()


@dataclass(frozen=True)
class Kept:
    """A matrix in host memory: of each of its tensors the first byte in its layer's span, dtype and shape."""

    matrix: Any
    places: tuple[tuple[int, torch.dtype, torch.Size], ...]

    def show(self, slot: torch.Tensor) -> None:
        """Lets the matrix lie in this slot from now on."""
        hold_at(
            self.matrix,
            [
                slot[start : start + prod(shape) * dtype.itemsize].view(dtype).view(shape)
                for start, dtype, shape in self.places
            ],
        )


def laid(layer: nn.Module) -> tuple[list[Kept], int]:
    """Where the tensors of a layer's matrices lie in its span, and the span's bytes."""
    kept, size = [], 0
    for matrix in matrices_of(layer).values():
        places = []
        for tensor in held_tensors(matrix):
            places.append((size, tensor.dtype, tensor.shape))
            size += aligned(tensor.nbytes)
        kept.append(Kept(matrix, tuple(places)))
    return kept, size


def told_of(kept: Sequence[Kept], size: int) -> dict[str, Any]:
    """A layer's line for the others."""
    return {"size": size, "matrices": [_matrix_line(one) for one in kept]}


def _matrix_line(kept: Kept) -> dict[str, Any]:
    state = kept.matrix.state_dict()
    small = {name.removeprefix("weight."): state[name] for name in state if name.startswith("weight.")}
    beside = {
        name: (WORDS[tensor.dtype], tensor.tolist())
        for name, tensor in small.items()
        if f"weight.{name}" not in BLOCK_SCALES
    }
    return {"places": [(start, WORDS[dtype], shape) for start, dtype, shape in kept.places], "beside": beside}


def taken(layer: nn.Module, line: Mapping[str, Any], device: torch.device) -> tuple[list[Kept], int]:
    """``laid`` of a layer that another process read; its matrices become of its kind, without their tensors."""
    kept = []
    for matrix, said in zip(matrices_of(layer).values(), line["matrices"], strict=True):
        places = tuple((start, DTYPES[word], torch.Size(shape)) for start, word, shape in said["places"])
        if beside := {name: torch.tensor(held, dtype=DTYPES[word]) for name, (word, held) in said["beside"].items()}:
            values, *scales = (torch.empty(0, dtype=dtype) for _, dtype, _ in places)
            names = (name.removeprefix("weight.") for name in BLOCK_SCALES)
            read_quantised(matrix, values.to(device), beside | dict(zip(names, scales, strict=False)))
        kept.append(Kept(matrix, places))
    return kept, int(line["size"])
