"""One attempt at a training run, from its folder to its last event.

A run is taken up where its newest good checkpoint stands; on the CPU the result is the same, bit for bit, as if it had
never been interrupted. Leaving (pause, stop) is no fault: the last whole step is saved, the word is said, the process
ends, and the card is free.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from core.contract.config import RunConfig
from core.contract.errors import MachineError
from core.contract.events import Finished, Paused, Starting, Stopped
from core.machine.hardware import read_machine
from core.models.catalog import find_model
from core.runs.folder.held_out_rows import draw_path
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import changed_since, note_began
from core.runs.log.events_log import EventTail, EventWriter
from core.runs.record.job_record import RunRecord, effective_config, fold
from core.train.channel.command_queue import CommandQueue, Commands, Leave
from core.train.channel.disk_full import Room
from core.train.channel.meter import CardWatch
from core.train.channel.reporter import EventReporter
from core.train.keep import checkpoint
from core.train.keep.depends import depends_on, refuse_other_data, refuse_others
from core.train.keep.kept_rows import KeptRows
from core.train.keep.saver import Saver, read_position
from core.train.keep.start_adapter import keep_start
from core.train.loop import Loop
from core.train.safety.oom_recovery import OomRecovery, tries_the_largest
from core.train.safety.rollback import Rollback, rows_at_fault
from core.train.setup import Ready, prepare

__all__ = ["train"]


def train(folder: JobFolder, writer: EventWriter, mailbox: Commands | CommandQueue, plain: bool = False) -> None:
    """Trains until the run is finished or somebody asks to leave, and says so in a last event.

    Args:
        mailbox: the run's mailbox, or the ``CommandQueue`` that already listen to it.
        plain: the fast kernels do not run on this machine; the config's wish for them is overruled.

    Raises:
        StudioError: model, data, checkpoint or disk; the last good checkpoint stands.
    """
    tell = EventReporter(writer)
    orders = mailbox if isinstance(mailbox, CommandQueue) else CommandQueue(mailbox, tell).start()
    room = Room(tell, orders, writer)
    try:
        record = fold(EventTail(folder.events).read())
        _attempt(folder, _config(folder, record, plain), record, (tell, orders), room)
    finally:
        orders.close()


def _attempt(
    folder: JobFolder, config: RunConfig, record: RunRecord, talk: tuple[EventReporter, CommandQueue], room: Room
) -> None:
    tell, begun = talk[0], time.monotonic()
    device = _device(config.train.seed)
    start = _starting_point(folder, tell)
    position = read_position(start) if start else {}
    tell.step = int(position.get("step", 0))
    # A correction is newer than any checkpoint that was cut otherwise.
    corrected = any(correction.key == "train.tokens_per_pass" for correction in record.corrections)
    tokens_per_pass = 0 if corrected else int(position.get("tokens_per_pass", 0))
    try:
        depends = _depends(folder, config, start, record, (tell, room))
        kept = KeptRows(draw_path(folder.path), config, tell, room, record.anyway)
        ready = prepare(config, folder, device, talk, tokens_per_pass, kept)
    except Leave as leave:
        _say_left(tell, leave, kept=start is not None)
        return
    depends["base"] = find_model(config.model.source, config.model.name, config.model.revision).revision
    refuse_others(start, {"base": depends["base"]}, record.anyway, tell)
    saver = Saver(folder, ready.trainer, ready.peft_model, ready.tokenizer, tell)
    saver.facts, saver.learning_rate = {"depends": depends}, ready.config.train.learning_rate
    saver.seconds = lambda: float(position.get("seconds", 0.0)) + time.monotonic() - begun
    loop = Loop(ready.config, ready.trainer, ready.data.train, ready.data.held_out, talk, saver)
    loop.room, saver.position = room, lambda: _position(ready, loop)
    _guard(ready, loop, Rollback(folder, record, ready.config.train.learning_rate, tell), position)
    ready.trainer.loop = loop
    ready.trainer.relief = OomRecovery(
        ready.trainer, ready.config, tries_the_largest(device), device.type == "cuda" and read_machine().wsl
    )
    ready.trainer.add_callback(_Beginning(loop, saver, start))
    tell.say(ready.plan)
    _run(ready, loop, tell, saver.seconds)


def _depends(
    folder: JobFolder, config: RunConfig, start: Path | None, record: RunRecord, talk: tuple[EventReporter, Room]
) -> dict[str, Any]:
    """What the run depends on, held to what the checkpoint ``start`` and run.yaml say of it."""
    tell, room = talk
    depends = depends_on(folder, config)
    changes = changed_since(folder, folder.config())
    if changes and start is None:
        hint = "It is obeyed: no checkpoint stands that was trained otherwise."
        tell.note("run.changed", f"run.yaml was changed since this run was made: {changes}.", hint)
    if began_from := keep_start(folder, config, room):
        depends["start"] = began_from
    refuse_others(start, depends, record.anyway, tell, changes)
    note_began(folder, folder.config())
    if start is None and "data" in depends:
        refuse_other_data(folder.path.name, config.data, depends["data"], record.anyway, tell)
    return depends


def _guard(ready: Ready, loop: Loop, course: Rollback, position: dict[str, Any]) -> None:
    """What is done about bad numbers; how many there were in a row is part of where a run stands."""

    def named() -> str:
        window = loop.feed.after(loop.step) or []
        return rows_at_fault(ready.trainer, loop.rows, window, ready.data.numbers)

    guard = loop.guard
    guard.bad, guard.overflows = list(position.get("bad", [])), int(position.get("overflows", 0))
    guard.name_rows, guard.turn_back = named, course.turn_back


def _run(ready: Ready, loop: Loop, tell: EventReporter, seconds: Callable[[], float]) -> None:
    machine = read_machine()
    loop.card = CardWatch(machine.gpu.uuid if machine.gpu and ready.trainer.args.device.type == "cuda" else "")
    try:
        ready.trainer.train()
        loop.finish()
        loop.room.catch_up()
    except Leave as leave:
        _say_left(tell, leave, kept=loop.leave())
        return
    finally:
        loop.card.close()
    tell.say(Finished(seconds=seconds()))


class _Beginning(TrainerCallback):
    """Once optimiser and scheduler exist: the checkpoint is put back, and the base model is measured."""

    def __init__(self, loop: Loop, saver: Saver, start: Path | None) -> None:
        self._loop, self._saver, self._start = loop, saver, start

    def on_train_begin(self, _args: Any, state: Any, *_control: Any, **_objects: Any) -> None:
        """Called by the Trainer before its first window."""
        loop = self._loop
        if self._start:
            state.global_step = self._saver.restore(self._start)
        loop.tell.step = loop.step
        every = loop.config.train.eval_steps
        if loop.step == 0 or (self._start and every and loop.step % every == 0 and not _measured(self._start)):
            loop.evaluate()


def _measured(path: Path) -> bool:
    return checkpoint.read_manifest(path).get("eval_loss") is not None


def _config(folder: JobFolder, record: RunRecord, plain: bool) -> RunConfig:
    """As corrected since it was written: the next attempt begins with what the last one was brought to."""
    config = effective_config(folder.config(), record.corrections)
    if not plain:
        return config
    return config.model_copy(update={"train": config.train.model_copy(update={"kernels": "plain"})})


def _device(seed: int) -> torch.device:
    """The first card, or the CPU with a fixed number of threads and order-independent algorithms.

    Raises:
        MachineError: there is a card, and PyTorch cannot use it; training on the CPU was not what was planned.
    """
    torch.manual_seed(seed)
    machine = read_machine()
    if torch.cuda.is_available():
        torch.cuda.set_device(0)
        return torch.device("cuda", 0)
    if machine.gpu:
        raise MachineError(
            "gpu.unusable",
            f"Expected PyTorch {torch.__version__} to use the {machine.gpu.name}, found that it cannot "
            f"(driver {machine.gpu.driver or 'unknown'}).",
            "Update the NVIDIA driver, or choose a PyTorch for it: python3 launcher.py --torch cu126 (or cpu).",
        )
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or machine.cpu_count))
    torch.use_deterministic_algorithms(True, warn_only=True)
    return torch.device("cpu")


def _starting_point(folder: JobFolder, tell: EventReporter) -> Path | None:
    """The newest good checkpoint. Where it is not the one that the log announced, the log is told."""

    def bad(path: Path, problem: str) -> None:
        tell.note("checkpoint.bad", f"{path.name} is damaged ({problem}).", "The one before it is used.")

    start = checkpoint.latest_good(folder, bad)
    step = int(read_position(start)["step"]) if start else 0
    announced = [event.resumed_step for event in EventTail(folder.events).read() if isinstance(event, Starting)]
    if not announced or announced[-1] != step:
        tell.say(Starting(step=step, resumed_step=step))
    return start


def _position(ready: Ready, loop: Loop) -> dict[str, Any]:
    return {
        "seed": ready.config.train.seed,
        "rows_per_step": ready.config.rows_per_step,
        "tokens_per_pass": ready.trainer.tokens_per_pass,
        "learning_rate": ready.config.train.learning_rate,
        "bad": loop.guard.bad,
        "overflows": loop.guard.overflows,
    }


def _say_left(tell: EventReporter, leave: Leave, kept: bool) -> None:
    tell.say(Paused() if leave.verb == "pause" else Stopped(kept=kept))
