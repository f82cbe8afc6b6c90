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
from core.hardware import read_machine
from core.runs.folder import JobFolder
from core.runs.log import EventTail, EventWriter
from core.train import checkpoint
from core.train.loop import Loop
from core.train.meter import CardWatch
from core.train.orders import Commands, Leave, Orders
from core.train.saver import Saver, read_position
from core.train.setup import Ready, prepare
from core.train.tell import Teller

__all__ = ["train"]


def train(folder: JobFolder, writer: EventWriter, mailbox: Commands | Orders, plain: bool = False) -> None:
    """Trains until the run is finished or somebody asks to leave, and says so in a last event.

    Args:
        mailbox: the run's mailbox, or the ``Orders`` that already listen to it.
        plain: the fast kernels do not run on this machine; the config's wish for them is overruled.

    Raises:
        StudioError: model, data, checkpoint or disk; the last good checkpoint stands.
    """
    tell = Teller(writer)
    orders = mailbox if isinstance(mailbox, Orders) else Orders(mailbox, tell).start()
    begun = time.monotonic()
    try:
        _attempt(folder, _config(folder, plain), (tell, orders), begun)
    finally:
        orders.close()


def _attempt(folder: JobFolder, config: RunConfig, talk: tuple[Teller, Orders], begun: float) -> None:
    tell, _ = talk
    device = _device(config.train.seed)
    start = _starting_point(folder, tell)
    position = read_position(start) if start else {}
    tell.step = int(position.get("step", 0))
    try:
        ready = prepare(config, folder, device, talk, int(position.get("tokens_per_pass", 0)))
    except Leave as leave:
        _say_left(tell, leave, kept=start is not None)
        return
    saver = Saver(folder, ready.trainer, ready.peft_model, ready.tokenizer, tell)
    saver.position = _position(ready.config)
    saver.seconds = lambda: float(position.get("seconds", 0.0)) + time.monotonic() - begun
    loop = Loop(ready.config, ready.trainer, ready.data.train, ready.data.held_out, talk, saver)
    ready.trainer.loop = loop
    ready.trainer.add_callback(_Beginning(loop, saver, start))
    tell.say(ready.plan)
    _run(ready, loop, tell, saver.seconds)


def _run(ready: Ready, loop: Loop, tell: Teller, seconds: Callable[[], float]) -> None:
    machine = read_machine()
    loop.card = CardWatch(machine.gpu.uuid if machine.gpu and ready.trainer.args.device.type == "cuda" else "")
    try:
        ready.trainer.train()
        loop.finish()
    except Leave as leave:
        if loop.step:
            loop.save()
        _say_left(tell, leave, kept=loop.step > 0)
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


def _config(folder: JobFolder, plain: bool) -> RunConfig:
    config = folder.config()
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


def _starting_point(folder: JobFolder, tell: Teller) -> Path | None:
    """The newest good checkpoint. Where it is not the one that the log announced, the log is told."""

    def bad(path: Path, problem: str) -> None:
        tell.note("checkpoint.bad", f"{path.name} is damaged ({problem}).", "The one before it is used.")

    start = checkpoint.latest_good(folder, bad)
    step = int(read_position(start)["step"]) if start else 0
    announced = [event.resumed_step for event in EventTail(folder.events).read() if isinstance(event, Starting)]
    if not announced or announced[-1] != step:
        tell.say(Starting(step=step, resumed_step=step))
    return start


def _position(config: RunConfig) -> dict[str, Any]:
    return {
        "seed": config.train.seed,
        "rows_per_step": config.rows_per_step,
        "tokens_per_pass": config.train.tokens_per_pass,
        "data_sha256": config.data.sha256,
    }


def _say_left(tell: Teller, leave: Leave, kept: bool) -> None:
    tell.say(Paused() if leave.verb == "pause" else Stopped(kept=kept))
