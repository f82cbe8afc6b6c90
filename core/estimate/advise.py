"""ADVICE: a word on a setting from the data at hand, each with its reason in a line."""

from __future__ import annotations

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts, DataReport
from core.contract.doctor import Checkup
from core.contract.estimate import Advice

__all__ = ["advise"]


def advise(
    config: RunConfig, spec: ModelSpec, facts: DataFacts | None, report: DataReport | None, checkup: Checkup | None
) -> tuple[Advice, ...]:
    """What the data says about the settings, the most important first; empty where there is nothing to say."""
    found = []
    rows = facts.rows if facts else report.usable if report else 0
    if 0 < rows < 1000 and config.train.num_train_epochs > 3:
        text = (
            f"{rows:,} rows seen {config.train.num_train_epochs:g} times are soon learned by heart; 3 times are enough."
        )
        found.append(Advice(code="epochs", level="warning", text=text, changes={"train.num_train_epochs": "3"}))
    return tuple(found)
