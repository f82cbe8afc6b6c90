"""Tokenised rows, at 4 bytes per token, and the sequences that a micro-batch makes of them."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy
import torch

from core.contract.methods import LearningMethod
from core.contract.tasks import Outputs
from core.train.step.ragged import Ids, Numbers, Part, Ragged

NEAR = 10.0
"""A head begins at scores near 0, and a learning rate's steps are small: it is soon at numbers up to here."""
IGNORED = -100
"""The label of a token that is not trained."""


@dataclass(frozen=True)
class Tokens:
    """One sequence as the model reads it: ``ids`` and ``labels`` ``[n]``, unshifted, -100 where not trained.

    ``answer`` is where its answer begins: token n is predicted at n - 1. ``shared`` tokens at its beginning are those
    of the sequence before it: packed, they are read once for both.
    """

    ids: Ids
    labels: Ids
    answer: int = 0
    shared: int = 0

    @classmethod
    def of(cls, prompt: Ids, answer: Ids, prompt_trained: bool = False) -> Tokens:
        """A prompt and its answer; ``prompt_trained`` gives the prompt's tokens losses too."""
        ids = numpy.concatenate((prompt, answer))
        labels = ids if prompt_trained else numpy.concatenate((numpy.full_like(prompt, IGNORED), answer))
        return cls(ids, labels, len(prompt))

    def after_same_prompt(self) -> Tokens:
        """The same after another answer to its prompt. The prompt's last token, which predicts the answer's first one,
        is its own."""
        return replace(self, shared=shared_of(self.answer))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def own(self) -> int:
        """Tokens that are read for it alone."""
        return len(self.ids) - self.shared


def shared_of(prompt: int) -> int:
    """Tokens that two answers to a prompt of so many tokens read once."""
    return max(0, prompt - 1)


class Rows:
    """Rows of a training method: row i is sequence i of every part."""

    sides = 1
    """Sequences that the model reads of a row: two of a pair."""

    def __init__(self, *parts: Part) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return len(self._parts[0])

    def append_made(self, ids: Sequence[int], packed: bool = True) -> None:
        """Adds a row that computes so many tokens, for a measurement; all that can be trained of it is."""
        raise NotImplementedError

    def take(self, chosen: Sequence[int]) -> Self:
        """The chosen rows as new ones."""
        return type(self)(*(part.take(chosen) for part in self._parts))

    def sha256(self) -> str:
        """Hash of every token and label."""
        digest = hashlib.sha256()
        for part in self._parts:
            part.add_to(digest)
        return digest.hexdigest()

    def side_lengths(self, row: int) -> tuple[int, ...]:
        """Tokens of each of its sequences."""
        raise NotImplementedError

    def sequences(self, row: int, prompt_trained: bool = False) -> tuple[Tokens, ...]:
        """What the model reads of a row, a sequence a side."""
        raise NotImplementedError

    def shared(self, row: int) -> int:  # noqa: ARG002 - most have one side
        """Tokens that its sides have in common: packed, they are read once."""
        return 0

    def length(self, row: int, packed: bool = True) -> int:
        """Tokens that a micro-batch computes for a row; padded ones have its longest side's length."""
        sides = self.side_lengths(row)
        return sum(sides) - self.shared(row) if packed else len(sides) * max(sides)

    def tokens(self, row: int, packed: bool = True) -> int:
        """The same without padding."""
        return sum(self.side_lengths(row)) - (self.shared(row) if packed else 0)

    def trained(self, row: int) -> int:
        """Number of targets."""
        raise NotImplementedError

    def weight(self, row: int) -> int:  # noqa: ARG002 - all alike but for SFT's
        """Its weight in the mean loss."""
        return 1

    def good(self, row: int) -> bool:  # noqa: ARG002 - only some rows are marked
        """Whether its answer is to become likelier."""
        return True

    def question(self, row: int) -> tuple[list[int], list[int]]:
        """A prompt and the answer that the row has."""
        raise NotImplementedError

    def label(self, row: int) -> str:  # noqa: ARG002 - only some rows have one
        """Its label, as people read it."""
        return ""


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

    def append_made(self, ids: Sequence[int], packed: bool = True) -> None:  # noqa: ARG002 - one side
        self.append(ids, [IGNORED, *ids[1:]])

    def side_lengths(self, row: int) -> tuple[int, ...]:
        return (self.ids.length(row),)

    def sequences(self, row: int, prompt_trained: bool = False) -> tuple[Tokens, ...]:  # noqa: ARG002 - labels say it
        return (Tokens(self.ids.view(row), self.labels.view(row)),)

    def trained(self, row: int) -> int:
        """Targets after the shift: the first token is none."""
        return self._trained[row]

    weight = trained

    def question(self, row: int) -> tuple[list[int], list[int]]:
        """The tokens before the first trained one, and those of the first trained span."""
        ids, labels = self.ids[row].tolist(), self.labels[row].tolist()
        begin = next((at for at, label in enumerate(labels) if label != IGNORED), 0)
        end = next((at for at in range(begin, len(labels)) if labels[at] == IGNORED), len(labels))
        return ids[:begin], ids[begin:end]


class PairRows(Rows):
    """Rows of pairs: a prompt, a chosen and a rejected answer, and by how much the former is better, where that is
    known. The mean loss is over pairs."""

    sides = 2

    def __init__(self, *parts: Any) -> None:
        self.prompts, self.chosen, self.rejected, self.margins = parts or (Ragged(), Ragged(), Ragged(), Numbers())
        super().__init__(self.prompts, self.chosen, self.rejected, self.margins)

    def append(
        self, prompt: Sequence[int], chosen: Sequence[int], rejected: Sequence[int], margin: float | None = None
    ) -> None:
        """Adds a pair."""
        self.prompts.append(prompt)
        self.chosen.append(chosen)
        self.rejected.append(rejected)
        self.margins.append(margin)

    def append_made(self, ids: Sequence[int], packed: bool = True) -> None:
        prompt = max(1, len(ids) // 4)
        answers = len(ids) - prompt - (1 if packed else prompt)  # the rest is read again for the second side
        half = prompt + (answers + 1) // 2
        self.append(ids[:prompt], ids[prompt:half], ids[half : prompt + answers])

    def side_lengths(self, row: int) -> tuple[int, ...]:
        prompt = self.prompts.length(row)
        return prompt + self.chosen.length(row), prompt + self.rejected.length(row)

    def shared(self, row: int) -> int:
        return shared_of(self.prompts.length(row))

    def sequences(self, row: int, prompt_trained: bool = False) -> tuple[Tokens, ...]:
        """The chosen side, then the rejected one."""
        prompt = self.prompts.view(row)
        chosen, rejected = (Tokens.of(prompt, side.view(row), prompt_trained) for side in (self.chosen, self.rejected))
        return chosen, rejected.after_same_prompt()

    def trained(self, row: int) -> int:
        """Tokens of both answers."""
        return self.chosen.length(row) + self.rejected.length(row)

    def question(self, row: int) -> tuple[list[int], list[int]]:
        """The prompt and the chosen answer."""
        return self.prompts[row].tolist(), self.chosen[row].tolist()


class MarkedRows(Rows):
    """Rows of answers that are marked good or bad. The mean loss is over answers."""

    def __init__(self, *parts: Any) -> None:
        self.prompts, self.answers, self.marks = parts or (Ragged(), Ragged(), Ragged())
        super().__init__(self.prompts, self.answers, self.marks)
        self.good_rows = sum(map(self.good, range(len(self))))
        """How many are marked good."""

    def append(self, prompt: Sequence[int], answer: Sequence[int], good: bool) -> None:
        """Adds an answer."""
        self.prompts.append(prompt)
        self.answers.append(answer)
        self.marks.append([int(good)])
        self.good_rows += good

    def append_made(self, ids: Sequence[int], packed: bool = True) -> None:  # noqa: ARG002 - one side
        self.append(ids[: len(ids) // 2], ids[len(ids) // 2 :], len(self) % 2 == 0)

    def good(self, row: int) -> bool:
        return bool(self.marks.values(row)[0])

    def side_lengths(self, row: int) -> tuple[int, ...]:
        return (self.prompts.length(row) + self.answers.length(row),)

    def sequences(self, row: int, prompt_trained: bool = False) -> tuple[Tokens, ...]:
        return (Tokens.of(self.prompts.view(row), self.answers.view(row), prompt_trained),)

    def mismatched(self, row: int, other: int, most: int) -> Tokens:
        """The prompt of one row with the answer of another, cut at ``most`` tokens as rows are."""
        prompt = self.prompts.view(row)
        return Tokens.of(prompt, self.answers.view(other)[: max(1, most - len(prompt))])

    def trained(self, row: int) -> int:
        """Tokens of the answer."""
        return self.answers.length(row)

    def question(self, row: int) -> tuple[list[int], list[int]]:
        """The prompt and, where it is marked good, the answer."""
        return self.prompts[row].tolist(), self.answers[row].tolist() if self.good(row) else []


class LabelRows(Rows):
    """Texts with labels, or with a number; ``outputs`` names what a label's place is. The mean loss is over rows."""

    def __init__(self, outputs: Outputs, *parts: Any) -> None:
        self.outputs = outputs
        self.ids, self.classes, self.numbers = parts or (Ragged(), Ragged(), Numbers())
        super().__init__(self.ids, self.classes, self.numbers)
        self._places = {name: place for place, name in enumerate(outputs.names)}

    def append(self, ids: Sequence[int], labels: Sequence[str]) -> None:
        """Adds a text. Raises ValueError for a number that is none, KeyError for a label that has no place."""
        number = float(labels[0]) if self.outputs.problem == "regression" else None
        classes = [] if number is not None else [self._places[label] for label in labels]
        self.ids.append(ids)
        self.classes.append(classes)
        self.numbers.append(number)

    def append_made(self, ids: Sequence[int], packed: bool = True) -> None:  # noqa: ARG002 - one side
        numbers = self.outputs.problem == "regression"
        self.append(ids, ["0"] if numbers else [self.outputs.names[len(self) % len(self.outputs.names)]])

    def take(self, chosen: Sequence[int]) -> Self:
        return type(self)(self.outputs, *(part.take(chosen) for part in self._parts))

    def side_lengths(self, row: int) -> tuple[int, ...]:
        return (self.ids.length(row),)

    def sequences(self, row: int, prompt_trained: bool = False) -> tuple[Tokens, ...]:  # noqa: ARG002 - no prompt
        return (Tokens(self.ids.view(row), self.ids.view(row)),)

    def trained(self, row: int) -> int:  # noqa: ARG002 - all alike
        """Its label."""
        return 1

    def targets(self, chosen: Sequence[int]) -> torch.Tensor:
        """Of R rows int64 ``[R]``, or float32 ``[R, scores]``: of several labels 0 and 1, of a number its score."""
        if self.outputs.problem == "regression":
            numbers = torch.tensor(self.numbers.values(chosen), dtype=torch.float64)
            return ((numbers - self.outputs.mean) / self.outputs.scale).float()[:, None]
        if self.outputs.problem == "single_label_classification":
            return torch.tensor([self.classes.values(row)[0] for row in chosen])
        targets = torch.zeros(len(chosen), len(self.outputs.names))
        for line, row in zip(targets, chosen, strict=True):
            line[list(self.classes.values(row))] = 1.0
        return targets

    def standardised(self) -> Outputs:
        """Outputs with the mean and the deviation of these rows' numbers, where a head would be long in learning them:
        where most are not within ``NEAR`` of 0."""
        numbers = torch.tensor(self.numbers.values(range(len(self))), dtype=torch.float64)
        if self.outputs.problem != "regression" or not len(numbers) or numbers.abs().median() <= NEAR:
            return self.outputs
        scale = float(numbers.std(correction=0)) or 1.0
        return replace(self.outputs, mean=float(numbers.mean()), scale=scale)

    def counts(self) -> torch.Tensor:
        """Rows of each label, int64 ``[scores]``."""
        flat = [place for row in range(len(self)) for place in self.classes.values(row)]
        return torch.bincount(torch.tensor(flat, dtype=torch.long), minlength=len(self.outputs.names))

    def question(self, row: int) -> tuple[list[int], list[int]]:
        """The text; its label is no token."""
        return self.ids[row].tolist(), []

    def label(self, row: int) -> str:
        names = [self.outputs.names[place] for place in self.classes.values(row)]
        return ", ".join(names) or f"{self.numbers.values([row])[0]:.12g}".replace("nan", "none")


def _targets(labels: Sequence[int]) -> int:
    return len(labels[1:]) - labels[1:].count(IGNORED)


def rows_for(learning: LearningMethod, outputs: Outputs | None = None) -> Any:
    """Empty rows of the kind that a method learns from; ``outputs`` are those of rows with labels."""
    if learning.labelled:
        assert outputs is not None
        return LabelRows(outputs)
    return MarkedRows() if learning.marked else PairRows() if learning.answers > 1 else TextRows()
