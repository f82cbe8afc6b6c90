"""``python nursery.py``: a process with a worker's libraries, of which ranks are forked; a run takes two seconds.

It reads a line of JSON a run (``folder``, ``ranks``, ``env``, ``beside``) and answers with rank 0's exit code, and that
of the machine ``beside`` it (its run.yaml, its root, where they meet). Ranks are the real worker, its leader and
members; they are forked from here, where no backward has run, in place of being started anew.
``WOE=what rank step`` has something befall a rank before it computes its share of a step.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache, partial, partialmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from core.machine.imports import importing

with importing():  # as a worker does: a quarter less of a processor
    import torch

    import core.train.ranks.follow
    import core.train.run  # noqa: F401 - as much as a worker imports
    from core import worker
    from core.contract.errors import Fault, MachineError
    from core.machine.children.shared_memory import NAME
    from core.machine.host import Host
    from core.machine.locations import Locations
    from core.runs.folder.run_yaml import read_wish
    from core.runs.log.events_log import ATTEMPT_VARIABLE
    from core.runs.ranks import start
    from core.runs.ranks.node import join_run
    from core.runs.ranks.nodes import NODES_VARIABLE, Meeting
    from core.runs.ranks.start import CARDS_VARIABLE
    from core.train import attempt
    from core.train.keep.saver import Saver
    from core.train.methods.answers import AnswerTrainer
    from core.train.methods.sft import TextTrainer
    from core.train.ranks import group


class Forked:
    """In place of ``subprocess.Popen``."""

    def __init__(self, command: list[str], env: dict[str, str], **_: Any) -> None:
        self.pid = forked(command[-1], env)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float = 60.0) -> int:
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        raise subprocess.TimeoutExpired("rank", timeout)


def forked(folder: str, environment: dict[str, str]) -> int:
    """A worker in this folder; its pid."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        # As exec would: a rank that held the other end of its own line would never see it end.
        for path in list(Path("/proc/self/fd").iterdir()):
            with suppress(OSError):
                if not os.get_inheritable(int(path.name)):
                    os.close(int(path.name))
        os.environ.clear()
        os.environ.update(environment)
        log = os.open(f"{folder}/worker.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        code = worker.main([folder])
    finally:
        os._exit(code)


def machine(beside: dict[str, str], environment: dict[str, str]) -> int:
    """A second machine's command; its pid."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.environ.update(environment)
        meeting, config = Meeting.told({NODES_VARIABLE: beside["meeting"]}), read_wish(Path(beside["yaml"]))
        assert meeting
        join_run(config, Locations.find(beside["home"]).make(), meeting, 1, lambda _text: None)
        code = 0
    except Fault as fault:
        Path(beside["home"], "fault").write_text(fault.key, encoding="utf-8")
    finally:
        os._exit(code)


@cache
def note_shared(folder: str, rank: int) -> None:
    """Leaves word of the memory that this process shares with others, by its inode, in the run's folder."""
    shared = {line.split()[4] for line in Path("/proc/self/maps").read_text().splitlines() if NAME in line}
    if shared:
        with Path(folder).with_name("shared").open("a", encoding="utf-8") as file:
            file.write(f"{os.environ.get(ATTEMPT_VARIABLE, '')} {rank} {','.join(sorted(shared))}\n")


def befall(inner: Any, trainer: Any, model: Any, rows: Any, chosen: Any) -> Any:
    """Before a micro-batch: what the environment says of this rank."""
    what, rank, step = os.environ.get("WOE", "nothing 0 0").split()
    note_shared(trainer.args.output_dir, trainer.ranks.rank)
    if (trainer.ranks.rank, trainer.step + 1) == (int(rank), int(step)) and torch.is_grad_enabled():
        if what == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "fault":
            raise ValueError("a number is odd")
        if what == "full" and len(chosen) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        if what == "nan":
            return inner(trainer, model, rows, chosen) * torch.nan
    if what == "slow" and trainer.ranks.rank == int(rank) and torch.is_grad_enabled():
        time.sleep(2e-3 * sum(rows.length(row) for row in chosen))
    return inner(trainer, model, rows, chosen)


def befalls(trainer: Any, inner: Any, *given: Any) -> Any:
    return befall(inner, trainer, *given)


def without_room(inner: Any, saver: Any, step: int, *given: Any, **more: Any) -> Any:
    """A disk that is full when that step is first saved."""
    what, _, at = os.environ.get("WOE", "nothing 0 0").split()
    if what == "disk" and step == int(at) and not saver.folder.path.with_name("full").exists():
        saver.folder.path.with_name("full").touch()
        raise MachineError("disk.full/checkpoint", need=2.0, free=1.0)
    return inner(saver, step, *given, **more)


def joined(inner: Any, *given: Any) -> Any:
    if os.environ.get("WOE", "").startswith("apart"):
        raise RuntimeError("NCCL error: unhandled system error")
    return inner(*given)


def memory(inner: Any, host: Any) -> tuple[int, int]:
    return (2**34, 2**30) if os.environ.get("WOE", "").startswith("small") else inner(host)


def named(inner: Any, device: Any) -> Any:
    slow = os.environ.get("WOE", "").startswith("slow")
    return (f"card {group.Ranks.present().rank}", 0) if slow else inner(device)


def main() -> None:
    attempt.kind_of = partial(named, attempt.kind_of)
    there = Host.memory
    Host.memory = lambda host: memory(there, host)  # type: ignore[method-assign]
    group.join = partial(joined, group.join)  # type: ignore[assignment]
    for trainer in (TextTrainer, AnswerTrainer):
        trainer.pass_loss = partialmethod(befalls, trainer.pass_loss)  # type: ignore[method-assign]
    saved = Saver.save
    Saver.save = lambda *given, **more: without_room(saved, *given, **more)  # type: ignore[method-assign]
    start.subprocess = SimpleNamespace(  # type: ignore[assignment]
        Popen=Forked, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired
    )
    gc.freeze()
    for line in sys.stdin:
        wish = json.loads(line)
        told = dict(os.environ)
        if wish["ranks"] > 1:
            told[CARDS_VARIABLE] = ",".join(["cpu"] * wish["ranks"])
        told |= wish.get("env", {})
        other = machine(wish["beside"], told) if "beside" in wish else 0
        pid = forked(wish["folder"], told | ({NODES_VARIABLE: wish["beside"]["meeting"]} if other else {}))
        codes = [os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in (pid, other) if one]
        print(json.dumps(codes), flush=True)


if __name__ == "__main__":
    main()
