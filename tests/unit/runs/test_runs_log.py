"""The events log: whole lines only, whoever is killed, and one reader that misses nothing and repeats nothing."""

import itertools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.contract.errors import MachineError, RunError
from core.contract.events import Acknowledged, Note, Step
from core.machine.locks import is_held
from core.runs.control.mailbox import Mailbox, acknowledged_ids, open_mailbox, send
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import ATTEMPT_VARIABLE, EventTail, EventWriter, LogHold, last_event, open_writer


@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=8),
    cuts=st.lists(st.integers(0, 2000), max_size=12),
)
@settings(max_examples=150, deadline=None)
def test_a_tail_reads_every_event_once_wherever_the_writes_are_cut(texts: list[str], cuts: list[int]) -> None:
    data = b"".join(Note(text=text).model_dump_json().encode() + b"\n" for text in texts)
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        tail, read = EventTail(path), []
        with path.open("ab", buffering=0) as log:
            for start, end in itertools.pairwise(edges):
                log.write(data[start:end])
                read += tail.read()
        read += tail.read()
    assert [event.text for event in read if isinstance(event, Note)] == texts
    assert tail.offset == len(data)


def test_unknown_kinds_and_rubbish_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"kind":"dream","at":1}\n\n[1]\nnull\n\xff\xfe\n{"kind":"step","step":"x"}\n')
    written = EventWriter(path, 3).write(Step(step=7, loss=float("nan")))
    assert (written.attempt, written.at > 1e9) == (3, True), "time and attempt are filled in"
    (read,) = EventTail(path).read()
    assert (read.step, read.attempt, read.loss) == (7, 3, None)
    assert last_event(path) == read
    assert EventTail(tmp_path / "missing").read() == []
    assert last_event(tmp_path / "missing") is None


def test_half_a_written_line_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    writer = EventWriter(path, 1)
    writer.write(Note(text="one"))
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[: len(data) // 2]))
    with pytest.raises(MachineError, match="Make room"):
        writer.write(Note(text="two"))
    monkeypatch.undo()
    writer.write(Note(text="three"))
    assert [event.text for event in EventTail(path).read() if isinstance(event, Note)] == ["one", "three"]


@given(body=st.binary(max_size=300), whole=st.integers(0, 3))
@example(body=b"x" * 200_000, whole=1)
@settings(max_examples=60, deadline=None)
def test_taking_a_log_over_cuts_it_back_to_its_last_newline(body: bytes, whole: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = JobFolder(Path(name))
        lines = Note(text="x" * 30).model_dump_json().encode() + b"\n"
        folder.events.write_bytes(lines * whole + body)
        hold = LogHold(folder)
        assert hold.take()
        left = folder.events.read_bytes()
        assert left == (lines * whole + body)[: (lines * whole + body).rfind(b"\n") + 1]
        hold.give()


def test_a_worker_started_by_hand_counts_up_and_keeps_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ATTEMPT_VARIABLE, raising=False)
    folder = JobFolder(tmp_path)
    EventWriter(folder.events, 4).write(Note())
    writer = open_writer(folder)
    assert writer.attempt == 5
    assert is_held(folder.events)
    with pytest.raises(RunError, match="being worked on already"):
        open_writer(folder)
    monkeypatch.setenv(ATTEMPT_VARIABLE, "9")
    assert open_writer(folder).attempt == 9


def test_commands_reach_their_attempt_once(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    EventWriter(folder.events, 2).write(Note())
    old, stop = send(folder, "stop", attempt=1), send(folder, "stop")
    question = send(folder, "sample", prompt="who?", max_new_tokens=5)
    now = send(folder, "stop_now")
    assert (old.attempt, stop.attempt) == (1, 2)
    mailbox = Mailbox(folder, 2, set())
    assert mailbox.poll() == [stop, question]
    assert mailbox.poll() == []
    late = send(folder, "pause")
    assert mailbox.poll() == [late]
    assert Mailbox(folder, 2, {stop.id, question.id, late.id}).poll() == []
    assert Mailbox(folder, 2, set(), {"stop_now"}).poll() == [now]
    assert Mailbox(folder, 3, set()).poll() == []


def test_a_sender_that_died_in_its_write_spoils_only_its_own_line(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    folder.commands.write_bytes(b'{"verb":"sto')
    command = send(folder, "save")
    assert command.attempt == 1
    assert open_mailbox(folder, 1).poll() == [command]
    EventWriter(folder.events, 1).write(Acknowledged(command_id=command.id, command="save"))
    assert acknowledged_ids(folder.events) == {command.id}
    assert open_mailbox(folder, 1).poll() == [], "what the log acknowledges is not read again"
    with pytest.raises(RunError, match="deleted"):
        send(JobFolder(tmp_path / "gone"), "stop")
    assert not (tmp_path / "gone").exists()


def numbered(path: Path, count: int = 6) -> list[bytes]:
    """A log of so many lines, as bytes."""
    writer = EventWriter(path, 1)
    for step in range(1, count + 1):
        writer.write(Step(step=step, loss=1 / step))
    writer.close()
    return path.read_bytes().splitlines(keepends=True)


def look(path: Path) -> tuple[list[int], int]:
    tail = EventTail(path)
    return [event.step for event in tail.read()], tail.damaged


@pytest.mark.parametrize(
    ("harm", "steps", "damaged"),
    [
        (lambda lines: [*lines[:2], lines[2].replace(b'"loss":0.3', b'"loss":0.4'), *lines[3:]], [1, 2, 4, 5, 6], 1),
        (lambda lines: [*lines[:2], *lines[4:]], [1, 2, 5, 6], 2),
        (lambda lines: lines[2:], [3, 4, 5, 6], 2),
        (lambda lines: [*lines[:3], lines[3][:20] + b"\n", *lines[4:]], [1, 2, 3, 5, 6], 1),
        (lambda lines: [*lines[:3], lines[3][:20], *lines[4:]], [1, 2, 3, 6], 2),
        (lambda lines: [*lines[:1], bytes(len(lines[1]) + len(lines[2])) + b"\n", *lines[3:]], [1, 4, 5, 6], 2),
        (lambda lines: [*lines[:5], lines[5].replace(b"6", b"7")], [1, 2, 3, 4, 5], 1),
        (lambda lines: lines, [1, 2, 3, 4, 5, 6], 0),
    ],
    ids=["a digit", "a hole", "no beginning", "half a line", "half a line and its end", "zeros", "the last", "whole"],
)
def test_damage_is_left_out_and_counted(
    tmp_path: Path, harm: Callable[[list[bytes]], list[bytes]], steps: list[int], damaged: int
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(harm(numbered(path))))
    assert look(path) == (steps, damaged)
    assert last_event(path).step == steps[-1]
    writer = EventWriter(path, 2)  # whoever goes on adds nothing to it and hides nothing of it
    writer.write(Step(step=9))
    assert look(path) == ([*steps, 9], damaged)


def test_a_log_of_an_older_version_is_read_and_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("".join(Step(step=n).model_dump_json() + "\n" for n in (1, 2)))
    for step in (3, 4):
        EventWriter(path, 2).write(Step(step=step))
    with path.open("a") as log:
        log.write(Step(step=5).model_dump_json() + "\n")
    EventWriter(path, 3).write(Step(step=6))
    first, second = EventWriter(path, 4), EventWriter(path, 5)
    for step in (7, 8, 9, 10):  # two writers in turn count on
        (first if step % 2 else second).write(Step(step=step))
    assert look(path) == (list(range(1, 11)), 0)
