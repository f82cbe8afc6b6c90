"""How long a run takes: arithmetic over a rate, as a range, and never a number without a basis.

Per token, a frozen base with adapters costs two operations a weight forward and two for the gradient that goes on to
the layer below (weights get none), two more where the layer is computed again (ours leave out the last product then);
an adapter costs six a number, as it does have a gradient; causal attention over rows of n tokens costs 2 n Q forward
and 2.5 times that backward, a layer::

    operations = 4 (+ 2) N  +  6 A  +  7 n Q L

The rate is the card's published dense one for 16-bit products summed in 32 bits, times a share of it that training
reaches. A rate measured on this machine replaces both.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.estimate.rows import Rows
from core.estimate.terms import adapter_parameters, kept_of
from core.estimate.work import Work
from core.hardware import Machine

__all__ = ["TimeEstimate", "operations_per_token", "published_rate", "run_seconds"]

TERA = 1e12
SHARE_LOW, SHARE_HIGH = 0.2, 0.5
MEASURED_SPREAD = 0.15
RATES_TERA: dict[str, float] = {
    "RTX 5090": 209.5,
    "RTX 5080": 112.6,
    "RTX 5070 Ti": 87.9,
    "RTX 5070": 61.7,
    "RTX 4090": 165.2,
    "RTX 4080": 97.5,
    "RTX 4070 Ti": 80.2,
    "RTX 4070": 58.3,
    "RTX 4060 Ti": 44.1,
    "RTX 4060": 30.2,
    "RTX 3090 Ti": 80.0,
    "RTX 3090": 71.0,
    "RTX 3080 Ti": 68.2,
    "RTX 3080": 59.5,
    "RTX 3070 Ti": 43.5,
    "RTX 3070": 40.6,
    "RTX 3060 Ti": 32.4,
    "RTX 3060": 25.5,
    "RTX 2080 Ti": 53.8,
    "RTX A6000": 154.8,
    "Tesla T4": 65.0,
    "A100": 312.0,
    "H100": 989.0,
    "H200": 989.0,
}
"""Dense tensor rates in 10¹² operations a second, 16-bit with 32-bit sums: NVIDIA's architecture white papers (Turing,
GA102, Ada, Blackwell) and data sheets. Laptop cards share names with other chips and are left out."""
OTHER_CHIPS = ("laptop", "mobile", "max-q", "super")
"""Words that mark another chip under the same number."""


@dataclass(frozen=True)
class TimeEstimate:
    """Seconds (low, high) of a whole run, or None; ``basis`` says on what they rest."""

    seconds: tuple[float, float] | None
    basis: str


def run_seconds(
    work: Work, rows: Rows, steps_tokens: float, machine: Machine, measured_tokens_per_second: float | None
) -> TimeEstimate:
    """Seconds for ``steps_tokens`` tokens of training."""
    if not steps_tokens:
        return TimeEstimate(None, "the data is not read yet")
    if measured_tokens_per_second:
        middle = steps_tokens / measured_tokens_per_second
        return TimeEstimate(
            (middle * (1 - MEASURED_SPREAD), middle * (1 + MEASURED_SPREAD)), "measured on this machine"
        )
    rate = published_rate(machine.gpu.name) if machine.gpu else None
    if machine.gpu is None or rate is None:
        device = machine.gpu.name if machine.gpu else "this machine's CPU"
        return TimeEstimate(None, f"no speed known for {device} yet; the first steps will tell")
    fastest = steps_tokens * operations_per_token(work, rows.mean) / rate
    return TimeEstimate(
        (fastest / SHARE_HIGH, fastest / SHARE_LOW),
        f"estimated, not measured: {SHARE_LOW:.0%} to {SHARE_HIGH:.0%} of the card's published speed",
    )


def operations_per_token(work: Work, row_tokens: float) -> float:
    """Operations for one token of a row of this length, forward and backward."""
    shape = work.shape
    head = shape.vocab_size * shape.hidden_size
    queries = shape.num_attention_heads * shape.head_dim
    left_out = shape.hidden_size * shape.intermediate_size * shape.num_hidden_layers if work.fast else 0
    recomputed = 1 - kept_of(work) / shape.num_hidden_layers
    again = recomputed * 2 * (shape.linear_parameters - left_out)
    attention = 7 * row_tokens * queries * shape.num_hidden_layers
    return 4 * (shape.linear_parameters + head) + again + 6 * adapter_parameters(work) + attention


def published_rate(card: str) -> float | None:
    """Operations a second of a card by its name as the driver says it, or None."""
    lowered = card.lower()
    if any(word in lowered for word in OTHER_CHIPS):
        return None
    matching = [name for name in RATES_TERA if name.lower() in lowered]
    return RATES_TERA[max(matching, key=len)] * TERA if matching else None
