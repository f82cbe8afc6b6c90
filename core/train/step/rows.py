"""The tokenised data, held compactly: 4 bytes a token, not a Python object each.

``Rows`` are what a trainer needs of data: how long each is (for the cut into passes), what it weighs in the mean (its
trained tokens; for a preference pair 1), and its tokens.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy
import torch

from core.contract.methods import LearningMethod

_IGNORED = -100


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
        return torch.tensor(self._values[self._ends[index] : self._ends[index + 1]], dtype=torch.long)

    def copy_to(self, index: int, place: numpy.ndarray[Any, Any]) -> None:
        """Writes one sequence into ``place``, which is as long."""
        length = self.length(index)
        place[:] = numpy.frombuffer(self._values, self._values.typecode, length, self._ends[index] * 4)

    def length(self, index: int) -> int:
        """Number of values of one sequence."""
        return self._ends[index + 1] - self._ends[index]

    def add_to(self, digest: Any) -> None:
        """Feeds values and lengths to a hash."""
        digest.update(self._values)
        digest.update(self._ends)

    def take(self, chosen: Iterable[int]) -> Ragged:
        """The chosen sequences as a new one."""
        taken = Ragged()
        for index in chosen:
            taken.append(self._values[self._ends[index] : self._ends[index + 1]])
        return taken


class TextRows:
    """Rows of SFT: ids and labels, unshifted, -100 where not trained."""

    def __init__(self) -> None:
        self.ids = Ragged()
        self.labels = Ragged()
        self._trained = array("i")

    def append(self, ids: Sequence[int], labels: Sequence[int]) -> None:
        """Adds a row. Its first token is never a target."""
        self.ids.append(ids)
        self.labels.append(labels)
        targets = labels[1:]
        self._trained.append(len(targets) - targets.count(_IGNORED))

    def take(self, chosen: Sequence[int]) -> TextRows:
        """The chosen rows as new ones."""
        taken = TextRows()
        taken.ids, taken.labels = self.ids.take(chosen), self.labels.take(chosen)
        taken._trained = array("i", (self._trained[row] for row in chosen))
        return taken

    def sha256(self) -> str:
        """Of every token and label."""
        return _sha256_of(self.ids, self.labels)

    def __len__(self) -> int:
        return len(self.ids)

    def length(self, row: int) -> int:
        """Tokens that a micro-batch computes for it."""
        return self.ids.length(row)

    def tokens(self, row: int) -> int:
        """Real tokens."""
        return self.ids.length(row)

    def trained(self, row: int) -> int:
        """Targets after the shift."""
        return self._trained[row]

    def weight(self, row: int) -> int:
        """Its share in the mean loss: the mean is over trained tokens."""
        return self._trained[row]

    def question(self, row: int) -> tuple[list[int], list[int]]:
        """The tokens before the first trained one, and those of the first trained span."""
        ids, labels = self.ids[row].tolist(), self.labels[row].tolist()
        begin = next((at for at, label in enumerate(labels) if label != _IGNORED), 0)
        end = next((at for at in range(begin, len(labels)) if labels[at] == _IGNORED), len(labels))
        return ids[:begin], ids[begin:end]


class PairRows:
    """Rows of DPO: a prompt and two answers."""

    def __init__(self) -> None:
        self.prompts = Ragged()
        self.chosen = Ragged()
        self.rejected = Ragged()

    def append(self, prompt: Sequence[int], chosen: Sequence[int], rejected: Sequence[int]) -> None:
        """Adds a pair."""
        self.prompts.append(prompt)
        self.chosen.append(chosen)
        self.rejected.append(rejected)

    def take(self, chosen: Sequence[int]) -> PairRows:
        """The chosen pairs as new ones."""
        taken = PairRows()
        taken.prompts, taken.chosen = self.prompts.take(chosen), self.chosen.take(chosen)
        taken.rejected = self.rejected.take(chosen)
        return taken

    def sha256(self) -> str:
        """Of every token."""
        return _sha256_of(self.prompts, self.chosen, self.rejected)

    def __len__(self) -> int:
        return len(self.prompts)

    def length(self, row: int) -> int:
        """Tokens that a micro-batch computes for it: both sides, padded to the longer."""
        return 2 * (self.prompts.length(row) + max(self.chosen.length(row), self.rejected.length(row)))

    def tokens(self, row: int) -> int:
        """Real tokens of both sides; the prompt is computed twice."""
        return 2 * self.prompts.length(row) + self.chosen.length(row) + self.rejected.length(row)

    def trained(self, row: int) -> int:
        """Tokens of both answers."""
        return self.chosen.length(row) + self.rejected.length(row)

    def weight(self, _row: int) -> int:
        """Its share in the mean loss: the mean is over pairs."""
        return 1

    def question(self, row: int) -> tuple[list[int], list[int]]:
        """The prompt and the chosen answer."""
        return self.prompts[row].tolist(), self.chosen[row].tolist()


def _sha256_of(*parts: Ragged) -> str:
    digest = hashlib.sha256()
    for part in parts:
        part.add_to(digest)
    return digest.hexdigest()


def rows_for(learning: LearningMethod) -> TextRows | PairRows:
    """Empty rows of the kind that a method learns from."""
    return PairRows() if learning.answers > 1 else TextRows()
