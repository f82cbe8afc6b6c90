"""Answers on the way, as the watch page shows them: a question, the base's answer, and each measurement's beside it."""

from typing import Any

from core.contract.events import Sample
from core.runs.record.job_record import RunRecord
from studio.figures.run_figures import duration
from studio.pages.watch.words import say

PREFIX = "way-"
KEPT = 60
"""So many measurements are shown of one question; a longer run shows the first, the last, and every so many between."""


def answers_on_the_way(record: RunRecord) -> list[dict[str, Any]]:
    """One entry a question, in their order; the newest answer first. An attempt that went back drops what it redid."""
    asked: dict[str, list[Sample]] = {}
    for sample in record.samples:
        if sample.command_id.startswith(PREFIX):
            kept = asked.setdefault(sample.command_id, [])
            while kept and kept[-1].step >= sample.step:
                kept.pop()
            kept.append(sample)
    return [_shown(samples) for _, samples in sorted(asked.items())]


def _shown(samples: list[Sample]) -> dict[str, Any]:
    last = samples[-1]
    stride = -(-len(samples) // KEPT)
    kept = [one for at, one in enumerate(samples) if at % stride == 0 or at == len(samples) - 1]
    answers = [
        (say("way.step", step=f"{sample.step:,}") if sample.side == "tuned" else say("way.base"), sample.text)
        for sample in reversed(kept)
    ]
    slowest = max(sample.seconds for sample in samples)
    cost = say("way.cost", time=duration(slowest) if slowest >= 1 else f"{slowest:.1f} s") if slowest else ""
    return {"prompt": last.prompt, "right": last.right, "answers": answers, "cost": cost}
