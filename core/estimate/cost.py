"""What a run costs: energy from its time and what the card draws, and room on the disk."""

from __future__ import annotations

from dataclasses import dataclass

import core.estimate.terms as terms
from core.contract.catalogue import ModelSpec
from core.estimate.inputs.cards import published
from core.estimate.inputs.work import Work
from core.estimate.learned import Learned
from core.machine.hardware import Machine

__all__ = ["Cost", "Disk", "cost_of", "disk_of"]

CHECKPOINTS = 4
"""The newest two, the best, and one on its way (``core.train.keep.checkpoint``; a test holds the number to it)."""
JOULES_A_KWH = 3.6e6


@dataclass(frozen=True)
class Cost:
    """Energy as a range (low, high), or None where nothing is known; ``basis`` says of what."""

    kwh: tuple[float, float] | None = None
    basis: str = ""


@dataclass(frozen=True)
class Disk:
    """Bytes on the disk: fetched, kept while training, and for the merged model if somebody takes that home."""

    download: int
    checkpoints: int
    merged: int


def cost_of(seconds: tuple[float, float] | None, machine: Machine, learned: Learned | None) -> Cost:
    """Energy of the card over so many seconds."""
    watts, words = _watts(machine, learned)
    if seconds is None or watts is None:
        return Cost(basis=words)
    return Cost((seconds[0] * watts / JOULES_A_KWH, seconds[1] * watts / JOULES_A_KWH), words)


def disk_of(work: Work, spec: ModelSpec) -> Disk:
    """What is fetched and written."""
    one = terms.lora_bytes(work) + work.model.optimiser_bytes
    return Disk(0 if spec.cached else spec.download_bytes, CHECKPOINTS * one, 2 * spec.shape.parameters)


def _watts(machine: Machine, learned: Learned | None) -> tuple[float | None, str]:
    card = machine.gpu
    if card is None:
        return None, "what a CPU draws is not known here"
    if learned is not None and (drawn := learned.watts(card.name)):
        return drawn, f"the card drew {drawn:.0f} W in earlier runs; the rest of the machine is not in it"
    if card.power_limit_watts:
        return (
            card.power_limit_watts,
            f"at the card's limit of {card.power_limit_watts:.0f} W, without the machine's rest",
        )
    if known := published(card.name):
        return known.watts, f"at the {known.watts:.0f} W that are published for this card, without the machine's rest"
    return None, "what this card draws is not known"
