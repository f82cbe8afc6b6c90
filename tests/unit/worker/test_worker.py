"""The worker as a process: first word, commands, a kill in mid-run, and every fault said in one line."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from tiny_run import make_in

from core.contract.config import RunConfig
from core.contract.errors import ConfigError, DataError
from core.contract.events import Event, Note
from core.machine.hardware import Machine
from core.machine.locations import REPOSITORY
from core.runs.control.mailbox import send
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import dump_config
from core.runs.log.events_log import EventTail
from core.worker import failure_of, main

STEPS = 150
SLACK = 3.0
"""Seconds. Alone on two cores both take well under one; a whole test run shares them."""


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., JobFolder]:
    """A run folder on the tiny model and data that the tests of training make."""

    def make(name: str, **train: Any) -> JobFolder:
        if not (tmp_path / "run.json").exists():
            make_in(str(tmp_path))
        raw = json.loads((tmp_path / "run.json").read_text())
        raw["train"].update(train)
        path = tmp_path / "runs" / name
        path.mkdir(parents=True)
        (path / "run.yaml").write_text(dump_config(RunConfig.model_validate(raw)), encoding="utf-8")
        return JobFolder(path)

    return make


def start(folder: JobFolder) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with folder.log.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "core.worker", str(folder.path)],
            cwd=REPOSITORY, env=environment, stdout=log, stderr=log,
        )  # fmt: skip


def events(folder: JobFolder) -> list[Any]:
    return list(EventTail(folder.events).read())


def wait_for(folder: JobFolder, wanted: Callable[[Event], bool], seconds: float = 240) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for event in events(folder):
            if wanted(event):
                return event
        time.sleep(0.02)
    raise AssertionError(f"waited in vain; the log ends {[event.kind for event in events(folder)[-5:]]}\n"
                         + folder.log.read_text()[-2000:])  # fmt: skip


def test_speaks_at_once_obeys_survives_a_kill_and_ends_like_a_whole_run(job: Callable[..., JobFolder]) -> None:
    broken, whole = job("broken"), job("whole")
    begun = time.time()
    first = start(broken)
    hello = wait_for(broken, lambda event: event.kind == "hello")
    assert hello.at - begun < SLACK, "the first word comes before the heavy imports"
    assert hello.versions["torch"]
    save = send(broken, "save", attempt=1)
    heard = wait_for(broken, lambda event: event.kind == "acknowledged")
    assert heard.command_id == save.id
    assert heard.at - save.at < SLACK, "heard while the libraries load"
    sample = send(broken, "sample", prompt="the cat", max_new_tokens=4, attempt=1)
    wait_for(broken, lambda event: event.kind == "sample" and event.side == "tuned")
    wait_for(broken, lambda event: event.kind == "step" and event.step >= 25)
    first.send_signal(signal.SIGKILL)
    first.wait()
    last = max(event.step for event in events(broken) if event.kind == "step")
    assert last < STEPS

    uninterrupted, second = start(whole), start(broken)
    wait_for(broken, lambda event: event.attempt == 2 and event.kind == "plan")
    assert uninterrupted.wait(240) == second.wait(240) == 0
    resumed = [event for event in events(broken) if event.attempt == 2]
    assert not [event for event in resumed if event.kind in ("sample", "acknowledged")], "nothing is obeyed twice"
    assert {event.command_id for event in events(broken) if event.kind == "sample"} == {sample.id}
    began = next(event.resumed_step for event in resumed if event.kind == "starting")
    assert 0 < began <= last
    losses = {event.step: event.loss for event in events(whole) if event.kind == "step"}
    again = {event.step: event.loss for event in resumed if event.kind == "step"}
    assert list(again) == list(range(began + 1, STEPS + 1))
    assert again == {step: losses[step] for step in again}
    final = Path(f"checkpoints/step-{STEPS:06d}/adapter/adapter_model.safetensors")
    assert (broken.path / final).read_bytes() == (whole.path / final).read_bytes()
    assert [events(folder)[-1].kind for folder in (whole, broken)] == ["finished", "finished"]


@pytest.mark.parametrize(("verb", "last"), [("stop", "stopped"), ("pause", "paused")])
def test_who_is_asked_to_leave_while_the_libraries_load_leaves_at_once(
    job: Callable[..., JobFolder], verb: Literal["stop", "pause"], last: str
) -> None:
    folder = job("early")
    worker = start(folder)
    wait_for(folder, lambda event: event.kind == "stage")
    asked = send(folder, verb, attempt=1)
    assert worker.wait(60) == 0
    said = events(folder)
    assert [event.kind for event in said] == ["hello", "stage", "acknowledged", last]
    assert said[-2].command_id == asked.id
    assert said[-1].at - asked.at < SLACK, "it does not wait for the libraries"


def test_a_fault_becomes_a_line_with_what_to_do() -> None:
    said = failure_of(
        DataError.told_by(
            {"code": "data.empty", "message": "Expected rows, found none.", "hint": "Choose another file."}
        )
    )
    assert (said.code, said.message, said.hint) == ("data.empty", "Expected rows, found none.", "Choose another file.")
    faults = failure_of(
        ConfigError.told_by(
            {"code": "config.faults", "message": "run.yaml has 2 faults:", "problems": ["a: wrong", "b: wrong"]}
        )
    )
    assert "a: wrong" in faults.hint
    assert "b: wrong" in faults.hint
    full = failure_of(OSError(errno.ENOSPC, "No space left on device"))
    assert full.code == "disk.full"
    assert full.hint == "Make room on this disk, then resume; the last good checkpoint stands."
    assert failure_of(OSError(errno.ENOSPC, "No space left on device"), "export").hint == (
        "Make room on this disk, then export again."
    )
    assert "export again" in failure_of(MemoryError(), "export").hint
    card = failure_of(type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory. Tried to allocate"))
    assert card.code == "memory.gpu"
    for full in (
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ):
        host = failure_of(full)
        assert host.code == "memory.host"
        assert "GB are free now" in host.message
        assert "\n" not in host.message + host.hint
    assert "tokens a pass" in card.hint
    unknown = failure_of(RuntimeError("first line\nsecond line"))
    assert unknown.code == "worker.fault"
    assert "first line" in unknown.message
    assert "\n" not in unknown.message
    assert "worker.log" in unknown.hint


def test_a_wrong_run_yaml_is_a_failed_job_not_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("train:\n  learning_rate: high\n")
    assert main([str(tmp_path)]) == 0
    last = events(JobFolder(tmp_path))[-1]
    assert last.kind == "failed"
    assert last.code == "config.faults"
    assert "learning_rate" in last.hint


def test_a_field_of_another_version_is_left_out_and_said(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("train:\n  sparkle: 1\n")
    assert main([str(tmp_path)]) == 0
    said = events(JobFolder(tmp_path))
    assert [note.text for note in said if isinstance(note, Note)] == [
        "run.yaml was written by another version; fields that this one does not know are left out: train.sparkle."
    ]
    assert said[-1].kind == "failed"
    assert "data.path" in said[-1].hint


def test_without_a_folder_it_says_how_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 1
    assert "python -m core.worker" in capsys.readouterr().err


def test_a_card_fault_asks_for_a_fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import core.worker

    def fault(*_arguments: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(core.worker, "_work", fault)
    assert main([str(tmp_path)]) == core.worker.RESTART == 75
    said = events(JobFolder(tmp_path))
    assert "failed" not in [event.kind for event in said]
    assert (said[-1].kind, said[-1].code) == ("note", "worker.restart")
    assert "illegal memory access" in said[-1].text


def test_a_wish_for_a_fresh_process_is_said_as_the_last_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import core.worker
    from core.train.channel.command_queue import Afresh

    def wish(*_arguments: Any) -> None:
        raise Afresh("The learning rate was halved.")

    monkeypatch.setattr(core.worker, "_work", wish)
    assert main([str(tmp_path)]) == 75
    last = events(JobFolder(tmp_path))[-1]
    assert (last.kind, last.code, last.text) == ("note", "worker.restart", "The learning rate was halved.")


def test_a_worker_whose_card_is_gone_does_not_train_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import core.worker

    bare = Machine((), 2, 0, 0, None, "Linux", False)
    monkeypatch.setattr(core.worker, "read_machine", lambda _home: bare)
    monkeypatch.setattr(core.worker, "_work", lambda *_arguments: pytest.fail("trained"))
    monkeypatch.setenv("LUTHIER_CARD", "GPU-1")
    assert main([str(tmp_path)]) == 75
    assert events(JobFolder(tmp_path))[-1].text == "The card does not answer."


def test_a_signal_shows_where_every_thread_stands_before_anything_heavy_is_there(tmp_path: Path) -> None:
    """A worker that is met in its first second, with the handler in place before its first word."""
    (tmp_path / "run.yaml").write_text("name: x\n")
    worker = start(JobFolder(tmp_path))
    try:
        wait_for(JobFolder(tmp_path), lambda event: event.kind == "hello")
        worker.send_signal(signal.SIGUSR1)
        end = time.monotonic() + 30
        while True:  # a dump is written line by line, and is read while it is
            log = JobFolder(tmp_path).log.read_text()
            if ("most recent call first" in log and "in main" in log) or time.monotonic() > end:
                break
            time.sleep(0.02)
        assert "most recent call first" in log
        assert "worker.py" in log
        assert "in main" in log
    finally:
        worker.kill()
        worker.wait()
