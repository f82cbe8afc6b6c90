"""What a checkpoint holds of a run, and how a run resumes from it, bit for bit.

    adapter/        peft's format, or model/        optimizer.*   moments, 8-bit ones with their maps
    scheduler.json  the learning rate's schedule    scaler.json   float16's loss scale
    method.*        log-probabilities under the reference, of methods that compare with one
    position.json   seed, step, rows per step, tokens per micro-batch, learning rate, bad steps in a row

No data iterator and no random state: both follow from (seed, step).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.contract.errors import RunError
from core.contract.events import Checkpoint
from core.machine.disk import folder_bytes
from core.runs.folder.job_folder import JobFolder
from core.runs.record.job_record import RunRecord
from core.runs.record.outcome import Measure, best, measured_at, measures, standing
from core.train.channel.reporter import EventReporter
from core.train.keep import checkpoint
from core.train.keep.depends import differences
from core.train.keep.state import load_state, save_state
from core.train.safety.memory import asked_optimiser, saved_once_more, state_bytes
from core.train.step.optimizer import restore_state

POSITION = "position.json"


@dataclass
class Saver:
    """Saves and restores one run's trainer.

    ``record`` is the run's log when the attempt began; ``facts`` go into every manifest; ``position`` gives what
    position.json holds, with the present learning rate, which a correction may have changed since a checkpoint;
    ``part`` is the folder of what learns.
    """

    folder: JobFolder
    record: RunRecord
    trainer: Any
    reporter: EventReporter
    facts: dict[str, Any]
    position: Callable[[], dict[str, Any]]
    part: str = "adapter"

    def __post_init__(self) -> None:
        self._best = best(measures(self.record))

    def is_best(self, measured: Measure) -> bool:
        """Whether a checkpoint with this measure would be the best of those that exist: Try and export take it, even
        where the base model was better."""
        known = [one for one in standing(self.folder).values() if one]
        return measured not in known and best([*known, measured]) == measured

    def save(self, step: int, measured: Measure | None, asked: bool = False, prune: bool = True) -> None:
        """Writes and verifies ``step-NNNNNN`` unless it exists, says so, and prunes older ones.

        Raises:
            MachineError: the disk is full; earlier checkpoints are untouched.
        """
        name = checkpoint.step_name(step)
        if (self.folder.checkpoints / name).is_dir() and not checkpoint.verify(self.folder.checkpoints / name):
            if asked:
                self._say_standing(step)
            if prune:
                checkpoint.prune(self.folder, newest=step)  # pruning after it was written may have been interrupted
            return
        newest, trainer = self.folder.newest_checkpoint(), self.trainer
        state = state_bytes(asked_optimiser(trainer.args), trainer.trained, paged=True)
        bytes_ = folder_bytes(newest) if newest else 4 * trainer.trained.count + state
        saved = checkpoint.save(
            self.folder,
            step,
            lambda draft: saved_once_more(lambda: self._write(draft, step), self.reporter),
            {**(measured.facts if measured else {"eval_loss": None}), **self.facts},
            bytes_,
        )
        self._say(step, saved.bytes, measured)
        if prune:
            checkpoint.prune(self.folder, newest=step)

    def measured(self, measured: Measure) -> None:
        """Notes what held-out rows said, in the checkpoint of its step too, where one was saved before they were read.

        Raises:
            MachineError: the disk is full.
        """
        self._best = best((measured, *([self._best] if self._best else [])))
        path = self.folder.checkpoints / checkpoint.step_name(measured.step)
        if not path.is_dir() or checkpoint.verify(path) or checkpoint.read_manifest(path).get("eval_loss") is not None:
            return
        checkpoint.add_facts(path, measured.facts)
        self._say_standing(measured.step)

    def _say(self, step: int, size: int, measured: Measure | None) -> None:
        """Writes a ``Checkpoint`` event, marked best where its measure is the best of the run, step 0 included."""
        mark = measured is not None and self._best is not None and self._best.step == step
        name, loss = checkpoint.step_name(step), measured.loss if measured else None
        self.reporter.say(Checkpoint(step=step, name=name, bytes=size, best=mark, eval_loss=loss))

    def _say_standing(self, step: int) -> None:
        path = self.folder.checkpoints / checkpoint.step_name(step)
        self._say(step, folder_bytes(path), measured_at(path))

    def restore(self, path: Path) -> int:
        """Restores adapter, optimiser, scheduler and scaler from a verified checkpoint; returns the step.

        Raises:
            RunError: it is of another adapter, or of a version with another layout of the optimiser.
        """
        trainer = self.trainer
        if unknown := trainer.trained.restore(path / self.part, trainer.flat.exact):
            raise RunError("checkpoint.adapter", name=path.name, key=unknown)
        try:
            restore_state(trainer.optimizer, load_state(path, "optimizer"))
        except ValueError as error:
            raise RunError("checkpoint.optimizer", name=path.name) from error
        trainer.lr_scheduler.load_state_dict(load_state(path, "scheduler"))
        self._restore_rate()
        if trainer.accelerator.scaler is not None and (scaler := load_state(path, "scaler")):
            trainer.accelerator.scaler.load_state_dict(scaler)
        same = not differences(checkpoint.read_manifest(path).get("depends", {}), self.facts.get("depends", {}))
        if same and (extra := load_state(path, "method")):  # of another base it is made anew
            trainer.restore_extra_state(extra)
        step = int(read_position(path)["step"])
        if path.name not in {event.name for event in self.record.checkpoints}:
            self._say_standing(step)  # its writer was killed before it could say so
        return step

    def _restore_rate(self) -> None:
        """Scales the schedule to the present learning rate: every rate of a schedule is a multiple of it."""
        scheduler = getattr(self.trainer.lr_scheduler, "scheduler", self.trainer.lr_scheduler)  # accelerate's wrapper
        groups = scheduler.optimizer.param_groups
        rates = [self.position()["learning_rate"] * group.get("times", 1.0) for group in groups]
        factors = [rate / base for rate, base in zip(rates, scheduler.base_lrs, strict=True)]
        for group, rate, factor in zip(groups, rates, factors, strict=True):
            group["lr"], group["initial_lr"] = group["lr"] * factor, rate
        scheduler._last_lr = [last * factor for last, factor in zip(scheduler._last_lr, factors, strict=True)]
        scheduler.base_lrs = rates

    def _write(self, draft: Path, step: int) -> None:
        trainer = self.trainer
        trainer.trained.save(draft / self.part, trainer.flat.exact)
        save_state(draft, "optimizer", trainer.optimizer.state_dict())
        save_state(draft, "scheduler", trainer.lr_scheduler.state_dict())
        if trainer.accelerator.scaler is not None:
            save_state(draft, "scaler", trainer.accelerator.scaler.state_dict())
        if extra := trainer.extra_state():
            save_state(draft, "method", extra)
        (draft / POSITION).write_text(json.dumps({**self.position(), "step": step}, indent=1), encoding="utf-8")


def read_position(path: Path) -> dict[str, Any]:
    """Where a checkpoint stands: ``step``, ``seed``, ``rows_per_step``, ``tokens_per_pass``, ``seconds``, …"""
    position: dict[str, Any] = json.loads((path / POSITION).read_text(encoding="utf-8"))
    return position
