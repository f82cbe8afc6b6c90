"""What a run will need, part by part, before anything is loaded."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

__all__ = ["Estimate", "Resolved", "Term"]


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Term(_Fact):
    """One part of the memory: key for colours and words, bytes, and the formula in words."""

    key: Literal["weights", "lora", "gradients", "optimiser", "activations", "loss", "workspace", "context"]
    bytes: int
    how: str


class Estimate(_Fact):
    """Peak memory of a run against what is free, and what it costs in time and disk.

    ``verdict`` is ``fits`` (10 % to spare), ``tight``, ``too_large``, or ``unknown`` where no memory reading exists.
    ``seconds`` is a range (low, high) for the whole run or None where nothing is known of this device. ``host_bytes``
    is the machine's own memory; ``pinned_bytes`` the part of it that is held for layer inputs, never swapped out.
    """

    terms: tuple[Term, ...]
    peak_bytes: int
    free_bytes: int | None
    total_bytes: int | None
    device: str
    verdict: Literal["fits", "tight", "too_large", "unknown"]
    sentence: str
    """"Fits: 5.1 of 7.4 GB free." """
    total_steps: int
    tokens_per_epoch: int
    trained_tokens_per_epoch: int
    rows_cut: int
    seconds: tuple[float, float] | None
    time_basis: str
    disk_bytes: int
    host_bytes: int
    pinned_bytes: int = 0
    notes: tuple[str, ...] = ()


class Resolved(_Fact):
    """An automatic value made definite: dotted key, value as text, and the reason in a line."""

    key: str
    value: str
    reason: str
