"""What happens around the steps: seams, measures, evaluations, checkpoints, and the words for all of it.

    step_begins ─► (seam, pass)* ─► window_done ─► the Trainer's optimiser step ─► step_done ─► evaluate? save?

At a seam the adapter is as the last whole step left it, so a checkpoint, a sample or a leave there is exact: half a
window leaves nothing behind but gradients. Random numbers follow from (seed, step) alone, so neither an evaluation nor
a restart between two steps can change the second.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from core.contract.config import RunConfig
from core.contract.errors import MachineError
from core.contract.events import Evaluation, Step
from core.train.channel.command_queue import CommandQueue
from core.train.channel.disk_full import FULL, Room
from core.train.channel.meter import CardWatch, Clock, peak_bytes
from core.train.channel.reporter import EventReporter
from core.train.evaluate.held_out import HeldOut
from core.train.evaluate.sample import Laid, answer
from core.train.evaluate.timeline import Timeline
from core.train.keep.saver import Saver
from core.train.safety.guard import Guard
from core.train.step.batch_sampler import BatchSampler
from core.train.step.mixin import Rows

__all__ = ["Loop"]


class Loop:
    """One attempt at one run. The trainer calls it, and it calls nothing of the trainer but losses."""

    def __init__(
        self,
        config: RunConfig,
        trainer: Any,
        rows: Rows,
        held_out: Rows,
        talk: tuple[EventReporter, CommandQueue],
        saver: Saver,
    ) -> None:
        self.config, self.trainer, self.rows, self.held_out, self.saver = config, trainer, rows, held_out, saver
        self.tell, self.orders = talk
        self.total_steps = int(trainer.args.max_steps)
        self.feed = BatchSampler(
            len(rows), config.rows_per_step, config.train.seed, self.total_steps, lambda: self.step
        )
        self.timeline = Timeline(config, held_out, saver, talk)
        self.guard = Guard(self.tell)
        self.clock = Clock()
        self.card = CardWatch("")
        self.lap: tuple[int, float] = (0, 0.0)
        """Real tokens of the last step, and its seconds."""
        self._measure = HeldOut(trainer, held_out, self.tell, self.seam)
        self._window: dict[str, Any] = {}
        self._eval_loss: tuple[int, float] | None = None
        self._stepped = False
        self.room = Room(*talk)
        self._saved_at, self._saved_step = time.monotonic(), -1

    @property
    def step(self) -> int:
        """Whole steps done."""
        return int(self.trainer.state.global_step)

    def step_begins(self, step: int) -> None:
        """Before the first pass of a window."""
        if not self._stepped:
            self.tell.stage("first_step", f"Step {step}: the first takes longer.", step - 1, self.total_steps, "steps")
            self.clock.restart()
        seed = (self.config.train.seed * 1_000_003 + step) % 2**63
        torch.default_generator.manual_seed(seed)  # torch.manual_seed looks for every kind of device there may be
        if (device := self.trainer.args.device).type == "cuda":
            torch.cuda.default_generators[device.index or 0].manual_seed(seed)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is done meanwhile is no part of the step: its time does not count, and what went on before goes on after
        it. (A stall is judged by the stage that was said last: after a wait there would be none for ever.)"""
        before = self.tell.at
        with self.clock.aside():
            yield
        self.tell.again(before)

    def seam(self) -> None:
        """Obeys what was asked meanwhile; saves where it is time, waits where the log does not take our words.

        Raises:
            Leave: pause or stop.
        """
        self.orders.check()
        self.obey()
        if self.room.log_is_behind or self._time_is_up():
            with self.aside():
                self.room.catch_up()
                if self._time_is_up():
                    self.save()
        self.orders.check()

    def obey(self) -> None:
        """Does every save and sample that waits; none of it counts as the step's time."""
        while command := self.orders.take():
            with self.aside():
                if command.verb == "save":
                    self.save(asked=True)
                elif command.verb == "sample":
                    saver, laid = self.saver, Laid(self.config.data, self.config.train.max_length)
                    answer(saver.peft_model, saver.tokenizer, command, self.tell, self.orders, laid)

    def next_window(self) -> list[int] | None:
        """The rows of the step after the one that is being computed; None where it is the last."""
        return self.feed.after(self.step + 1)

    def window_done(self, window: Sequence[int], loss: float) -> None:
        """After the last pass: what the window's gradients were computed from."""
        rate = self.trainer.lr_scheduler.get_last_lr()[0]
        tokens = sum(self.rows.tokens(row) for row in window)
        good = not self.guard.bad
        measured = _finite(self.trainer.measured) if good else {}
        self._window = {"loss": loss if good else None, "tokens": tokens, "learning_rate": rate, "good": good}
        self._window["measured"] = measured

    def step_done(self, grad_norm: float) -> None:
        """After the optimiser's step: its event, then what is due."""
        self.tell.step = self.step
        self._say_step(grad_norm)
        self._stepped = True
        last = self.step >= self.total_steps
        improved = False
        every = self.config.train.eval_steps
        if not last and every and self.step % every == 0:
            improved = self.evaluate()
        if not last and (improved or self._save_is_due()):
            self.save()
        self.tell.stage("training", "", self.step, self.total_steps, "steps")
        self.clock.restart()

    def finish(self) -> None:
        """After the last step: the last evaluation and the last checkpoint."""
        self.tell.step = self.step
        self.evaluate()
        self.save()
        self.obey()

    def evaluate(self) -> bool:
        """Measures the held-out loss at the present step; True where it is the lowest of the run so far."""
        if not len(self.held_out) or (self._eval_loss and self._eval_loss[0] == self.step):
            return False
        begun = time.perf_counter()
        loss = self._measure.loss()
        seconds = time.perf_counter() - begun
        rows = range(len(self.held_out))
        tokens = sum(self.held_out.trained(row) for row in rows)
        finite = loss if math.isfinite(loss) else None
        more = _finite(self._measure.measured)
        self.tell.say(Evaluation(step=self.step, loss=finite, rows=len(rows), tokens=tokens, seconds=seconds, **more))
        self.timeline.ask(self.step, last=self.step >= self.total_steps)
        if finite is None:
            return False
        self._eval_loss = (self.step, finite)
        improved = self.step > 0 and self.saver.is_best(finite)
        self.room.until(lambda: self.saver.measured(self.step, finite))  # one that was saved while this went on
        return improved

    def save(self, asked: bool = False) -> None:
        """A checkpoint of the last whole step, unless it stands already; who ``asked`` is told either way.

        A full disk is waited out.

        Raises:
            Leave: somebody asked to pause or stop meanwhile.
        """
        self.room.until(lambda: self._save(asked))

    def leave(self) -> bool:
        """Saves before the process ends, without waiting for anything; whether a checkpoint of this step stands."""
        if not self.step:
            return False
        try:
            self._save()
        except MachineError as error:
            if error.code not in FULL:
                raise
            hint = "Make room on this disk; the run goes on from the checkpoint before."
            self.tell.note("checkpoint.no_room", f"Step {self.step} could not be saved. {error.message}", hint)
            return False
        return True

    def _save(self, asked: bool = False) -> None:
        self.tell.stage("saving", f"Step {self.step}")
        measured = self._eval_loss[1] if self._eval_loss and self._eval_loss[0] == self.step else None
        self.saver.save(self.step, measured, asked, prune=not self.guard.bad)
        self._saved_at, self._saved_step = time.monotonic(), self.step

    def _save_is_due(self) -> bool:
        """Between steps. While numbers are bad, nothing new is worth a checkpoint that an older one gives way to."""
        every = self.config.train.save_steps
        return not self.guard.bad and ((bool(every) and self.step % every == 0) or self._time_is_up())

    def _time_is_up(self) -> bool:
        """Whether work of so many minutes would be lost, also in the middle of an evaluation or a long step."""
        minutes = self.config.train.save_minutes
        late = minutes > 0 and time.monotonic() - self._saved_at >= 60 * minutes
        return late and self.step > max(0, self._saved_step) and not self.guard.bad

    def _say_step(self, grad_norm: float) -> None:
        window, seconds = self._window, self.clock.lap()
        self.lap = (window["tokens"], seconds)
        memory, reserved = peak_bytes(self.trainer.args.device)
        card = self.card.reading
        self.tell.say(
            Step(
                step=self.step,
                epoch=self.feed.epoch_at(self.step),
                loss=window["loss"],
                learning_rate=window["learning_rate"],
                grad_norm=grad_norm if window["good"] and math.isfinite(grad_norm) else None,
                tokens=window["tokens"],
                seconds=seconds,
                tokens_per_second=window["tokens"] / seconds if seconds > 0 else None,
                memory_bytes=memory,
                reserved_bytes=reserved,
                card_used_bytes=card.used_bytes,
                gpu_load=card.load,
                power_watts=card.power_watts,
                temperature_celsius=card.temperature_celsius,
                **window["measured"],
            )
        )


def _finite(measured: dict[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in measured.items()}
