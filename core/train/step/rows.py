"""Tokenised rows, at 4 bytes per token."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy
import torch

from core.contract.methods import LearningMethod

IGNORED = -100
"""The label of a token that is not trained."""


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

    def copy_to(self, index: int, place: numpy.ndarray[Any, Any]) -> None:
        """Writes one sequence into ``place``, which is as long."""
        length = self.length(index)
        place[:] = numpy.frombuffer(self._values, self._values.typecode, length, self._ends[index] * 4)

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


class Rows:
    """Rows of a training method: row i is sequence i of every part."""

    def __init__(self, *parts: Ragged) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return len(self._parts[0])

    def take(self, chosen: Sequence[int]) -> Self:
        """The chosen rows as new ones."""
        return type(self)(*(part.take(chosen) for part in self._parts))

    def sha256(self) -> str:
        """Hash of every token and label."""
        digest = hashlib.sha256()
        for part in self._parts:
            part.add_to(digest)
        return digest.hexdigest()

    def length(self, row: int) -> int:
        """Tokens that a micro-batch computes for a row."""
        raise NotImplementedError

    def tokens(self, row: int) -> int:
        """Real tokens."""
        raise NotImplementedError

    def trained(self, row: int) -> int:
        """Number of targets."""
        raise NotImplementedError

    def weight(self, row: int) -> int:
        """Its weight in the mean loss."""
        raise NotImplementedError

    def question(self, row: int) -> tuple[list[int], list[int]]:
        """A prompt and the answer that the row has."""
        raise NotImplementedError


class TextRows(Rows):
    """Rows of SFT: ids and labels, unshifted, -100 where not trained. The mean loss is over trained tokens."""

    def __init__(self, ids: Ragged | None = None, labels: Ragged | None = None) -> None:
        self.ids, self.labels = ids or Ragged(), labels or Ragged()
        super().__init__(self.ids, self.labels)
        self._trained = array("i", (_targets(self.labels.values(row)) for row in range(len(self.labels))))

    def append(self, ids: Sequence[int], labels: Sequence[int]) -> None:
        """Adds a row."""
        self.ids.append(ids)
        self.labels.append(labels)
        self._trained.append(_targets(labels))

    def length(self, row: int) -> int:
        return self.ids.length(row)

    def tokens(self, row: int) -> int:
        return self.ids.length(row)

    def trained(self, row: int) -> int:
        """Targets after the shift: the first token is none."""
        return self._trained[row]

    def weight(self, row: int) -> int:
        return self._trained[row]

    def question(self, row: int) -> tuple[list[int], list[int]]:
        """The tokens before the first trained one, and those of the first trained span."""
        ids, labels = self.ids[row].tolist(), self.labels[row].tolist()
        begin = next((at for at, label in enumerate(labels) if label != IGNORED), 0)
        end = next((at for at in range(begin, len(labels)) if labels[at] == IGNORED), len(labels))
        return ids[:begin], ids[begin:end]


class PairRows(Rows):
    """Rows of DPO: a prompt and two answers. The mean loss is over pairs."""

    def __init__(self, prompts: Ragged | None = None, chosen: Ragged | None = None, rejected: Ragged | None = None):
        self.prompts, self.chosen, self.rejected = prompts or Ragged(), chosen or Ragged(), rejected or Ragged()
        super().__init__(self.prompts, self.chosen, self.rejected)

    def append(self, prompt: Sequence[int], chosen: Sequence[int], rejected: Sequence[int]) -> None:
        """Adds a pair."""
        self.prompts.append(prompt)
        self.chosen.append(chosen)
        self.rejected.append(rejected)

    def length(self, row: int) -> int:
        """Both sides, padded to the longer."""
        return 2 * (self.prompts.length(row) + max(self.chosen.length(row), self.rejected.length(row)))

    def tokens(self, row: int) -> int:
        """Of both sides; the prompt is computed twice."""
        return 2 * self.prompts.length(row) + self.chosen.length(row) + self.rejected.length(row)

    def trained(self, row: int) -> int:
        """Tokens of both answers."""
        return self.chosen.length(row) + self.rejected.length(row)

    def weight(self, row: int) -> int:  # noqa: ARG002 - all alike
        return 1

    def question(self, row: int) -> tuple[list[int], list[int]]:
        """The prompt and the chosen answer."""
        return self.prompts[row].tolist(), self.chosen[row].tolist()


def _targets(labels: Sequence[int]) -> int:
    return len(labels[1:]) - labels[1:].count(IGNORED)


def rows_for(learning: LearningMethod) -> TextRows | PairRows:
    """Empty rows of the kind that a method learns from."""
    return PairRows() if learning.answers > 1 else TextRows()
