"""A worker of a few lines for the tests of its supervisor: does what the run's name says, without torch.

It writes its log and reads its mailbox with what Python itself brings: to import the real ones takes half a second of
the processor, and these tests start a hundred workers. Supervisor and test, on the other side, have the real ones.
"""

import faulthandler
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from core.runs.log.handover import signal_ready
from core.runs.log.lines import number_of, sealed

SECONDS = 0.01
"""What a step is said to take."""
RESTART = os.EX_TEMPFAIL
GRANDCHILD = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
SAID = {"card": "NVIDIA H200", "model": "a/b", "shape": "x", "predicted_bytes": 900, "longest": 64}


class Job:
    """Its folder as a worker sees it: the log, the mailbox, the checkpoints."""

    def __init__(self, path: Path) -> None:
        """Says that it is ready, waits until the log is its own, and says hello."""
        signal_ready()
        self.path, self.attempt = path, int(os.environ["LUTHIER_ATTEMPT"])
        self.run = path.parents[1] if path.parent.name == "jobs" else path
        self._heard = 0  # bytes of the mailbox
        self._log = os.open(path / "events.jsonl", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._number = number_of(self._lines()[-1]) or 0
        self.say("hello", pid=os.getpid())

    def say(self, kind: str, **values: Any) -> None:
        """One event."""
        said = {"kind": kind, "at": time.time(), "attempt": self.attempt, **values}
        self._number += 1
        os.write(self._log, sealed(json.dumps(said).encode(), self._number) + b"\n")

    def hear(self) -> list[str]:
        """The verbs of the new commands, each acknowledged."""
        mailbox = self.path / "commands.jsonl"
        if not mailbox.exists() or mailbox.stat().st_size == self._heard:
            return []
        lines = mailbox.read_bytes()[self._heard :].splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        self._heard += sum(map(len, whole))
        known = [event["command_id"] for event in map(json.loads, self._lines()) if event["kind"] == "acknowledged"]
        asked = [command for command in map(json.loads, whole) if command["attempt"] >= self.attempt]
        mine = [one for one in asked if one["id"] not in known and one["verb"] in ("pause", "save", "stop", "sample")]
        for one in mine:
            self.say("acknowledged", command_id=one["id"], command=one["verb"])
        return [one["verb"] for one in mine]

    def keep(self, step: int) -> None:
        """A checkpoint of this step."""
        path = self.run / "checkpoints" / f"step-{step:06d}"
        path.mkdir(parents=True, exist_ok=True)
        (path / "MANIFEST.json").write_text("{}")
        self.say("checkpoint", step=step, name=path.name)

    def newest_step(self) -> int:
        """That of the newest checkpoint; 0 where none stands."""
        steps = (int(path.parent.name[5:]) for path in self.run.glob("checkpoints/step-*/MANIFEST.json"))
        return max(steps, default=0)

    def _lines(self) -> list[bytes]:
        return os.pread(self._log, 1 << 24, 0).splitlines()


def read_value(file: Path, key: str) -> str:
    """A plain value at the top of a YAML file."""
    found = re.search(rf"^{key}: (.*)$", file.read_text(), re.MULTILINE)
    assert found
    return found[1]


def train(job: Job, steps: int) -> None:
    job.say("plan", total_steps=steps)
    for step in range(job.newest_step() + 1, steps + 1):
        job.say("step", step=step, loss=1.0 / step)
        for verb in job.hear():
            job.keep(step)
            if verb in ("pause", "stop"):
                job.say("paused" if verb == "pause" else "stopped", step=step)
                return
        time.sleep(0.02)
    job.keep(steps)
    job.say("finished", step=steps)


def hang(job: Job, step: int) -> None:
    """Stands still after this step, with an ear that lives on; a fresh process that finds its checkpoint does not."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    if job.newest_step():
        train(job, step + 1)
        return
    for number in range(1, step + 1):
        job.say("step", step=number, seconds=SECONDS)
    if step:
        job.keep(step)
        job.say("stage", stage="training")
    while True:
        job.hear()
        time.sleep(0.05)


def wait(job: Job, seconds: float) -> None:
    """Waits for something outside itself, then goes on."""
    job.say("step", step=1, seconds=SECONDS)
    job.say("stage", stage="waiting", text="3.2 GB of disk are missing")
    time.sleep(seconds)
    job.say("stage", stage="training")
    train(job, 2)


def leave_when_told(job: Job, what: str) -> int:
    """Trains until a file ``go`` appears, then asks for a fresh process or crashes; a fresh one finishes."""
    if job.attempt > 1:
        from core.machine.cards import CardSet, held_by
        from core.machine.locations import Locations

        job.say("note", code="card", text=held_by(Locations.find(), CardSet()) or "nobody")
        job.say("finished")
        return 0
    step = 0
    while not (job.path / "go").exists():
        step += 1
        job.say("step", step=step, seconds=SECONDS)
        time.sleep(0.05)
    if what == "wish":
        job.say("note", code="worker.restart", text="The card faulted.")
        return RESTART
    return 3


def main() -> int:
    folder = Path(sys.argv[1])
    if (folder / "report.yaml").exists():
        what, number = "report", "long" if float(read_value(folder / "report.yaml", "minutes")) else ""
    elif (folder / "export.yaml").exists():
        what, number = "train", "1"
    else:
        what, _, number = read_value(folder / "run.yaml", "name").partition(" ")
    if what == "late":  # its libraries take so long
        time.sleep(float(number))
    job = Job(folder)
    if what in ("late", "train"):
        train(job, 3 if what == "late" else int(number))
    elif what == "hang":
        hang(job, int(number))
    elif what == "wait":
        wait(job, float(number))
    elif what == "told":
        return leave_when_told(job, number)
    elif what in ("promised", "bitsandbytes") and job.attempt > 1:
        job.say("finished")
    elif what == "promised":  # its card faults between what it promised and doing it
        for step in range(1, 4):
            job.say("step", step=step)
        while not job.hear():
            time.sleep(0.02)
        print("CUDA error: unspecified launch failure", file=sys.stderr)
        return 1
    elif what == "bitsandbytes":  # as bitsandbytes does after a fault of the card
        print("Error an illegal memory access was encountered at line 90 in file /src/csrc/ops.cu", file=sys.stderr)
        return 1
    elif what == "corrected":  # goes back to the same checkpoint a few times, each time with something changed
        if job.attempt <= int(number):
            job.say("correction", key="train.learning_rate", old="2", new="1", reason="bad numbers")
            return RESTART
        job.say("finished")
    elif what == "report":  # gives way three times, more often than a worker may fail
        if job.attempt <= 3 and not number:
            job.say("note", code="worker.gave_way")
            return RESTART
        (job.run / "report.json").write_text("{}")
        if number == "long":
            time.sleep(60)
        job.say("finished")
    elif what == "exit":
        return int(number)
    elif what == "fail":  # as a worker ends whose kernels do not build: it says so, and goes
        job.say("failed", code="worker.fault", message="Failed to find C compiler", hint="")
    elif what == "kill":
        os.kill(os.getpid(), int(number))
    elif what == "tree":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for detached in (False, True):
            subprocess.Popen([sys.executable, "-S", "-c", GRANDCHILD], start_new_session=detached)
        job.say("step", step=1)
        time.sleep(60)
    elif what == "tell":  # what it was told by its environment
        job.say("note", code="told", text=os.environ.get(number, "nothing"))
        job.say("finished")
    elif what == "teach":  # predicted and measured, in so many steps
        job.say("plan", total_steps=int(number), predicted={**SAID, "checkpointing": "none"}, fast=True)
        for step in range(1, int(number) + 1):
            figures = {"tokens": 100, "seconds": 0.5, "memory_bytes": 990 + step, "reserved_bytes": 1200}
            job.say("step", step=step, power_watts=200.0, **figures)
        job.say("finished", step=int(number))
    elif what == "linger":
        job.say("finished")
        time.sleep(60)
    elif what == "restart":  # asks for a fresh process until its third checkpoint
        step = job.newest_step() + 1
        job.keep(step)
        if step < int(number):
            return RESTART
        job.say("finished", step=step)
    return 0


if __name__ == "__main__":
    sys.exit(main())
