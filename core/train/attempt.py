"""One attempt at a training: its objects, built in the order in which they need each other.

trainer ─► meter ─► guard ─► saver ─► recovery ─► loop ─► trainer.train_under(loop, recovery)
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from transformers import TrainerCallback

from core.contract.config import RunConfig
from core.machine.hardware import Machine, read_machine
from core.models.suited import put
from core.runs.folder.job_folder import JobFolder
from core.runs.ranks.start import cards_here
from core.runs.record.job_record import RunRecord
from core.runs.record.outcome import measured_at
from core.train.channel.channel import Channel
from core.train.channel.meter import Meter
from core.train.channel.reporter import EventReporter
from core.train.evaluate.sample import Laid, Timeline, answer
from core.train.keep.saver import Saver
from core.train.loop import Loop
from core.train.ranks.group import Told
from core.train.ranks.pace import kind_of
from core.train.ranks.state import hand_on
from core.train.safety.guard import Guard, rows_at_fault, turn_back
from core.train.safety.oom_recovery import OomRecovery
from core.train.step.rows import Rows


@dataclass(frozen=True)
class Subject:
    """What is trained and measured: a trainer over its rows, and the rows that are held out."""

    config: RunConfig
    trainer: Any
    tokenizer: Any
    held_out: Rows
    numbers: Sequence[int] = ()
    """Number in the user's file of each row to train on."""


@dataclass(frozen=True)
class Begun:
    """Where a run stands when an attempt begins: its log, and the checkpoint that it resumes from."""

    folder: JobFolder
    record: RunRecord
    checkpoint: Path | None
    position: dict[str, Any]
    at: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        """Duration of this and all earlier attempts."""
        return float(self.position.get("seconds", 0.0)) + time.monotonic() - self.at


@dataclass(frozen=True)
class Attempt:
    """A training that may start."""

    trainer: Any
    meter: Meter
    recovery: OomRecovery | None
    loop: Loop

    @classmethod
    def of_run(cls, subject: Subject, channel: Channel, begun: Begun, depends: dict[str, Any]) -> Attempt:
        """An attempt at a run, with checkpoints and out-of-memory recovery; ``depends`` is for the manifests."""
        config, trainer, reporter = subject.config, subject.trainer, channel.reporter
        machine = read_machine()
        meter = _meter(trainer, machine)
        guard = Guard(
            reporter,
            list(begun.position.get("bad", [])),
            int(begun.position.get("overflows", 0)),
            partial(rows_at_fault, trainer, subject.numbers),
            partial(turn_back, begun.folder, begun.record, config.train.learning_rate, reporter),
        )

        def position() -> dict[str, Any]:
            return {
                "seed": config.train.seed,
                "rows_per_step": config.rows_per_step,
                "tokens_per_pass": trainer.tokens_per_pass,
                "learning_rate": config.train.learning_rate,
                "bad": guard.bad,
                "overflows": guard.overflows,
                "seconds": round(begun.seconds(), 1),
            }

        saver = Saver(
            begun.folder, begun.record, trainer, reporter, {"depends": depends}, position, config.learns.folder
        )
        spills = trainer.args.device.type == "cuda" and machine.wsl
        recovery = OomRecovery(trainer, config, channel, meter, spills)
        loop = _loop(subject, channel, meter, guard, saver)
        trainer.add_callback(_Beginning(loop, saver, begun.checkpoint))
        return cls(trainer, meter, recovery, loop)

    @classmethod
    def of_rank(cls, subject: Subject, channel: Channel, told: Told) -> Attempt:
        """An attempt at a run by a rank beside rank 0, which restores, saves, asks and says for all."""
        trainer, machine = subject.trainer, read_machine()
        meter = _meter(trainer, machine)
        guard = Guard(channel.reporter, list(told.bad), told.overflows, turn_back=_wait_for_the_first)
        spills = trainer.args.device.type == "cuda" and machine.wsl
        recovery = OomRecovery(trainer, subject.config, channel, meter, spills)
        loop = _loop(replace(subject, config=put(subject.config, "train.sample_rows", 0)), channel, meter, guard, None)
        trainer.add_callback(_Beginning(loop, None, None))
        return cls(trainer, meter, recovery, loop)

    @classmethod
    def unsteered(cls, subject: Subject, reporter: EventReporter) -> Attempt:
        """An attempt without commands, checkpoints or recovery: a bench's or a probe's."""
        meter = _meter(subject.trainer, read_machine())
        loop = _loop(subject, Channel.unsteered(reporter), meter, Guard(reporter), None)
        return cls(subject.trainer, meter, None, loop)

    def train(self) -> None:
        """Trains to the last step.

        Raises:
            Leave: somebody asked to pause or stop.
        """
        with self.meter:
            self.trainer.train_under(self.loop, self.recovery)


class _Beginning(TrainerCallback):
    """Once optimiser and scheduler exist: restores the checkpoint, hands it on, or measures the base model."""

    def __init__(self, loop: Loop, saver: Saver | None, start: Path | None) -> None:
        self._loop, self._saver, self._start = loop, saver, start

    def on_train_begin(self, _args: Any, state: Any, *_control: Any, **_objects: Any) -> None:
        """Called by the Trainer before its first batch."""
        loop, start, trainer = self._loop, self._start, self._loop.trainer
        if start and self._saver:
            state.global_step = self._saver.restore(start)
        state.global_step = hand_on(trainer, loop.step)
        trainer.paces.meet(kind_of(trainer.args.device))
        loop.reporter.step = loop.step
        every = loop.config.train.eval_steps
        unmeasured = start and every and loop.step % every == 0 and measured_at(start) is None
        if trainer.ranks.told(loop.step == 0 or bool(unmeasured)):
            loop.evaluate()


def _wait_for_the_first(_bad: Sequence[int], _what: str) -> None:
    """Rank 0 turns back, which ends this process."""
    Event().wait()


def _meter(trainer: Any, machine: Machine) -> Meter:
    card = machine.gpu if trainer.args.device.type == "cuda" else None
    return Meter(card.uuid if card else "", cards_here(os.environ).ids[1:] if trainer.ranks.first else ())


def _loop(subject: Subject, channel: Channel, meter: Meter, guard: Guard, saver: Saver | None) -> Loop:
    config, trained, tokenizer = subject.config, subject.trainer.trained, subject.tokenizer
    timeline = Timeline(config, subject.held_out, trained, tokenizer, channel)
    reply = partial(answer, trained, tokenizer, Laid.of(config, trained), channel)
    return Loop(config, subject.trainer, subject.held_out, channel, meter, guard, saver, timeline, reply)
