"""Run folders that others made, or that are half gone: each is shown as it is, and none stops the others."""

import errno
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from living_runs import Config, finished

from core.cli.commands import main
from core.contract.errors import ConfigError, RunError
from core.contract.events import Note, Sample
from core.machine.disk import open_plain
from core.machine.locks import FileLock
from core.runs.control.mailbox import send
from core.runs.control.store import RunStore
from core.runs.folder.flaws import MOST_BYTES, flaw_of
from core.runs.folder.job_folder import ExportRequest, JobFolder
from core.runs.folder.notes import changed_since, given_name, read_asked
from core.runs.folder.run_yaml import dump_config, read_wish
from core.runs.log.events_log import EventWriter
from core.runs.process.processes import Owners, read_owners
from core.runs.record.summary import summarise

QUICK_SECONDS = 2.0


@pytest.fixture
def bad(store: RunStore, config: Config) -> JobFolder:
    """A finished run, still sound, beside another one that stays so."""
    finished(store, config("good"), 1)
    return finished(store, config("bad"), 1)


def as_link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def as_socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)  # bound, its path could have no more than 107 bytes


def as_sparse(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(8 << 30)


HARM: dict[str, Callable[[Path], None]] = {
    "zero": lambda path: path.symlink_to("/dev/zero"),
    "away": lambda path: path.symlink_to("../../elsewhere"),
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "socket": as_socket,
    "sparse": as_sparse,
}
NEEDED = ("run.yaml", "events.jsonl", "commands.jsonl", "supervisor.lock")
SPARE = ("name", "summary.json", "supervisor.json", "asked.json", "began.json")


@pytest.mark.parametrize("file", [*NEEDED, *SPARE])
def test_a_bad_file_makes_one_run_unreadable_and_the_others_none(
    store: RunStore, config: Config, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run for each way of being bad, called after it, beside a sound one."""
    finished(store, config("good"), 1)
    bad = {harm: finished(store, config(harm), 1) for harm in HARM if file in NEEDED or harm != "sparse"}
    for harm, folder in bad.items():
        (folder.path / file).unlink(missing_ok=True)
        HARM[harm](folder.path / file)
    began = time.monotonic()
    shown = {run.run_id: run for run in store.list()}
    assert sorted(run.state for run in shown.values()) == ["finished", *["unreadable"] * len(bad)]
    for folder in bad.values():
        failure = shown[folder.name].failure
        assert failure is not None
        assert file in failure.message, folder.name
    assert main(["runs", "--home", str(store.locations.home)]) == 0
    assert capsys.readouterr().out.count(file) >= len(bad)
    assert store.adopt() == []
    assert time.monotonic() - began < QUICK_SECONDS
    for folder in bad.values():
        began = time.monotonic()
        for ask in (store.record, store.stop, store.resume, lambda run: store.export(run, ExportRequest(name="x"))):
            with pytest.raises(RunError, match=file):
                ask(folder.name)
        store.delete(folder.name)
        assert time.monotonic() - began < QUICK_SECONDS, folder.name
    assert [run.state for run in store.list()] == ["finished"]


@pytest.mark.parametrize("file", SPARE)
def test_a_file_that_a_run_can_do_without_may_be_too_large(store: RunStore, bad: JobFolder, file: str) -> None:
    """A summary of an older version was as large as its texts."""
    as_sparse(bad.path / file)
    began = time.monotonic()
    assert [run.state for run in store.list()] == ["finished", "finished"]
    record = store.record(bad.name)
    assert (record.state, record.last_step) == ("finished", 1)
    assert (given_name(bad), read_asked(bad), read_owners(bad)) == (None, None, Owners())
    assert changed_since(bad, bad.config()) == ""
    if file == "summary.json":
        assert bad.summary_json.stat().st_size < MOST_BYTES[file], "it is written anew"
    assert store.adopt() == []
    store.delete(bad.name)
    assert time.monotonic() - began < QUICK_SECONDS


def test_a_run_that_lives_is_told_by_its_locks_not_by_a_file_that_is_too_large(bad: JobFolder) -> None:
    bad.summary_json.unlink(missing_ok=True)
    bad.events.write_text("".join(bad.events.read_text().splitlines(keepends=True)[:-1]))
    as_sparse(bad.supervisor_json)
    lock = FileLock(bad.supervisor_lock)
    assert lock.acquire()
    assert summarise(bad).state == "training"
    lock.release()
    assert summarise(bad).state == "lost"


def test_a_log_that_may_not_be_read_is_said_and_can_be_deleted(
    store: RunStore, bad: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of root's: its folder looks sound, and opening it is refused."""
    bad.summary_json.unlink(missing_ok=True)

    def refused(path: Path, *more: int) -> int:
        if path == bad.events:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open_plain(path, *more)

    for module in ("core.runs.log.events_log", "core.machine.locks"):
        monkeypatch.setattr(f"{module}.open_plain", refused)
    shown = {run.run_id: run for run in store.list()}
    failure = shown[bad.name].failure
    assert failure is not None
    assert failure.message == "This run cannot be read: events.jsonl cannot be read (Permission denied)."
    with pytest.raises(RunError, match="Permission denied"):
        store.record(bad.name)
    store.delete(bad.name)
    assert [run.state for run in store.list()] == ["finished"]


@pytest.mark.parametrize("part", ["checkpoints", "exports", "jobs", ""])
def test_no_link_of_a_run_is_followed(store: RunStore, bad: JobFolder, tmp_path: Path, part: str) -> None:
    outside = tmp_path / "outside"
    (outside / "step-000001").mkdir(parents=True)
    (outside / "step-000001" / "MANIFEST.json").write_text("{}")
    if part:
        (bad.path / part).symlink_to(outside)
    else:
        bad.path.rename(tmp_path / "moved")
        bad.path.symlink_to(tmp_path / "moved")
    assert "a link" in flaw_of(bad.path)
    assert bad.newest_checkpoint() is None
    with pytest.raises(RunError, match="a link"):
        store.export(bad.name, ExportRequest(name="x"))
    store.delete(bad.name)
    assert not os.path.lexists(bad.path)
    assert (outside / "step-000001" / "MANIFEST.json").exists()
    assert [path for path in store.locations.runs.iterdir() if path.name.startswith(".trash")] == []


def test_what_is_left_of_a_deleted_run_is_shown_as_such(store: RunStore, bad: JobFolder) -> None:
    for path in bad.path.iterdir():
        path.unlink()
    (bad.checkpoints / "step-000001").mkdir(parents=True)
    with pytest.raises(RunError, match="nor a log is there"):
        store.stop(bad.name)
    store.delete(bad.name)
    assert [run.state for run in store.list()] == ["finished"]


def test_log_and_mailbox_are_not_written_through_a_link(store: RunStore, bad: JobFolder, tmp_path: Path) -> None:
    target = tmp_path / "mine"
    target.write_text("mine\n")
    for path in (bad.events, bad.commands):
        as_link(path, str(target))
    with pytest.raises(OSError, match="symbolic link"):
        EventWriter(bad.events, 1)
    with pytest.raises(Exception, match="symbolic link"):
        send(bad, "stop", attempt=1)
    assert target.read_text() == "mine\n"


def test_a_summary_speaks_for_its_own_folder_only(store: RunStore, bad: JobFolder) -> None:
    store.list()
    other = next(run for run in store.list() if run.run_id != bad.name).run_id
    bad.summary_json.write_text(bad.summary_json.read_text().replace(bad.name, other))
    assert {run.run_id for run in store.list()} == {bad.name, other}


@pytest.mark.parametrize("field", ['"at":1e300', '"at":-1e300', '"at":1e999', '"at":NaN', '"step":1' + "0" * 400])
def test_a_line_with_an_impossible_number_is_no_event(store: RunStore, bad: JobFolder, field: str) -> None:
    with bad.events.open("a") as log:
        log.write(f'{{"kind":"step","attempt":1,"loss":1.0,{field}}}\n')
    assert store.record(bad.name).last_step == 1
    assert store.list()[0].state == "finished"


def test_a_note_of_a_hundred_megabytes_is_left_out(store: RunStore, bad: JobFolder) -> None:
    with bad.events.open("a") as log:
        log.write('{"kind":"note","text":"' + "x" * 100_000_000 + '"}\n{"kind":"note","text":"after"}\n')
    began = time.monotonic()
    record = store.record(bad.name)
    assert ([note.text for note in record.notes], record.damaged) == (["after"], 1)
    assert [run.damaged for run in store.list() if run.run_id == bad.name] == [1]
    assert time.monotonic() - began < QUICK_SECONDS


def test_texts_are_shown_at_a_length_that_a_page_can_take(store: RunStore, bad: JobFolder) -> None:
    writer = EventWriter(bad.events, 1)
    for number in range(250):
        writer.write(Note(text=f"{number} " + "x" * 5000))
    writer.write(Sample(text="y" * 200_000))
    record = store.record(bad.name)
    assert len(record.notes) == 200
    assert max(len(note.text) for note in record.notes) < 4_100
    assert len(record.samples[0].text) < 100_100
    bad.given_name.write_text("n" * 4000)
    assert given_name(bad) == "n" * 120


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(8)
)


WIDE = "train: {learning_rate: [" + ", ".join(["x" * 90] * 2000) + "]}\nlora: {r: '" + "y" * 9000 + "'}"
SWELLING = (BOMB, "[" * 100_000, "- " * 50_000, "{" * 100_000, "a: " + "1:" * 100_000, "[" + "a," * 100_000 + "]", WIDE)


@pytest.mark.parametrize("text", SWELLING)
def test_a_run_file_that_swells_is_refused_at_once(store: RunStore, bad: JobFolder, text: str) -> None:
    bad.run_yaml.write_text(text)
    began = time.monotonic()
    for read in (bad.config, lambda: read_wish(bad.run_yaml)):
        with pytest.raises(ConfigError) as raised:
            read()
        assert len(str(raised.value)) < 1000, "what an error repeats of a value is bounded"
    assert {run.state for run in store.list()} == {"finished"}
    assert time.monotonic() - began < QUICK_SECONDS


def test_fields_of_another_version_are_left_out_and_told(store: RunStore, bad: JobFolder) -> None:
    text = dump_config(bad.config()).replace("lora:\n", "lora:\n  sparkle: 3\n") + "later: {a: 1}\n"
    bad.run_yaml.write_text(text)
    assert bad.config().name == "bad"
    assert bad.unknown_fields() == ["lora.sparkle", "later"]
    bad.run_yaml.write_text(text.replace("later:", "lator:"))
    assert bad.unknown_fields() == ["lora.sparkle", "lator"], "a file that changed is read again"
    with pytest.raises(ConfigError, match="2 faults") as raised:
        read_wish(bad.run_yaml)  # a person's own file is read strictly
    assert raised.value.told()["problems"] == list(raised.value.problems), "a page is told each"
