"""What a classifier gives: one label, several, or numbers; in transformers' terms (``problem_type``)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F

Problem = Literal["single_label_classification", "multi_label_classification", "regression"]


@dataclass(frozen=True)
class Labels:
    """The outputs by name, in the order of the logits."""

    names: tuple[str, ...]
    problem: Problem = "single_label_classification"

    def settings(self) -> dict[str, Any]:
        """Fields of a transformers config."""
        return {
            "num_labels": len(self.names),
            "id2label": dict(enumerate(self.names)),
            "label2id": {name: number for number, name in enumerate(self.names)},
            "problem_type": self.problem,
        }

    @staticmethod
    def of(config: Any) -> "Labels":
        """The labels of a transformers config."""
        names = tuple(str(config.id2label[number]) for number in range(config.num_labels))
        return Labels(names, config.problem_type or ("single_label_classification" if names[1:] else "regression"))


@dataclass(frozen=True)
class _Kind:
    """``losses(logits, targets, weights)`` a row; ``shown(logits)``: probabilities, or the numbers themselves."""

    losses: Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
    shown: Callable[[torch.Tensor], torch.Tensor]


def _several(logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    targets = targets.to(logits.dtype)
    return F.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights, reduction="none").mean(1)


def _numbers(logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    errors = (logits - targets.to(logits.dtype).view_as(logits)).square()
    return (errors if weights is None else errors * weights).mean(1)


KINDS: dict[Problem, _Kind] = {
    "single_label_classification": _Kind(
        lambda logits, targets, weights: F.cross_entropy(logits, targets, weight=weights, reduction="none"),
        lambda logits: logits.softmax(-1),
    ),
    "multi_label_classification": _Kind(_several, torch.sigmoid),
    "regression": _Kind(_numbers, lambda logits: logits),
}


def row_losses(
    logits: torch.Tensor, targets: torch.Tensor, problem: Problem, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """Each row's loss ``[rows]``; without weights their mean is the loss of transformers' own classifier.

    Args:
        logits: ``[rows, classes]``.
        targets: ``[rows]`` int64 for one label; ``[rows, classes]`` of 0 and 1 for several; numbers for a regression.
        weights: ``[classes]``: of each class, of each class's rows that have it, or of each number.
    """
    return KINDS[problem].losses(logits, targets, weights)


def shown(logits: torch.Tensor, problem: Problem) -> torch.Tensor:
    """``[rows, classes]``: probabilities that sum to 1, one probability a label, or the numbers."""
    return KINDS[problem].shown(logits)
