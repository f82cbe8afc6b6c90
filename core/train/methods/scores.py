"""Methods whose model gives scores (``core.model.scores``), packed as all others.

Reward model, with r the score of a prompt and an answer, and m the pair's margin, 0 where it has none (Bradley and
Terry 1952; Ouyang et al. 2022, arXiv:2203.02155; margin: Touvron et al. 2023, arXiv:2307.09288; the second term:
Eisenstein et al. 2023, arXiv:2312.09244)::

    loss = -log σ(r_c - r_r - m) + centre · (r_c + r_r)²

Classification: ``core.model.scores.row_losses``. Balanced class weights are rows / (labels · rows of the label), so
that every label weighs as much in all (King and Zeng 2001); of several labels each one's positive weight is the ratio
of rows without and with it.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import logsigmoid

from core.contract.events import MOST_CONFUSED
from core.model.scores import row_losses
from core.train.methods.dpo import rewards
from core.train.methods.sft import TextTrainer
from core.train.step.batches import pack, sent
from core.train.step.rows import LabelRows, PairRows, Rows, Tokens


class ScoreTrainer(TextTrainer):
    """Over a ``ScoreModel``. Encoders take rows packed, and pad them themselves where they must."""

    def tensors(self, sequences: Sequence[Tokens]) -> dict[str, Any]:
        whole: Any = self.model
        return pack(sequences, self.args.device) if whole.packs else super().tensors(sequences)


class RewardTrainer(ScoreTrainer):
    """Over a ``ScoreModel`` with one score; rows are pairs."""

    def __init__(self, measures: tuple[str, ...], centre: float, *rest: Any) -> None:
        self.measures, self._centre = measures, centre
        super().__init__(*rest)

    def pass_loss(self, model: Any, rows: Rows, chosen: Sequence[int]) -> torch.Tensor:
        """The sum of the losses of one micro-batch's pairs."""
        assert isinstance(rows, PairRows)
        given = model(**self.micro_batch(rows, chosen).tensors).view(-1, 2)
        told = rewards(1.0, given)
        margins = sent(rows.margins.values(chosen), given.device).nan_to_num()
        losses = -logsigmoid(told["margin"] - margins)
        if self._centre:
            losses = losses + self._centre * given.sum(1) ** 2
        self.measure([told[name].detach().float().sum() for name in self.measures])
        return losses.sum()


class ClassifyTrainer(ScoreTrainer):
    """Over a ``ScoreModel``; rows have labels or numbers."""

    def __init__(self, measures: tuple[str, ...], balanced: bool, *rest: Any) -> None:
        self.measures = measures
        super().__init__(*rest)
        assert isinstance(self.rows, LabelRows)
        self._problem, self._scale = self.rows.outputs.problem, self.rows.outputs.scale
        self.weights = class_weights(self.rows).to(self.args.device) if balanced else None
        """Float32 ``[scores]``, or none."""
        self._counts = self._no_counts()
        """Of held-out rows since ``measure_anew``: ``[right label, given label]``; of several labels ``[3, scores]``:
        rightly given, wrongly given, missed."""

    def measure_anew(self) -> None:
        super().measure_anew()
        self._counts = self._no_counts()

    def _no_counts(self) -> torch.Tensor:
        assert isinstance(self.rows, LabelRows)
        every = len(self.rows.outputs.names)
        shape = {"regression": (), "single_label_classification": (every**2,)}.get(self._problem, (3, every))
        return torch.zeros(shape, dtype=torch.int64, device=self.args.device)

    def pass_loss(self, model: Any, rows: Rows, chosen: Sequence[int]) -> torch.Tensor:
        """The sum of the losses of one micro-batch's rows."""
        assert isinstance(rows, LabelRows)
        logits = model(**self.micro_batch(rows, chosen).tensors)
        targets = sent(rows.targets(chosen), logits.device)
        losses = row_losses(logits, targets, self._problem, self.weights)
        told = self._told(logits.detach(), targets, held_out=rows is not self.rows)
        unknown = losses.new_full((), torch.nan)  # a tensor made of a number would wait for the card
        self.measure([told.get(name, unknown) for name in self.measures])
        return losses.sum()

    def _told(self, logits: torch.Tensor, targets: torch.Tensor, held_out: bool) -> dict[str, torch.Tensor]:
        """Sums of measures over rows; of held-out ones their labels are counted."""
        if self._problem == "regression":
            return {"mean_error": self._scale * (logits - targets).abs().mean(1).sum()}
        if self._problem == "single_label_classification":
            given = logits.argmax(1)
            if held_out:
                every = logits.shape[1]
                self._counts = self._counts + (targets * every + given).bincount(minlength=every**2)
            return {"accuracy": (given == targets).sum()}
        given, right = logits > 0, targets > 0.5
        if held_out:
            counts = torch.stack([(given & right).sum(0), (given & ~right).sum(0), (~given & right).sum(0)])
            self._counts = self._counts + counts
        return {"accuracy": (given == right).all(1).sum()}

    def held_out_measures(self) -> dict[str, Any]:
        """Macro F1 and, of one label a row, the confusion matrix."""
        counts = self.ranks.sum(self._counts).cpu()
        if counts.numel() <= 1:
            return {}
        if counts.ndim > 1:
            return {"macro_f1": macro_f1(*counts)}
        every = round(counts.numel() ** 0.5)
        matrix = counts.view(every, every)
        right = matrix.diagonal()
        told: dict[str, Any] = {"macro_f1": macro_f1(right, matrix.sum(0) - right, matrix.sum(1) - right)}
        if every <= MOST_CONFUSED:
            told["confusion"] = tuple(tuple(line) for line in matrix.long().tolist())
        return told


def macro_f1(right: torch.Tensor, wrong: torch.Tensor, missed: torch.Tensor) -> float:
    """The mean of ``2 right / (2 right + wrong + missed)`` over labels that a row has or was given, of counts
    ``[scores]``."""
    either = 2 * right + wrong + missed
    return float((2 * right[either > 0] / either[either > 0]).mean())


def class_weights(rows: LabelRows) -> torch.Tensor:
    """Balanced weights of labels; numbers have none."""
    if rows.outputs.problem == "regression":
        return torch.ones(len(rows.outputs.names))
    counts = rows.counts().clamp(min=1).float()
    several = rows.outputs.problem == "multi_label_classification"
    # A label that every row has weighs as if one row lacked it: of weight 0 it would never be learned.
    return (len(rows) - counts).clamp(min=1) / counts if several else len(rows) / (len(counts) * counts)
