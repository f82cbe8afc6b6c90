"""A worker without torch: the real log, mailbox and checkpoints, around tensors that are bytes of a hash.

    state(n) = SHA-256(state(n − 1), n)        weights(n) = SHAKE-256(state(n)), as long as is wanted

So every file of every checkpoint is known beforehand, and "goes on exactly" is an equation. As a program (``python -m
tests.chaos.small JOB_DIR``) it is what a supervisor starts; the harness also forks it, which takes milliseconds.
"""

import contextlib
import functools
import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from core.contract.commands import Command
from core.contract.config import DataChoice, RunConfig, TrainChoice
from core.contract.errors import MachineError
from core.contract.events import (
    Acknowledged,
    Checkpoint,
    Evaluation,
    Event,
    Finished,
    Hello,
    Plan,
    Stage,
    Starting,
    Step,
)
from core.runs.control.mailbox import open_mailbox
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import ATTEMPT_VARIABLE, EventTail, open_writer
from core.runs.record.job_record import folded
from core.train.keep import checkpoint

from .seam import Ledger, Seam, Strike

LEDGER = "CHAOS_LEDGER"
STRIKES = {"worker": "CHAOS_WORKER", "supervisor": "CHAOS_SUPERVISOR"}
"""Environment variables: where to tell, and what is to happen to whom."""
TRIES = 6


def small_config(steps: int = 24, weight_bytes: int = 40_000, name: str = "small") -> RunConfig:
    """A run of so many steps; ``train.max_length`` is not used here and carries the size, in hundreds of bytes. No
    report is made of it: that job would live on after the run."""
    train = TrainChoice(max_steps=steps, max_length=weight_bytes // 100, report=False)
    return RunConfig(name=name, data=DataChoice(path="/data/rows.jsonl"), train=train)


@functools.cache
def state_of(step: int) -> bytes:
    """The state after so many steps."""
    return hashlib.sha256(state_of(step - 1) + step.to_bytes(8, "big")).digest() if step else b"begin"


def loss_of(step: int) -> float:
    """The loss that step has in every life."""
    return int.from_bytes(state_of(step)[:4], "big") / 2**32


def eval_loss(step: int) -> float | None:
    """Measured at every fourth step."""
    return loss_of(step) if step % 4 == 0 else None


@functools.lru_cache(maxsize=32)  # forked attempts begin with what was made here
def files_of(step: int, weight_bytes: int) -> Mapping[str, bytes]:
    """What a checkpoint of this step holds, by name."""
    grown = hashlib.shake_256(state_of(step)).digest(3 * weight_bytes)
    position = {"step": step, "state": state_of(step).hex()}
    return {
        "adapter/adapter_config.json": b'{"r": 4}',
        "adapter/adapter_model.safetensors": grown[:weight_bytes],
        "optimizer.json": json.dumps({"state": {}}).encode(),
        "optimizer.safetensors": grown[weight_bytes:],
        "scheduler.json": b"{}",
        "position.json": json.dumps(position).encode(),
    }


class SmallRun:
    """One attempt, telling the ledger what a reader may rely on: every event written, every save, every obedience."""

    def __init__(self, folder: JobFolder, ledger: Ledger) -> None:
        self.folder, self.ledger = folder, ledger
        train = folder.config().train
        self.total_steps, self.weight_bytes = train.max_steps, train.max_length * 100
        self.writer = open_writer(folder)
        self._said: list[tuple[str, int]] = []
        self.mailbox = open_mailbox(folder, self.writer.attempt)

    def say(self, event: Event) -> None:
        """A reader may rely on what was written; what a full disk refused is kept and written later."""
        self.writer.write(event)
        self._said.append((event.kind, event.step))
        while self._said and not self.writer.behind:
            self.ledger.tell("wrote", *self._said.pop(0))

    def run(self) -> None:
        begun = self._begin()
        for step in range(begun + 1, self.total_steps + 1):
            self.say(Step(step=step, loss=loss_of(step)))
            if (measured := eval_loss(step)) is not None:
                self.say(Evaluation(step=step, loss=measured))
            self._listen(step)
            if step % 2 == 0:
                self.save(step)
        self.save(self.total_steps)
        self._listen(self.total_steps)  # also an attempt without a step of its own
        self.say(Finished(step=self.total_steps))

    def save(self, step: int) -> None:
        """As a run's saver does: what stands is left, what was measured meanwhile is added."""
        path = self.folder.checkpoints / checkpoint.step_name(step)
        if not path.is_dir() or checkpoint.verify(path):
            files = files_of(step, self.weight_bytes)
            size = sum(len(data) for data in files.values())
            self.say(Stage(stage="saving", text=f"Step {step}", step=step))
            _once_more(
                lambda: checkpoint.save(self.folder, step, lambda draft: _put(draft, files), {"eval_loss": None}, size)
            )
            self.ledger.tell("saved", step)
            self.say(Checkpoint(step=step, name=path.name, bytes=size))
        if (measured := eval_loss(step)) is not None and checkpoint.read_manifest(path).get("eval_loss") is None:
            _once_more(lambda: checkpoint.add_facts(path, {"eval_loss": measured}))
            self.ledger.tell("measured", step)
        checkpoint.prune(self.folder)

    def _begin(self) -> int:
        start = checkpoint.latest_good(self.folder, lambda path, why: self.ledger.tell("bad", path.name, why))
        step = 0
        if start:
            position = json.loads((start / "position.json").read_text(encoding="utf-8"))
            step = int(position["step"])
            assert position["state"] == state_of(step).hex()
        announced = [event.resumed_step for event in EventTail(self.folder.events).read() if event.kind == "starting"]  # type: ignore[attr-defined]
        if ATTEMPT_VARIABLE not in os.environ or announced[-1] != step:
            self.say(Starting(step=step, resumed_step=step))
        self.say(Hello(pid=os.getpid(), step=step))
        self.say(Plan(total_steps=self.total_steps, step=step))
        if start and start.name not in {event.name for event in folded(self.folder).checkpoints}:
            self.say(Checkpoint(step=step, name=start.name))
        return step

    def _listen(self, step: int) -> None:
        for command in self.mailbox.poll():
            self._obey(command, step)

    def _obey(self, command: Command, step: int) -> None:
        self.say(Acknowledged(command_id=command.id, command=command.verb, step=step))
        self.ledger.tell("obeyed", command.id, self.writer.attempt, command.attempt)
        if command.verb == "save":
            self.save(step)


def _put(draft: Path, files: Mapping[str, bytes]) -> None:
    (draft / "adapter").mkdir()
    for name, data in files.items():
        with (draft / name).open("wb", buffering=0) as file:
            rest = memoryview(data)
            while rest:  # in pieces, as a library writes a tensor at a time
                rest = rest[file.write(rest[: 1 << 15]) :]


def _once_more(save: Callable[[], object]) -> None:
    """A full disk is waited for, which costs no time here; after some tries its error ends the attempt."""
    for _ in range(TRIES):
        with contextlib.suppress(MachineError):
            save()
            return
    save()


def train(folder: JobFolder, ledger: Ledger) -> None:
    """One attempt, from where the newest good checkpoint stands to the end."""
    run = SmallRun(folder, ledger)
    try:
        run.run()
    finally:
        run.writer.close()


def main() -> int:
    """``python -m tests.chaos.small JOB_DIR``, under a supervisor."""
    ledger = Ledger(Path(os.environ[LEDGER]))
    strike = Strike.parse(os.environ.get(STRIKES["worker"], ""))
    folder = JobFolder(Path(sys.argv[1]))
    seam = Seam(strike, ledger, "worker").install()
    ledger.tell("began", "worker", os.getpid())
    train(folder, ledger)
    seam.tell_counts()
    return 0


if __name__ == "__main__":
    sys.exit(main())
