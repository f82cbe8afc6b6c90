"""A worker of a few lines for the tests of its supervisor: does what the run's name says, without torch."""

import faulthandler
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from core.contract import events
from core.contract.estimate import LearnedRun
from core.machine.cards import CardSet, held_by
from core.machine.locations import Locations
from core.runs.control.mailbox import open_mailbox
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventWriter, open_writer

SECONDS = 0.01
"""What a step is said to take."""
GRANDCHILD = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"


def keep(folder: JobFolder, writer: EventWriter, step: int) -> None:
    path = folder.checkpoints / f"step-{step:06d}"
    path.mkdir(parents=True, exist_ok=True)
    (path / "MANIFEST.json").write_text("{}")
    writer.write(events.Checkpoint(step=step, name=path.name))


def train(folder: JobFolder, writer: EventWriter, steps: int) -> None:
    mailbox = open_mailbox(folder, writer.attempt)
    writer.write(events.Plan(total_steps=steps))
    for step in range(folder.newest_step() + 1, steps + 1):
        writer.write(events.Step(step=step, loss=1.0 / step))
        for command in mailbox.poll():
            writer.write(events.Acknowledged(command_id=command.id, command=command.verb))
            keep(folder, writer, step)
            if command.verb == "pause":
                writer.write(events.Paused(step=step))
                return
            if command.verb == "stop":
                writer.write(events.Stopped(step=step))
                return
        time.sleep(0.02)
    keep(folder, writer, steps)
    writer.write(events.Finished(step=steps))


def hang(folder: JobFolder, writer: EventWriter, step: int) -> None:
    """Stands still after this step, with an ear that lives on; a fresh process that finds its checkpoint does not."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    if folder.newest_step():
        train(folder, writer, step + 1)
        return
    for number in range(1, step + 1):
        writer.write(events.Step(step=number, seconds=SECONDS))
    if step:
        keep(folder, writer, step)
        writer.write(events.Stage(stage="training"))
    mailbox = open_mailbox(folder, writer.attempt)
    while True:
        for command in mailbox.poll():
            writer.write(events.Acknowledged(command_id=command.id, command=command.verb))
        time.sleep(0.05)


def wait(folder: JobFolder, writer: EventWriter, seconds: float) -> None:
    """Waits for something outside itself, then goes on."""
    writer.write(events.Step(step=1, seconds=SECONDS))
    writer.write(events.Stage(stage="waiting", text="3.2 GB of disk are missing"))
    time.sleep(seconds)
    writer.write(events.Stage(stage="training"))
    train(folder, writer, 2)


def leave_when_told(folder: JobFolder, writer: EventWriter, what: str) -> int:
    """Trains until a file ``go`` appears, then asks for a fresh process or crashes; a fresh one finishes."""
    if writer.attempt > 1:
        holder = held_by(Locations.find(), CardSet())
        writer.write(events.Note(code="card", text=holder or "nobody"))
        writer.write(events.Finished())
        return 0
    step = 0
    while not (folder.path / "go").exists():
        step += 1
        writer.write(events.Step(step=step, seconds=SECONDS))
        time.sleep(0.05)
    if what == "wish":
        writer.write(events.Note(code="worker.restart", text="The card faulted."))
        return os.EX_TEMPFAIL
    return 3


def main() -> int:
    folder = JobFolder(Path(sys.argv[1]))
    what, _, number = folder.config().name.partition(" ") if folder.kind == "train" else ("train", "", "1")
    if folder.kind == "report":
        what, number = "report", "long" if folder.report_request().minutes else ""
    if what == "late":  # its libraries take so long
        time.sleep(float(number))
    writer = open_writer(folder)
    writer.write(events.Hello(pid=os.getpid()))
    if what in ("late", "train"):
        train(folder, writer, 3 if what == "late" else int(number))
    elif what == "hang":
        hang(folder, writer, int(number))
    elif what == "wait":
        wait(folder, writer, float(number))
    elif what == "told":
        return leave_when_told(folder, writer, number)
    elif what in ("promised", "bitsandbytes") and writer.attempt > 1:
        writer.write(events.Finished())
    elif what == "promised":  # its card faults between what it promised and doing it
        mailbox = open_mailbox(folder, writer.attempt)
        for step in range(1, 4):
            writer.write(events.Step(step=step))
        while not (asked := mailbox.poll()):
            time.sleep(0.02)
        writer.write(events.Acknowledged(command_id=asked[0].id, command=asked[0].verb))
        print("CUDA error: unspecified launch failure", file=sys.stderr)
        return 1
    elif what == "bitsandbytes":  # as bitsandbytes does after a fault of the card
        print("Error an illegal memory access was encountered at line 90 in file /src/csrc/ops.cu", file=sys.stderr)
        return 1
    elif what == "corrected":  # goes back to the same checkpoint a few times, each time with something changed
        if writer.attempt <= int(number):
            writer.write(events.Correction(key="train.learning_rate", old="2", new="1", reason="bad numbers"))
            return os.EX_TEMPFAIL
        writer.write(events.Finished())
    elif what == "report":  # gives way three times, more often than a worker may fail
        if writer.attempt <= 3 and not number:
            writer.write(events.Note(code="worker.gave_way"))
            return os.EX_TEMPFAIL
        (folder.run_folder.path / "report.json").write_text("{}")
        if number == "long":
            time.sleep(60)
        writer.write(events.Finished())
    elif what == "exit":
        return int(number)
    elif what == "fail":  # as a worker ends whose kernels do not build: it says so, and goes
        writer.write(events.Failed(code="worker.fault", message="Failed to find C compiler", hint=""))
    elif what == "kill":
        os.kill(os.getpid(), int(number))
    elif what == "tree":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for detached in (False, True):
            subprocess.Popen([sys.executable, "-c", GRANDCHILD], start_new_session=detached)
        writer.write(events.Step(step=1))
        time.sleep(60)
    elif what == "tell":  # what it was told by its environment
        writer.write(events.Note(code="told", text=os.environ.get(number, "nothing")))
        writer.write(events.Finished())
    elif what == "teach":  # predicted and measured, in so many steps
        said = LearnedRun(
            card="NVIDIA H200", model="a/b", shape="x", predicted_bytes=900, longest=64, checkpointing="none"
        )
        writer.write(events.Plan(total_steps=int(number), predicted=said, fast=True))
        for step in range(1, int(number) + 1):
            figures = {"tokens": 100, "seconds": 0.5, "memory_bytes": 990 + step, "reserved_bytes": 1200}
            writer.write(events.Step(step=step, power_watts=200.0, **figures))
        writer.write(events.Finished(step=int(number)))
    elif what == "linger":
        writer.write(events.Finished())
        time.sleep(60)
    elif what == "restart":  # asks for a fresh process until its third checkpoint
        step = folder.newest_step() + 1
        keep(folder, writer, step)
        if step < int(number):
            return os.EX_TEMPFAIL
        writer.write(events.Finished(step=step))
    return 0


if __name__ == "__main__":
    sys.exit(main())
