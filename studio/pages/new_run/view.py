"""One state of New run: what is chosen, and what is known of it."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.contract.catalogue import ModelSpec
from core.contract.config import DataChoice, RunConfig
from core.contract.data import Checkup, DataFacts, DataReport, Finding
from core.contract.errors import Fault, MachineError
from core.contract.estimate import Advice, Estimate, Probe, Resolved, Suggestion
from core.contract.methods import METHODS, Method
from core.contract.rows import RoleGuess
from core.contract.tasks import Outputs
from core.estimate.by_fit import Proposal
from core.estimate.suggest import CardChoice
from core.machine.hardware import Machine
from core.machine.settings import Settings
from studio.services.session import Before, home_written_out, sample_of
from studio.services.standing import Standing, every_setting

_ASKS = ("data.columns", "data.column_twice")
"""Codes of faults that a word about the columns mends."""


@dataclass(frozen=True)
class View:
    """One state of the page. What is not known yet is None; ``waiting``: it is being looked up."""

    config: RunConfig
    machine: Machine
    spec: ModelSpec | None = None
    report: DataReport | None = None
    guess: RoleGuess | None = None
    """What the columns seem to be, where the file is of no layout that is known."""
    outputs: Outputs | None = None
    """The scores that a model of these rows gives, where it gives scores."""
    facts: DataFacts | None = None
    figures: Estimate | None = None
    resolved: tuple[Resolved, ...] = ()
    model_fault: Fault | None = None
    data_fault: Fault | None = None
    form_fault: Fault | None = None
    waiting: bool = False
    checkup: Checkup | Fault | None = None
    probe: Probe | Fault | None = None
    fit: tuple[Suggestion, ...] = ()
    room: tuple[Suggestion, ...] = ()
    advice: tuple[Advice, ...] = ()
    progress: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Progress of long work, by its kind: check, count, examine, probe, make."""
    proposal: Proposal | None = None
    own: frozenset[str] = frozenset()
    """The settings that a person set."""
    standing: Standing | None = None
    """What is proposed for all settings."""
    before: Before | None = None
    """The choices that these replaced in the draft."""
    settings: Settings = field(default_factory=Settings)
    """Those of the whole studio."""
    card_taken: bool = False
    """Whether a run holds one of the chosen cards, or waits for it."""
    held: frozenset[int] = frozenset()
    """Numbers of all cards that runs hold."""
    choices: tuple[CardChoice, ...] = ()
    """What the run would need on which of several cards."""
    source: str = ""
    """The untouched file that a data set with a person's changes was made from; "" where the file is untouched."""
    made_from: str = ""
    """The file that a made data set was made from, where it still exists."""

    @property
    def job(self) -> Machine:
        """The machine with the cards that are chosen; as it is where one of them is not there."""
        with suppress(MachineError):
            return self.machine.choosing(self.config.train.cards)
        return self.machine

    @property
    def looked_at(self) -> bool:
        """Whether model and file, or their faults, are known."""
        file = self.report or self.data_fault or not self.config.data.path
        return bool(file and (self.spec or self.model_fault))

    @property
    def unmapped(self) -> bool:
        """Whether the file has rows, of which nobody has said yet what their columns are."""
        asks = self.data_fault is not None and self.data_fault.code in _ASKS
        return self.report is None and self.guess is not None and asks

    @property
    def readable(self) -> bool:
        """Whether there are rows to show and a model for them."""
        return self.spec is not None and self.report is not None and self.report.usable > 0

    @property
    def measurable(self) -> bool:
        """Whether all rows are known, so that they can be counted and examined."""
        return self.readable and self.report is not None and self.report.complete

    @property
    def trained(self) -> RunConfig:
        """The config as it would be trained: an automatic method is that of the data."""
        return self.config.with_method(self.report.method) if self.report else self.config

    @property
    def method(self) -> Method:
        """How the rows are trained."""
        return self.trained.trained_method

    @property
    def lacks_rows(self) -> bool:
        """Whether the chosen method needs other rows."""
        return self.report is not None and not METHODS[self.method].takes(self.report.layout)

    @property
    def unsettled(self) -> bool:
        """Whether settings are about to follow a file of one's own: it is being read, or its tokens are counted for the
        first time. They followed what a set of changed rows was made from."""
        path = self.config.data.path
        if self.facts or self.data_fault or self.model_fault or sample_of(path) or self.source or self.made_from:
            return False
        followed = self.standing is not None and self.standing.is_for(path)
        return not followed and not every_setting(self.config) <= self.own

    def finding(self, code: str) -> Finding | None:
        """The doctor's finding of this code."""
        findings = self.checkup.findings if isinstance(self.checkup, Checkup) else ()
        return next((finding for finding in findings if finding.code == code), None)


def path_of(data: DataChoice) -> Path:
    """The chosen file, with a home written out."""
    return Path(home_written_out(data.path))
