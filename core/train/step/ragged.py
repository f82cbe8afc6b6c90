"""What rows are made of: integer sequences of any length in one buffer, at 4 bytes a number, and a number a row."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from typing import Any, Protocol

import numpy
import torch

Ids = numpy.ndarray[Any, Any]


class Ragged:
    """Many integer sequences in one buffer; ``self[i]`` is an int64 tensor."""

    def __init__(self) -> None:
        self._values = array("i")
        self._ends = array("q", [0])

    def append(self, values: Iterable[int]) -> None:
        """Adds one sequence at the end."""
        self._values.extend(values)
        self._ends.append(len(self._values))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(self.values(index), dtype=torch.long)

    def view(self, index: int) -> Ids:
        """One sequence, int32, without a copy."""
        return numpy.frombuffer(self._values, self._values.typecode, self.length(index), self._ends[index] * 4)

    def length(self, index: int) -> int:
        """Number of values of one sequence."""
        return self._ends[index + 1] - self._ends[index]

    def values(self, index: int) -> array[int]:
        """One sequence as plain numbers."""
        return self._values[self._ends[index] : self._ends[index + 1]]

    def add_to(self, digest: Any) -> None:
        """Feeds values and ends to a hash."""
        digest.update(self._values)
        digest.update(self._ends)

    def take(self, chosen: Iterable[int]) -> Ragged:
        """The chosen sequences as a new one."""
        taken = Ragged()
        for index in chosen:
            taken.append(self.values(index))
        return taken


class Numbers:
    """A number a row, NaN where it has none."""

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._values = array("d", values)

    def append(self, value: float | None) -> None:
        """Adds a row's."""
        self._values.append(math.nan if value is None else value)

    def __len__(self) -> int:
        return len(self._values)

    def values(self, rows: Iterable[int]) -> list[float]:
        """Those of these rows."""
        return [self._values[row] for row in rows]

    def add_to(self, digest: Any) -> None:
        """Feeds them to a hash."""
        digest.update(self._values)

    def take(self, chosen: Iterable[int]) -> Numbers:
        """Those of the chosen rows as a new one."""
        return Numbers(self.values(chosen))


class Part(Protocol):
    """What rows are made of: something for each."""

    def __len__(self) -> int: ...

    def add_to(self, digest: Any) -> None:
        """Feeds all of it to a hash."""

    def take(self, chosen: Iterable[int]) -> Any:
        """That of the chosen rows."""
