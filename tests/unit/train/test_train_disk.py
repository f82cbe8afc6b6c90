"""A full disk costs a run nothing but time: it waits, says for what, obeys meanwhile, and ends as it would have."""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dying_log import Log
from tiny_run import equal, weights

from core.contract.commands import Command
from core.contract.errors import MachineError
from core.contract.events import Acknowledged, Checkpoint, Note, Stage
from core.runs.log import events_log as log_module
from core.runs.log.events_log import EventTail, EventWriter, PatientWriter
from core.train import loop as loop_module
from core.train.channel import channel, command_queue
from core.train.keep import checkpoint

TESTS = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(command_queue, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(log_module, "PATIENCE_SECONDS", 0.1)


def file_of(descriptor: int) -> str:
    """The name of an open file."""
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink().name
    except OSError:
        return ""


class FullLog:
    """Refuses what is written to one file after so many bytes, as a full disk does: the last write is short."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        self.refused = 0
        real = os.write

        def write(descriptor: int, data: bytes) -> int:
            if self.left is None or file_of(descriptor) != "events.jsonl":
                return real(descriptor, data)
            if len(data) > self.left:
                self.refused += 1
                part, self.left = data[: self.left], 0
                if part:
                    return real(descriptor, part)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.left -= len(data)
            return real(descriptor, data)

        monkeypatch.setattr(os, "write", write)


@pytest.fixture
def full_log(monkeypatch: pytest.MonkeyPatch) -> FullLog:
    return FullLog(monkeypatch)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[PatientWriter]:
    made = PatientWriter(tmp_path / "events.jsonl", 1)
    yield made
    made.close()


def texts(path: Path) -> list[str]:
    return [event.text for event in EventTail(path).read() if isinstance(event, (Note, Stage))]


def test_what_the_log_refuses_is_kept_in_order_and_written_later(writer: PatientWriter, full_log: FullLog) -> None:
    writer.write(Note(text="before"))
    full_log.left = 30
    before = time.time()
    for number in range(3):
        writer.write(Note(text=f"kept {number}"))
    assert writer.behind
    assert texts(writer.path) == ["before"]
    assert writer.path.read_bytes().endswith(b"\n"), "half a line is taken back"
    full_log.left = None
    writer.catch_up()
    assert not writer.behind
    assert texts(writer.path) == ["before", "kept 0", "kept 1", "kept 2"]
    assert before <= EventTail(writer.path).read()[-1].at <= time.time(), "the time is that of the saying"


def test_of_progress_that_could_not_be_written_the_last_word_is_enough(
    writer: PatientWriter, full_log: FullLog
) -> None:
    full_log.left = 0
    for done in range(1000):
        writer.write(Stage(stage="loading", text=str(done)))
    full_log.left = None
    writer.write(Note(text="after"))
    assert texts(writer.path) == ["999", "after"]


def test_room_set_aside_takes_the_words_about_a_full_disk(
    writer: PatientWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside = writer.path.with_name(".room")
    assert aside.stat().st_blocks * 512 >= log_module.RESERVED_BYTES
    real = EventWriter.write

    def write(self: EventWriter, event: Any) -> Any:
        if aside.exists():
            raise MachineError.told_by({"code": "disk.write", "message": "full"})
        return real(self, event)

    monkeypatch.setattr(EventWriter, "write", write)
    writer.write(Stage(stage="waiting", text="room"))
    assert not writer.behind
    assert not aside.exists()
    assert texts(writer.path) == ["room"]


def test_half_a_line_that_cannot_be_taken_back_is_never_followed(
    tmp_path: Path, full_log: FullLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = EventWriter(tmp_path / "events.jsonl", 1)
    writer.write(Note(text="whole"))
    real = os.ftruncate

    def refuse(_descriptor: int, _size: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "ftruncate", refuse)
    full_log.left = 20
    with pytest.raises(MachineError):
        writer.write(Note(text="torn"))
    full_log.left = None
    with pytest.raises(MachineError):
        writer.write(Note(text="would be swallowed"))
    monkeypatch.setattr(os, "ftruncate", real)
    writer.write(Note(text="after"))
    assert texts(writer.path) == ["whole", "after"]


def test_what_cannot_be_made_durable_is_not_written_twice(
    writer: PatientWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    full = [True]

    def fsync(descriptor: int) -> None:
        calls.append(descriptor)
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    writer.write(Checkpoint(name="step-000001", step=1))
    full[0] = False
    writer.write(Note(text="after"))
    writer.write(Note(text="later"))
    assert [event.kind for event in EventTail(writer.path).read()] == ["checkpoint", "note", "note"]
    assert len(calls) == 2, "asked again at the next event, then no more"


class Heard(Log, PatientWriter):
    """A worker's writer, which keeps what the disk does not take."""


def no_room_for(times: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The disk is too full for the second checkpoint so often."""
    asked: list[int] = []

    def room_for(root: Path, expected: int) -> None:
        if list(root.glob("step-*")) and len(asked) < times:
            asked.append(expected)
            raise checkpoint._full(root, 10**15)

    monkeypatch.setattr(checkpoint, "_require_room", room_for)
    return asked


def test_a_checkpoint_waits_for_room_and_the_run_ends_as_it_would_have(
    runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, folder = runs.undisturbed()[0], runs.make()
    asked = no_room_for(3, monkeypatch)
    log = runs.work(folder, kind=Heard)
    assert len(asked) == 3
    waits = [event.text for event in log.of("stage") if event.stage == "waiting"]
    assert "1,000,000,017 MB" in waits[0]
    assert "MB" in waits[0].partition("found")[2]
    assert log.said[-1].kind == "finished"
    assert equal(weights(folder), weights(whole))


@pytest.mark.parametrize(("verb", "ending"), [("pause", "paused"), ("stop", "stopped")])
def test_whoever_waits_for_room_obeys_and_the_last_checkpoint_stays(
    verb: Any, ending: str, runs: Any, letters: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_room_for(10**9, monkeypatch)
    asked_at: list[float] = []

    def ask(event: Any) -> None:
        if event.kind == "stage" and event.stage == "waiting" and not asked_at:
            asked_at.append(time.monotonic())
            letters.waiting.append(Command(verb=verb))

    folder = runs.make()
    log = runs.work(folder, 1, ask, Heard)
    assert time.monotonic() - asked_at[0] < 5
    assert log.said[-1].kind == ending
    assert getattr(log.said[-1], "kept", False) is False
    assert "checkpoint.no_room" in [note.code for note in log.of("note")]
    assert checkpoint.latest_good(folder) == folder.checkpoints / "step-000002"


def test_a_log_that_takes_nothing_stops_the_training_until_it_does_and_loses_no_command(
    runs: Any, letters: Any, full_log: FullLog
) -> None:
    steps_at: list[int] = []

    def fill(event: Any) -> None:
        if event.kind == "step":
            done.append(event.step)
            if event.step == 3 and full_log.left is None and not steps_at:
                full_log.left = 50
        heard.append(event.kind)
        if event.kind == "stage" and event.stage == "waiting" and full_log.left is not None:
            steps_at.append(max(done))
            letters.waiting.append(Command(id="save", verb="save"))
            until = time.monotonic() + 10
            while "acknowledged" not in heard and time.monotonic() < until:
                time.sleep(0.01)
            full_log.left = None

    done: list[int] = []
    heard: list[str] = []
    folder = runs.make(train__max_steps=8, train__save_steps=100)
    runs.work(folder, 1, fill, Heard)
    assert full_log.refused
    assert steps_at[0] <= 4, "training waited at the next safe point"
    written = EventTail(folder.events).read()
    assert [event.kind for event in written][-1] == "finished"
    assert [event.step for event in written if event.kind == "step"] == list(range(1, 9))
    (told,) = [event for event in written if isinstance(event, Acknowledged)]
    assert told.command_id == "save"
    assert any(event.kind == "checkpoint" and event.step < 8 for event in written), "and it was obeyed"


def test_the_split_waits_for_room_too(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real, tries = os.fsync, []

    def fsync(descriptor: int) -> None:
        if file_of(descriptor).startswith(".tmp-rows.json-") and len(tries) < 2:
            tries.append(descriptor)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    folder, log = runs(train__max_steps=1)
    assert len(tries) == 2
    assert "waiting" in {event.stage for event in log.of("stage")}
    assert json.loads((folder.path / "rows.json").read_text())["rows"] == 40


def test_a_stop_saves_within_seconds(runs: Any, letters: Any) -> None:
    asked: list[float] = []

    def ask(event: Any) -> None:
        if event.kind == "step" and event.step == 3:
            asked.append(time.monotonic())
            letters.waiting.append(Command(verb="stop"))

    folder = runs.make(train__max_steps=10_000, train__eval_steps=10_000, train__save_steps=10_000)
    last = runs.work(folder, 1, ask).said[-1]
    assert time.monotonic() - asked[0] < 30
    assert (last.kind, last.kept) == ("stopped", True)
    assert checkpoint.latest_good(folder) == folder.checkpoints / f"step-{last.step:06d}"


@pytest.mark.parametrize(("moment", "at"), [("evaluating", 3), ("step", 2)])
def test_time_saves_in_the_middle_of_what_takes_long(
    moment: str, at: int, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(loop_module, "time", SimpleNamespace(monotonic=lambda: now[0], perf_counter=time.perf_counter))

    def pass_by(event: Any) -> None:
        if event.step == at and moment in (event.kind, getattr(event, "stage", "")):
            now[0] = 400.0

    folder = runs.make(train__save_steps=100, train__save_minutes=5.0, train__eval_steps=3, train__max_steps=4)
    log = runs.work(folder, 1, pass_by)
    assert log.of("checkpoint")[0].step == at
    if moment == "evaluating":
        kinds = [event.kind for event in log.said if event.step == 3 and event.kind in ("checkpoint", "evaluation")]
        assert kinds[:2] == ["checkpoint", "evaluation"], "not only after it"


def has_namespaces() -> bool:
    if not shutil.which("unshare"):
        return False
    trial = ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(trial, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("look", ["look", "no look"])
def test_a_disk_full_at_every_megabyte_ends_as_one_that_never_was(look: str, tmp_path: Path) -> None:
    if not has_namespaces():
        pytest.skip("expected to mount a disk of our own; this machine does not let us")
    place = tmp_path / "disk"
    place.mkdir()
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    program = [sys.executable, str(Path(__file__).with_name("full_disk.py")), str(place), look, "1"]
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", *program],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    sweep = json.loads(done.stdout.splitlines()[-1])
    assert len(sweep["points"]) >= 10
    assert all(equal for _, _, equal in sweep["points"])
    waited = [waited for _, waited, _ in sweep["points"]]
    assert waited[0]
    assert not waited[-1], "the last one has room, so the sweep covers every write"


def test_a_full_worker_log_stops_nobody_who_prints() -> None:
    program = (
        "from core.train.channel.reporter import print_or_drop; print_or_drop()\n"
        "import sys, traceback\n"
        "for _ in range(1000): print('words ' * 100)\n"
        "print('more', file=sys.stderr)\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: traceback.print_exc()\n"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=full, stderr=full, check=False, cwd=TESTS.parent)
    assert done.returncode == 0
