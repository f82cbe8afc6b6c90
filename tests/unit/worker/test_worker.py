"""The worker as a process: first word, commands, a kill in mid-run, and every fault said in one line."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest
from tiny_run import raw_config, write_instructions
from waiting import until

import core.worker
from core.contract.config import RunConfig
from core.contract.events import Event, Failed, Note
from core.machine.hardware import Machine
from core.machine.locations import ASSETS, REPOSITORY
from core.runs.control.mailbox import send
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import dump_config
from core.runs.log.events_log import EventTail
from core.train.channel.command_queue import Afresh
from core.worker import fault_of, main

STEPS = 12
SLACK = 3.0
"""Seconds. Alone on two cores both take well under one; a whole test run shares them."""


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    """A run folder on the starter and the rows of the tests of training; nothing heavy is imported to make it."""
    raw = raw_config(ASSETS / "starter", write_instructions(tmp_path / "rows.jsonl"))
    raw["lora"].update(lora_dropout=0.1)
    raw["train"].update(max_steps=STEPS, eval_steps=STEPS, save_steps=5)
    path = tmp_path / "runs" / "job"
    path.mkdir(parents=True)
    (path / "run.yaml").write_text(dump_config(RunConfig.model_validate(raw)), encoding="utf-8")
    return JobFolder(path)


WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None
import core.worker
ended = core.worker.main()
import core.kernels.trial_kernel, torch
from core.kernels.dispatch import use_triton
sys.exit(ended or use_triton(torch.zeros(1)))
"""
"""As on a machine without an NVIDIA card, where everything that trains must still be there."""


def start(folder: JobFolder, triton: bool = True) -> subprocess.Popen[bytes]:
    program = ["-m", "core.worker"] if triton else ["-c", WITHOUT_TRITON]
    with folder.log.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *program, str(folder.path)],
            cwd=REPOSITORY, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=log, stderr=log,
        )  # fmt: skip


def events(folder: JobFolder) -> list[Any]:
    return list(EventTail(folder.events).read())


def wait_for(folder: JobFolder, wanted: Callable[[Event], bool]) -> Any:
    tail, said = EventTail(folder.events), list[Event]()  # of a log that grows only what is new is read again

    def found() -> Event | None:
        said.extend(tail.read())
        return next(filter(wanted, said), None)

    return until(found, 240, lambda: folder.log.read_text()[-2000:])


def worked(process: subprocess.Popen[bytes]) -> float:
    """The processor's seconds so far: on a busy machine the wall's are of who else computes."""
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)


def test_speaks_at_once_obeys_survives_a_kill_and_goes_on_as_if_it_had_not_been(job: JobFolder) -> None:
    """That it ends bit for bit like a run that was never cut off: tests of training, and ``tests/chaos``. The second
    process has no Triton."""
    begun = time.time()
    first = start(job)
    hello = wait_for(job, lambda event: event.kind == "hello")
    assert worked(first) < SLACK, "the first word comes before the heavy imports"
    assert hello.versions["torch"]
    before, save = worked(first), send(job, "save", attempt=1)
    heard = wait_for(job, lambda event: event.kind == "acknowledged")
    assert worked(first) - before < SLACK
    assert heard.command_id == save.id
    loaded = wait_for(job, lambda event: event.kind == "stage" and event.stage != "preparing")
    assert heard.at < loaded.at, "heard while the libraries load"
    assert hello.at - begun < (loaded.at - begun) / 2, "nor does it wait for anything else"
    sample = send(job, "sample", prompt="the cat", max_new_tokens=4, attempt=1)
    wait_for(job, lambda event: event.kind == "sample" and event.side == "tuned")
    wait_for(job, lambda event: event.kind == "step" and event.step >= 6)
    first.send_signal(signal.SIGKILL)
    first.wait()
    once = {event.step: event.loss for event in events(job) if event.kind == "step"}
    assert max(once) < STEPS

    assert start(job, triton=False).wait(240) == 0
    resumed = [event for event in events(job) if event.attempt == 2]
    assert not [event for event in resumed if event.kind in ("sample", "acknowledged")], "nothing is obeyed twice"
    assert {event.command_id for event in events(job) if event.kind == "sample"} == {sample.id}
    began = next(event.resumed_step for event in resumed if event.kind == "starting")
    again = {event.step: event.loss for event in resumed if event.kind == "step"}
    assert 0 < began <= max(once)
    assert list(again) == list(range(began + 1, STEPS + 1))
    assert once | again == again | once, "steps that were done twice have the same loss"
    assert resumed[-1].kind == "finished"


@pytest.mark.parametrize(("verb", "last"), [("stop", "stopped"), ("pause", "paused")])
def test_who_is_asked_to_leave_while_the_libraries_load_leaves_at_once(
    job: JobFolder, verb: Literal["stop", "pause"], last: str
) -> None:
    worker = start(job)
    wait_for(job, lambda event: event.kind == "stage")
    asked = send(job, verb, attempt=1)
    assert worker.wait(60) == 0
    said = events(job)
    assert [event.kind for event in said] == ["hello", "stage", "acknowledged", last]
    assert said[-2].command_id == asked.id
    assert said[-1].at - asked.at < SLACK, "it does not wait for the libraries"


@pytest.mark.parametrize(
    ("error", "kind", "code", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "train", "disk.full",
         ["Make room on this disk, then resume; the last good checkpoint stands."]),
        (OSError(errno.ENOSPC, "No space left on device"), "export", "disk.full",
         ["Make room on this disk, then ask for it again."]),
        (type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory. Tried to allocate"), "train", "memory.gpu",
         ["tokens a pass"]),
        (MemoryError(), "export", "memory.host", ["GB are free now", "ask for it again"]),
        (RuntimeError("CUDA out of memory"), "report", "memory.gpu", ["Close what else uses the card"]),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "train", "memory.host",
         ["GB are free now"]),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "train", "memory.host",
         ["GB are free now"]),
        (RuntimeError("first line\nsecond line"), "train", "worker.fault", ["first line", "worker.log"]),
    ],
)  # fmt: skip
def test_a_fault_becomes_a_line_with_what_to_do(error: Exception, kind: str, code: str, words: list[str]) -> None:
    said = Failed.by(fault_of(error, kind))
    line = f"{said.message} {said.hint}"
    assert (said.code, "\n" in line) == (code, False)
    assert [word for word in words if word not in line] == []


@pytest.mark.parametrize(
    ("value", "noted", "fault"),
    [("learning_rate: high", [], "learning_rate"),
     ("sparkle: 1", ["run.yaml was written by another version; fields that this one does not know are left out: "
                     "train.sparkle."], "data.path")],
)  # fmt: skip
def test_a_run_yaml_that_is_wrong_or_of_another_version_is_said_and_no_traceback(
    tmp_path: Path, value: str, noted: list[str], fault: str
) -> None:
    (tmp_path / "run.yaml").write_text(f"train:\n  {value}\n")
    assert main([str(tmp_path)]) == 0
    said = events(JobFolder(tmp_path))
    assert [note.text for note in said if isinstance(note, Note)] == noted
    assert (said[-1].kind, said[-1].code, fault in said[-1].hint) == ("failed", "config.faults", True)


def test_without_a_folder_it_says_how_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 1
    assert "python -m core.worker" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "illegal memory access"),
        (Afresh("The learning rate was halved."), "The learning rate was halved."),
    ],
)
def test_a_fault_of_the_card_or_a_wish_asks_for_a_fresh_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def work(*_arguments: Any) -> None:
        raise error

    monkeypatch.setattr(core.worker, "_work", work)
    assert main([str(tmp_path)]) == core.worker.RESTART == 75
    told = events(JobFolder(tmp_path))
    assert "failed" not in [event.kind for event in told]
    assert (told[-1].kind, told[-1].code, said in told[-1].text) == ("note", "worker.restart", True)


def test_a_worker_whose_card_is_gone_does_not_train_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = Machine((), 2, 0, 0, None, "Linux", False)
    monkeypatch.setattr(core.worker, "read_machine", lambda _home: bare)
    monkeypatch.setattr(core.worker, "_work", lambda *_arguments: pytest.fail("trained"))
    monkeypatch.setenv("LUTHIER_CARD", "GPU-1")
    assert main([str(tmp_path)]) == 75
    assert events(JobFolder(tmp_path))[-1].text == "The card does not answer."


def test_a_signal_shows_where_every_thread_stands_before_anything_heavy_is_there(tmp_path: Path) -> None:
    """A worker that is met in its first second, with the handler in place before its first word."""
    folder = JobFolder(tmp_path)
    (tmp_path / "run.yaml").write_text("name: x\n")
    worker = start(folder)
    try:
        wait_for(folder, lambda event: event.kind == "hello")
        worker.send_signal(signal.SIGUSR1)
        shown = ("most recent call first", "worker.py", "in main")  # a dump is written line by line
        until(lambda: all(words in folder.log.read_text() for words in shown), 30, folder.log.read_text)
    finally:
        worker.kill()
        worker.wait()
