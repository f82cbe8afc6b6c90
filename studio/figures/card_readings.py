"""What the watch page says of the card: speed against what it could do, memory against the forecast, and its state.

The share of the card is counted work over the rate that its maker publishes (``core.estimate.inputs.cards``)::

    share = tokens a second · operations a token / published operations a second

of the middle of the last steps. Nothing published, nothing counted, or no step yet: "–". Other cards of the same name
may run at other clocks; the share says how near the arithmetic is to the paper, and not how good a run is.
"""

from statistics import median

from core.contract.events import Step
from core.estimate.inputs.cards import published
from core.runs.record.job_record import RunRecord
from studio.words.text import say

LAST = 20
"""So many steps are looked at: one alone may hold a stutter."""


def card_share(record: RunRecord) -> float | None:
    """What of the card's published 16-bit rate the run's counted work takes; None where either is unknown."""
    predicted = record.plan.predicted if record.plan else None
    card = published(predicted.card) if predicted else None
    rates = [rate for step in record.steps[-LAST:] if (rate := step.tokens_per_second)]
    if predicted is None or card is None or not rates or predicted.operations <= 0:
        return None
    return median(rates) * predicted.operations / card.operations


def speed_words(record: RunRecord) -> str:
    """ "1,234 tok/s, 65 % of what this card can do"; without the share where it is unknown, empty without a speed."""
    rate = record.steps[-1].tokens_per_second if record.steps else None
    if not rate:
        return ""
    share = card_share(record)
    now = f"{rate:,.0f} tok/s"
    return now if share is None else say("speed.share", now=now, share=f"{100 * share:.0f} %")


def forecast_bytes(record: RunRecord) -> int:
    """The memory that was planned, in the terms of what is measured; 0 where nothing was."""
    last, plan = (record.steps[-1] if record.steps else None), record.plan
    if plan is None:
        return 0
    if last is not None and last.reserved_bytes is not None and plan.predicted:
        return plan.predicted.predicted_bytes  # tensors against tensors
    return plan.estimated_bytes


def card_state(last: Step | None) -> str:
    """ "97 % busy, 67 °C, 212 W": what of it is known; empty where nothing is."""
    if last is None:
        return ""
    known = (
        ("card.busy", None if last.gpu_load is None else f"{100 * last.gpu_load:.0f}"),
        ("card.warm", None if last.temperature_celsius is None else f"{last.temperature_celsius:.0f}"),
        ("card.power", None if last.power_watts is None else f"{last.power_watts:.0f}"),
    )
    return ", ".join(say(key, value=value) for key, value in known if value is not None)
