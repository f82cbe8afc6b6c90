"""The finished weights of a run as a stream: base and change are read from safetensors by ranges of rows.

Nothing is loaded as a model, and no large tensor is ever whole in memory; of an adapter the two small matrices of one
projection are. What merges, converts or quantises reads from here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import torch

from core.contract.errors import ModelError
from core.contract.forms import FinishedFrom
from core.contract.tasks import Learns
from core.export.changes import Change, Shapes, placed, read_changes
from core.export.forms.classifier import own_name
from core.export.sources import MOST_ELEMENTS, Held, Requantised, Rows, held_in, ranges
from core.models.checks.folder import read_config_json
from core.models.checks.weights import weight_files
from core.models.encoders import ENCODERS

_SIXTEEN = (torch.bfloat16, torch.float16)
_IN_A_LAYER = re.compile(r"(.*\.)?\d+\..*\.weight")
"""Matrices of layers, the only ones that are held in 4 bits (``core.contract.weight_forms``)."""


@dataclass(frozen=True)
class Entry:
    """A finished tensor; ``dtype``: that in which it is written, of floating-point numbers ``written_dtype``."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def elements(self) -> int:
        """How many values it has."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Its size as it is written."""
        return self.elements * self.dtype.itemsize


class FinishedWeights:
    """The finished tensors by name, in the order of the files that they come from."""

    def __init__(
        self, sources: Mapping[str, Callable[[], Rows]], made_of: Mapping[str, Held | Change], written: torch.dtype
    ) -> None:
        self._sources = sources
        self.entries = {
            name: Entry(name, one.shape, written if one.dtype.is_floating_point else one.dtype)
            for name, one in made_of.items()
        }
        self._opened: tuple[str, Rows] | None = None

    def rows(self, name: str, start: int = 0, stop: int | None = None) -> torch.Tensor:
        """Rows ``[stop - start, ...]`` in float32 (what is no floating-point number as it is held); all of a tensor
        without dimensions.

        Raises:
            ModelError: a file ends before the tensor does.
        """
        source, shape = self._open(name), self.entries[name].shape
        stop = (shape[0] if shape else 1) if stop is None else stop
        width = prod(shape[1:])
        return source.flat(start * width, stop * width).view((stop - start, *shape[1:]) if shape else ())

    def blocks(self, name: str, most_elements: int = MOST_ELEMENTS) -> Iterator[torch.Tensor]:
        """All rows, in ranges of at most so many values (at least a row)."""
        for start, stop in ranges(self.entries[name].shape, most_elements):
            yield self.rows(name, start, stop)

    def _open(self, name: str) -> Rows:
        """The tensor's source; what one needs in memory (an adapter's matrices, scales) is kept until the next."""
        opened = self._opened
        if opened is None or opened[0] != name:
            self._opened = None
            opened = self._opened = name, self._sources[name]()
        return opened[1]


def finished(
    base: Path,
    trained: Path,
    learns: Learns,
    weights: FinishedFrom = "original",
    dtype: torch.dtype | None = None,
    classifier: Shapes | None = None,
) -> FinishedWeights:
    """The finished weights of a run.

    Args:
        base: model folder with safetensors.
        trained: what its checkpoint holds: an adapter in peft's format, or a whole model.
        weights: what an adapter is added to, of a base that was held in NF4.
        dtype: that such a run computed in; None: the base's.
        classifier: the tensors of what is made, where that is a classifier.

    Raises:
        ModelError: the adapter changes what cannot be merged, a tensor that the base does not have, or another shape
            of it; a whole model has another shape of one; a tensor's numbers cannot be read.
    """
    held, written = tensors_of(base), written_dtype(base)
    if not learns.adapter:
        there, held = classifier or _shapes(held), tensors_of(trained)
        for name, one in held.items():
            if there.get(name, one.shape) != one.shape:
                raise ModelError("export.mismatch", name=name, shape=one.shape, found=there[name])
        return FinishedWeights({name: partial(_source, one, None) for name, one in held.items()}, held, written)
    as_trained = weights == "trained_on"
    changes = read_changes(trained, corrected=as_trained)
    if classifier:
        named = {own_name(name, classifier): one for name, one in held.items()}
        # A head that the base came with goes.
        held = {name: one for name, one in named.items() if name and one.shape == classifier[name]}
    shapes = _shapes(held) | dict(classifier or {})
    found = placed(changes, shapes)
    if lacking := next((name for name in shapes if name not in held and name not in found), ""):
        raise ModelError("export.mismatch", name=lacking, shape=shapes[lacking], found="no such tensor")
    layers = {name for name, one in held.items() if len(one.shape) == 2 and _IN_A_LAYER.fullmatch(name)}
    as_held = dict.fromkeys(layers if as_trained else (), dtype or written)
    sources = {name: partial(_source, held.get(name), found.get(name), as_held.get(name)) for name in shapes}
    return FinishedWeights(sources, {name: held.get(name) or found[name] for name in shapes}, written)


def _source(base: Held | None, change: Change | None, requantised: torch.dtype | None = None) -> Rows:
    """The finished tensor; of a base or of a change at least one is there. ``requantised``: the base as a model that
    was loaded in NF4 with this dtype has it. Made at each call: what a source finds out goes with it."""
    rows: Rows | None = Requantised(base, requantised) if base and requantised else base
    if change is not None:
        return change.over(rows)
    assert rows is not None
    return rows


def tensors_of(folder: Path) -> dict[str, Held]:
    """Every tensor of a model's files by name; other safetensors may lie beside them."""
    return {name: held for file in weight_files(folder) for name, held in held_in(file).items()}


def written_dtype(base: Path) -> torch.dtype:
    """The 16-bit dtype that the base has, bfloat16 where it has none; an encoder's own, since rounding a small model
    gains nothing."""
    held = [one.dtype for one in tensors_of(base).values() if one.dtype.is_floating_point]
    small = str(read_config_json(base).get("model_type")) in ENCODERS
    return next((dtype for dtype in held if small or dtype in _SIXTEEN), torch.bfloat16)


def merged_bytes(base: Path) -> int:
    """How large the weights will be that are written of this base; a head of scores adds nothing to speak of."""
    return sum(prod(one.shape) for one in tensors_of(base).values()) * written_dtype(base).itemsize


def _shapes(held: Mapping[str, Held]) -> dict[str, tuple[int, ...]]:
    return {name: one.shape for name, one in held.items()}
