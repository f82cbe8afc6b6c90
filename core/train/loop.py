"""What happens around the steps: safe points, evaluations, checkpoints and events.

    step_begins ─► (safe point, micro-batch)* ─► batch_done ─► the optimiser's step ─► step_done ─► evaluate? save?

At a safe point the adapter is as the last whole step left it, so a checkpoint there is exact. Random numbers follow
from (seed, step) alone, so evaluations and restarts between steps change nothing.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from core.contract.commands import Command
from core.contract.config import RunConfig
from core.contract.errors import MachineError
from core.contract.events import CardStep, Evaluation, Step
from core.machine.hardware import GpuReading
from core.runs.record.outcome import Measure, measure_of
from core.train.channel.channel import DISK_FULL, Channel
from core.train.channel.meter import Meter, peak_bytes
from core.train.evaluate.held_out import HeldOut
from core.train.evaluate.sample import Timeline
from core.train.keep.saver import Saver
from core.train.safety.guard import Guard
from core.train.step.rows import Rows


@dataclass
class Loop:
    """One attempt at a run, told of its steps by the trainer.

    ``answer`` puts a command's question to the model. Without ``saver`` (a bench, a probe) nothing is kept.
    """

    config: RunConfig
    trainer: Any
    held_out: Rows
    channel: Channel
    meter: Meter
    guard: Guard
    saver: Saver | None
    timeline: Timeline
    answer: Callable[[Command], None]
    _batch: dict[str, Any] = field(default_factory=dict, init=False)
    _measured: Measure | None = field(default=None, init=False)
    _stepped: bool = field(default=False, init=False)
    _saved_step: int = field(default=-1, init=False)

    def __post_init__(self) -> None:
        self.reporter, self.total_steps = self.channel.reporter, int(self.trainer.args.max_steps)
        self._measure = HeldOut(self.trainer, self.held_out, self.reporter, self.safe_point)
        self._saved_at = time.monotonic()

    @property
    def step(self) -> int:
        """Whole steps done."""
        return int(self.trainer.step)

    def step_begins(self, step: int) -> None:
        """Before the first micro-batch of a batch."""
        if not self._stepped:
            text = f"Step {step}: the first takes longer."
            self.reporter.stage("first_step", text, step - 1, self.total_steps, "steps")
            self.meter.restart()
        seed = (self.config.train.seed * 1_000_003 + step) % 2**63
        torch.default_generator.manual_seed(seed)  # torch.manual_seed looks for every kind of device there may be
        if (device := self.trainer.args.device).type == "cuda":
            torch.cuda.default_generators[device.index or 0].manual_seed(seed)

    def safe_point(self) -> None:
        """Obeys waiting commands, saves where ``save_minutes`` are over, and waits for a full disk to take the log.

        Raises:
            Leave: pause or stop.
        """
        self.channel.commands.check()
        self.obey()
        if self.channel.log_is_behind or self._time_is_up():
            with self.meter.aside(), self.reporter.aside():
                self.channel.catch_up()
                if self._time_is_up():
                    self.save()
        self.channel.commands.check()

    def obey(self) -> None:
        """Does every save and sample that waits, outside the step's time."""
        while command := self.channel.commands.take():
            with self.meter.aside(), self.reporter.aside():
                if command.verb == "save":
                    self.save(asked=True)
                elif command.verb == "sample":
                    self.answer(command)

    def shares_changed(self, words: str) -> None:
        """Once: unlike cards have shares by their speed from the next step on."""
        self.reporter.note(
            "cards.shares", f"From here on the cards have {words} of each step, by their measured speed."
        )

    def batch_done(self, batch: Sequence[int], loss: float) -> None:
        """After the last micro-batch: keeps what the step's event will say."""
        good = not self.guard.bad
        self._batch = {
            "loss": loss if good else None,
            "tokens": sum(self.trainer.rows.tokens(row, self.trainer.packed) for row in batch),
            "learning_rate": self.trainer.lr_scheduler.get_last_lr()[0],
            "good": good,
            "measured": _finite(self.trainer.measured) if good else {},
        }

    def step_done(self, grad_norm: float) -> None:
        """After the optimiser's step: its event, then what is due."""
        self.reporter.step = self.step
        self._say_step(grad_norm)
        self._stepped = True
        train, improved = self.config.train, False
        if self.step < self.total_steps:
            if train.eval_steps and self.step % train.eval_steps == 0:
                improved = self.evaluate()
            due = self._time_is_up() or (bool(train.save_steps) and self.step % train.save_steps == 0)
            # Not while numbers are bad: an older, better checkpoint would be pruned.
            if improved or (due and not self.guard.bad):
                self.save()
        self.reporter.stage("training", "", self.step, self.total_steps, "steps")
        self.meter.restart()

    def finish(self) -> None:
        """After the last step: the last evaluation and the last checkpoint."""
        self.reporter.step = self.step
        self.evaluate()
        self.save()
        self.obey()
        self.channel.catch_up()

    def evaluate(self) -> bool:
        """Measures the held-out rows and asks the timeline; True where a checkpoint of this step would be the best."""
        if not len(self.held_out) or (self._measured and self._measured.step == self.step):
            return False
        begun = time.perf_counter()
        loss = self._measure.loss()
        seconds = time.perf_counter() - begun
        rows = range(len(self.held_out))
        tokens = sum(self.held_out.trained(row) for row in rows)
        finite = loss if math.isfinite(loss) else None
        more = _finite(self._measure.measured)
        by = next((name for name in self.config.learning.best_by if name in more), "")
        told = Evaluation(
            step=self.step, loss=finite, rows=len(rows), tokens=tokens, seconds=seconds, best_by=by, **more
        )
        self.reporter.say(told)
        self.timeline.ask(self.step, last=self.step >= self.total_steps)
        if (measured := measure_of(finite, self.step, by, more.get(by))) is None:
            return False
        self._measured = measured
        if (saver := self.saver) is None:
            return False
        improved = self.step > 0 and saver.is_best(measured)
        # a checkpoint of this step may have been saved during the evaluation
        self.channel.until_disk_takes(lambda: saver.measured(measured))
        return improved

    def save(self, asked: bool = False) -> None:
        """Saves the last whole step, unless it is saved already; ``asked``: says so either way. A full disk is waited
        out.

        Raises:
            Leave: somebody asked to pause or stop meanwhile.
        """
        self.channel.until_disk_takes(lambda: self._save(asked))

    def leave(self) -> bool:
        """Saves before the process ends, without waiting for disk space; whether this step is saved."""
        if not self.step:
            return False
        try:
            self._save()
        except MachineError as error:
            if error.code not in DISK_FULL:
                raise
            hint = "Make room on this disk; the run goes on from the checkpoint before."
            self.reporter.note("checkpoint.no_room", f"Step {self.step} could not be saved. {error.message}", hint)
            return False
        return True

    def _save(self, asked: bool = False) -> None:
        self.reporter.stage("saving", f"Step {self.step}")
        measured = self._measured if self._measured and self._measured.step == self.step else None
        if self.saver is not None:
            self.saver.save(self.step, measured, asked, prune=not self.guard.bad)
        self._saved_at, self._saved_step = time.monotonic(), self.step

    def _time_is_up(self) -> bool:
        """Whether ``save_minutes`` have passed since the last save."""
        minutes = self.config.train.save_minutes
        late = minutes > 0 and time.monotonic() - self._saved_at >= 60 * minutes
        return late and self.step > max(0, self._saved_step) and not self.guard.bad

    def _say_step(self, grad_norm: float) -> None:
        batch, lap, card = self._batch, self.meter.lap(self._batch["tokens"]), self.meter.card
        memory, reserved = peak_bytes(self.trainer.args.device)
        self.reporter.say(
            Step(
                step=self.step,
                epoch=self.step / len(self.trainer.sampler),
                loss=batch["loss"],
                learning_rate=batch["learning_rate"],
                grad_norm=grad_norm if batch["good"] and math.isfinite(grad_norm) else None,
                tokens=lap.tokens,
                seconds=lap.seconds,
                tokens_per_second=lap.tokens_per_second,
                memory_bytes=memory,
                reserved_bytes=reserved,
                card_used_bytes=card.used_bytes,
                gpu_load=card.load,
                power_watts=card.power_watts,
                temperature_celsius=card.temperature_celsius,
                cards=self._cards(),
                **batch["measured"],
            )
        )

    def _cards(self) -> tuple[CardStep, ...]:
        """What each rank said of its memory in this step's sums, with its card's own reading where that is known."""
        known = (self.meter.card, *self.meter.others)
        readings = [*known, *[GpuReading()] * (len(self.trainer.at_ranks) - len(known))]
        return tuple(
            CardStep(
                memory_bytes=at.memory_bytes,
                reserved_bytes=at.reserved_bytes or None,
                card_used_bytes=card.used_bytes,
                gpu_load=card.load,
                power_watts=card.power_watts,
                temperature_celsius=card.temperature_celsius,
            )
            for at, card in zip(self.trainer.at_ranks, readings, strict=False)
        )


def _finite(measured: dict[str, Any]) -> dict[str, Any]:
    """Numbers that are none are not known."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in measured.items()
    }
