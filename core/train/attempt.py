"""One attempt at a training: its objects, built in the order in which they need each other.

trainer ─► meter ─► guard ─► saver ─► recovery ─► loop ─► trainer.train_under(loop, recovery)
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from core.contract.config import RunConfig
from core.machine.hardware import Machine, read_machine
from core.runs.folder.job_folder import JobFolder
from core.runs.record.job_record import RunRecord
from core.runs.record.outcome import measured_at
from core.train.channel.channel import Channel
from core.train.channel.meter import Meter
from core.train.channel.reporter import EventReporter
from core.train.evaluate.sample import Laid, Timeline, answer
from core.train.keep.saver import Saver
from core.train.loop import Loop
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
    """Once optimiser and scheduler exist: restores the checkpoint, or measures the base model."""

    def __init__(self, loop: Loop, saver: Saver, start: Path | None) -> None:
        self._loop, self._saver, self._start = loop, saver, start

    def on_train_begin(self, _args: Any, state: Any, *_control: Any, **_objects: Any) -> None:
        """Called by the Trainer before its first batch."""
        loop, start = self._loop, self._start
        if start:
            state.global_step = self._saver.restore(start)
        loop.reporter.step = loop.step
        every = loop.config.train.eval_steps
        if loop.step == 0 or (start and every and loop.step % every == 0 and measured_at(start) is None):
            loop.evaluate()


def _meter(trainer: Any, machine: Machine) -> Meter:
    card = machine.gpu if trainer.args.device.type == "cuda" else None
    return Meter(card.uuid if card else "")


def _loop(subject: Subject, channel: Channel, meter: Meter, guard: Guard, saver: Saver | None) -> Loop:
    config, trained, tokenizer = subject.config, subject.trainer.trained, subject.tokenizer
    timeline = Timeline(config, subject.held_out, trained, tokenizer, channel)
    reply = partial(answer, trained, tokenizer, Laid.of(config, trained), channel)
    return Loop(config, subject.trainer, subject.held_out, channel, meter, guard, saver, timeline, reply)
