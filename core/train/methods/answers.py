"""Methods whose loss is made of answers' log-probabilities: one trainer, and a ``AnswerLoss`` a method.

Of token losses ``l [T]`` (``core.model.layers.loss``), an answer's log-probability is minus their sum over its bounds:
prompt and answer alternate in a micro-batch, so that all sums are one reduction over known segments, without atomics::

    tokens    p p p a a │ p p a a a            segments    prompt, answer, padding │ prompt, answer, padding
    losses    . . a a . │ . a a a .            token n is predicted at n - 1

Of a pair that is packed the second side has the prompt's last token alone, which predicts its answer.

The reference is computed on the same micro-batch by the same layers, with the adapter's scale at 0, so that at the
first step nothing differs from it; KTO's, where it reads a row beside another answer to its prompt, differs by what the
other micro-batch rounds. A row's sums under it never change: they are computed once and kept, 4 bytes a
sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, Protocol

import torch

from core.train.methods.sft import TextTrainer
from core.train.step.batches import sent, split_batch, split_lengths
from core.train.step.rows import Rows, Tokens


@dataclass(frozen=True)
class Answers:
    """The answers of a micro-batch of R rows with S sides; float32 but for ``tokens``."""

    sums: torch.Tensor
    """``[R, S]``: log-probabilities, summed over the answer's tokens."""
    tokens: torch.Tensor
    """``[R, S]``: their numbers."""
    prompts: torch.Tensor
    """``[R, S]``: log-probabilities of the prompts, 0 where they are not trained."""
    reference: torch.Tensor | None = None
    """``[R, S]``: ``sums`` under the reference."""
    good: torch.Tensor | None = None
    """``[R]``: whether the answer is marked good."""

    @property
    def ratios(self) -> torch.Tensor:
        """``[R, S]``: log-probabilities less the reference's."""
        assert self.reference is not None
        return self.sums - self.reference

    def by_token(self, scores: torch.Tensor) -> torch.Tensor:
        """``[R, S]`` over each answer's tokens."""
        return scores / self.tokens.clamp(min=1)


@dataclass(frozen=True)
class Constants:
    """What the rows of one optimizer batch share, however it is cut."""

    sft_share: float = 1.0
    """Rows over the tokens that an SFT term counts: times a row's sum, it gives that row's part in the mean a token."""
    good_share: float = 1.0
    """Rows over those marked good, of an evaluation all its rows; NaN where there are none."""
    bad_share: float = 1.0
    kl: torch.Tensor | None = None
    """KTO's z₀, a scalar."""


@dataclass(frozen=True)
class Told:
    """Losses ``[R]`` of a micro-batch's rows, and what else is measured of each, ``[R]`` by name."""

    losses: torch.Tensor
    measures: dict[str, torch.Tensor]


class AnswerLoss(Protocol):
    """A method's loss."""

    @property
    def prompt_trained(self) -> bool:
        """Whether an SFT term counts the prompt's tokens too."""

    def __call__(self, answers: Answers, constants: Constants) -> Told:
        """The losses of the rows."""


class AnswerTrainer(TextTrainer):
    """A trainer over a ``LossModel`` and a method's ``AnswerLoss``; ``measures`` are the method's."""

    def __init__(self, loss: AnswerLoss, measures: tuple[str, ...], reference: bool, *rest: Any) -> None:
        self.answer_loss, self.measures, self._compares = loss, measures, reference
        self.constants = Constants()
        self._reference: dict[int, _Kept] = {}
        super().__init__(*rest)

    def sequences(self, rows: Rows, chosen: Sequence[int]) -> list[Tokens]:
        """What the model reads of these rows, side by side."""
        trained = self.answer_loss.prompt_trained
        return [sequence for row in chosen for sequence in rows.sequences(row, trained)]

    def prelude_sums(self, model: Any, rows: Rows, batch: Sequence[int], tokens: int) -> torch.Tensor | None:
        """Counts the tokens of the batch's SFT term."""
        self._look_ahead(model, rows, self.own(rows, batch), tokens)
        counted = 0
        for row in batch:
            first = rows.sequences(row, self.answer_loss.prompt_trained)[0]
            counted += len(first) - (1 if self.answer_loss.prompt_trained else first.answer)
        self.constants = Constants(sft_share=len(batch) / max(1, counted))
        return None

    def pass_loss(self, model: Any, rows: Rows, chosen: Sequence[int]) -> torch.Tensor:
        """The sum of the losses of one micro-batch's rows."""
        sequences, batch = self.micro_batch(rows, chosen)
        reference = self._reference_sums(model, rows, chosen, sequences, batch) if self._compares else None
        prompts, sums = self._sums(model(**batch), sequences)
        tokens = sent([len(one) - one.answer for one in sequences], sums.device)
        good = sent([rows.good(row) for row in chosen], sums.device)
        sides = (-1, rows.sides)
        answers = Answers(sums.view(sides), tokens.view(sides), prompts.view(sides), reference, good)
        told = self.answer_loss(answers, self.constants)
        self.measure([told.measures[name].detach().sum() for name in self.measures])
        return told.losses.sum()

    def _sums(self, losses: torch.Tensor, sequences: Sequence[Tokens]) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities of prompts and answers, ``[sequences]`` each, of token losses ``[batch, T]``."""
        padded = 0 if self.packed else losses.shape[1]
        lengths: list[int] = []
        for one in sequences:
            before = one.answer - 1 - (one.shared if self.packed else 0)
            lengths += before, len(one) - one.answer + 1, max(0, padded - len(one))
        parts = torch.segment_reduce(
            losses.flatten(), "sum", lengths=sent(lengths, losses.device), unsafe=True, initial=0
        )
        prompts, answers, _ = (-parts.view(-1, 3)).unbind(1)
        return prompts, answers

    # ── the reference ────────────────────────────────────────────────────────────────────────────────────────────

    def _reference_sums(
        self, model: Any, rows: Rows, chosen: Sequence[int], sequences: Sequence[Tokens], batch: dict[str, Any]
    ) -> torch.Tensor:
        """``[R, S]``, computed where one of the rows is new."""
        kept = self._kept(rows)
        if not kept.knows(chosen):
            with torch.no_grad(), self.trained.reference():
                kept.keep(chosen, self._sums(model(**batch), sequences)[1])
        return kept.sums[sent(list(chosen), self.args.device)]

    def _look_ahead(self, model: Any, rows: Rows, batch: Sequence[int], tokens: int) -> None:
        """Where the reference is slow to come to, the batch's new rows are read under it with the next new ones."""
        if not self._compares or not self.trained.ahead or self._kept(rows).knows(batch):
            return
        kept = self._kept(rows)
        new = dict.fromkeys(row for row in (*batch, *range(len(rows))) if not kept.known[row])
        with torch.no_grad(), self.trained.reference():
            for chosen in split_batch(
                rows, list(islice(new, max(len(batch), self.trained.ahead))), tokens, self.packed
            ):
                sequences, tensors = self.micro_batch(rows, chosen)
                kept.keep(chosen, self._sums(model(**tensors), sequences)[1])

    def _kept(self, rows: Rows) -> _Kept:
        kept = self._reference.get(id(rows))
        if kept is None:
            sums = torch.full((len(rows), rows.sides), torch.nan, device=self.args.device)
            kept = self._reference[id(rows)] = _Kept(rows, sums, bytearray(len(rows)))
        return kept

    @cached_property
    def _rows_sha256(self) -> str:
        return self.rows.sha256()

    def try_out(self, model: Any, batch: Sequence[int], besides: Callable[[], object]) -> None:
        """Keeps no sums: rounding follows from a micro-batch, and the same ones must come from those of the run."""
        kept, self._reference = self._reference, {}
        try:
            super().try_out(model, batch, besides)
        finally:
            self._reference = kept

    def to_share(self, batch: Sequence[int]) -> torch.Tensor | None:
        """The reference's sums of this rank's rows: in a later epoch others compute them."""
        if not self._compares:
            return None
        own, mine = set(self.own(self.rows, batch)), self._kept(self.rows).sums[sent(list(batch), self.args.device)]
        theirs = sent([[row not in own] for row in batch], self.args.device)
        return mine.masked_fill(theirs, 0.0)

    def take_shared(self, batch: Sequence[int], told: torch.Tensor) -> None:
        """Keeps the reference's sums of every row of the batch."""
        self._kept(self.rows).keep(batch, told)

    def extra_state(self) -> dict[str, Any]:
        """The reference's sums over the rows that are trained on, NaN where they are not known yet."""
        return {"reference": self._kept(self.rows).sums, "rows": self._rows_sha256} if self._compares else {}

    def restore_extra_state(self, state: dict[str, Any]) -> None:
        """Takes what ``extra_state`` gave, where it is of the same rows."""
        if self._compares and state.get("rows") == self._rows_sha256:
            sums = state["reference"]
            known = bytearray((~sums.isnan().any(1)).to(torch.uint8).tolist())
            self._reference[id(self.rows)] = _Kept(self.rows, sums.to(self.args.device), known)


class MarkedTrainer(AnswerTrainer):
    """KTO's: answers with marks, and z₀, the batch's estimate of the divergence from the reference.

    z₀ is the mean of log-ratios of each prompt with the answer of the row before it in the batch, at least 0; both
    together have ``max_length`` tokens at most.
    """

    def __init__(self, estimates_kl: bool, max_length: int, *rest: Any) -> None:
        self._estimates_kl, self._max_length = estimates_kl, max_length
        super().__init__(*rest)

    def prelude_sums(self, model: Any, rows: Any, batch: Sequence[int], tokens: int) -> torch.Tensor | None:
        """Counts marks and, where the loss wants it, estimates this rank's part of z₀."""
        # What is measured of held-out rows is a mean over all of them: a group may have marks of one kind only.
        own = self.own(rows, batch)
        self._look_ahead(model, rows, own, tokens)
        training = rows is self.rows
        every, good = (len(batch), sum(map(rows.good, batch))) if training else (len(rows), rows.good_rows)
        self.constants = Constants(
            good_share=every / good if good else torch.nan,
            bad_share=every / (every - good) if every > good else torch.nan,
        )
        total = torch.zeros((), device=self.args.device)
        if self._estimates_kl and len(batch) > 1 and own:
            before = dict(zip(batch, [batch[-1], *batch[:-1]], strict=True))
            total += self._moved(model, rows, [(row, before[row]) for row in own], tokens)
        return total / len(batch)

    def settle(self, sums: torch.Tensor | None) -> None:
        """Takes z₀."""
        assert sums is not None
        self.constants = replace(self.constants, kl=sums.clamp(min=0))

    def _moved(self, model: Any, rows: Any, pairs: Sequence[tuple[int, int]], tokens: int) -> torch.Tensor:
        """The sum of log-ratios of each prompt with the answer of the row before it in the batch. Where a row of the
        training is new its own answer is read under the reference beside that one: both have its prompt. No checkpoint
        keeps the sums of held-out rows, so theirs are always read the same way."""
        batch, kept = [row for row, _ in pairs], self._kept(rows)
        strange = [[rows.mismatched(row, other, self._max_length)] for row, other in pairs]
        both = []
        for row, (one,) in zip(batch, strange, strict=True):
            (own,) = rows.sequences(row)
            beside = self.packed and rows is self.rows and kept.new(row) and len(own) + len(one) <= tokens
            both.append([own, one.after_same_prompt()] if beside else [one])
        with torch.no_grad():
            total = sum(sums.sum() for _, sums in self._passes_over(model, strange, tokens))
            with self.trained.reference():
                for places, sums in self._passes_over(model, both, tokens):
                    parts = sums.split([len(both[place]) for place in places])
                    total = total - torch.stack([part[-1] for part in parts]).sum()
                    read = [
                        (batch[place], part[:1]) for place, part in zip(places, parts, strict=True) if len(part) > 1
                    ]
                    if read:
                        kept.keep([row for row, _ in read], torch.cat([own for _, own in read]))
        return torch.as_tensor(total)

    def _passes_over(
        self, model: Any, groups: list[list[Tokens]], tokens: int
    ) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Groups of sequences in micro-batches: places of groups, and their answers' log-probabilities in turn."""
        for places in split_lengths([sum(one.own for one in group) for group in groups], tokens, self.packed):
            sequences = [one for place in places for one in groups[place]]
            yield places, self._sums(model(**self.tensors(sequences)), sequences)[1]


@dataclass(frozen=True)
class _Kept:
    """The reference's sums over some rows, ``[rows, sides]``, and which of them are known; no other rows may get the
    same ``id`` meanwhile."""

    rows: Rows
    sums: torch.Tensor
    known: bytearray

    def new(self, row: int) -> bool:
        """Whether its sums are not known."""
        return not self.known[row]

    def knows(self, rows: Sequence[int]) -> bool:
        """Whether the sums of all these rows are there."""
        return all(self.known[row] for row in rows)

    def keep(self, rows: Sequence[int], sums: torch.Tensor) -> None:
        """Takes the sums of these rows, ``[rows · sides]``."""
        self.sums[sent(list(rows), self.sums.device)] = sums.view(len(rows), -1).float()
        for row in rows:
            self.known[row] = 1
