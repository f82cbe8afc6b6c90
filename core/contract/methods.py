"""What differs from one way of learning to another, a row each: what is measured beside the loss, and what the loss
itself depends on. Training, charts, tiles and the comparison read it here."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MEASURES", "METHODS", "MethodFacts"]


@dataclass(frozen=True)
class MethodFacts:
    """One method."""

    measures: tuple[str, ...] = ()
    """What is measured beside the loss, by the fields of ``Step`` and ``Evaluation`` that carry it."""
    loss_of: tuple[str, ...] = ()
    """Settings that say what the loss is, beside the rows: where one differs, two losses are different quantities."""


METHODS: dict[str, MethodFacts] = {
    "sft": MethodFacts(),
    # The loss of DPO is one of differences to a reference: the base, or the adapter that the run goes on from.
    "dpo": MethodFacts(
        measures=("margin", "accuracy"),
        loss_of=("train.beta", "model.name", "model.revision", "model.quantization", "resume_from"),
    ),
}

MEASURES = tuple(dict.fromkeys(name for facts in METHODS.values() for name in facts.measures))
"""All of them, each once."""
