"""The supervisor's own decisions, run inside the test's process: with a card that exists on paper only."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from living_runs import BARE, CARD, Config, RunsHere, Until, run

from core.contract.commands import Verb
from core.contract.errors import MachineError
from core.contract.events import Note, Paused, Queued, Starting, Step
from core.machine.cards import CardLock, CardSet, held_by
from core.machine.hardware import Gpu
from core.machine.locations import Locations
from core.machine.locks import FileLock, is_held
from core.models.suited import put
from core.runs.control.mailbox import send
from core.runs.control.store import RunStore
from core.runs.log.events_log import EventTail, EventWriter
from core.runs.record.job_record import folded
from core.runs.supervise import supervisor, watch
from core.runs.supervise.supervisor import Supervisor, main
from tests.bare_run import bare_run

REFUSED = Note(code="kernels.plain", text="no C compiler", hint="sudo apt install gcc python3-dev")


@pytest.mark.parametrize(
    ("variable", "answer", "said"),
    [
        ("LUTHIER_KERNELS", REFUSED, [("kernels.plain", "no C compiler"), ("told", "plain")]),
        ("LUTHIER_KERNELS", None, [("told", "nothing")]),
        ("CUDA_VISIBLE_DEVICES", None, [("told", "GPU-1")]),
    ],
)
def test_a_worker_is_told_its_card_and_whether_kernels_work(
    store: RunStore,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    answer: Note | None,
    said: list[tuple[str, str]],
) -> None:
    monkeypatch.setattr(supervisor, "check_kernels_once", lambda *_asked: answer)
    monkeypatch.delenv(variable, raising=False)
    record = run(bare_run(store, config(f"tell {variable}")), store.locations, CARD)
    assert [(note.code, note.text) for note in record.notes] == said
    assert record.state == "finished"


def test_unlike_cards_are_told_and_all_of_them_are_waited_for(
    store: RunStore, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "check_kernels_once", lambda *_asked: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (one,) = CARD.gpus
    pair = replace(CARD, gpus=(one, replace(one, index=1, uuid="GPU-2", name="NVIDIA GeForce RTX 4090")))
    second = CardLock(store.locations, CardSet(("GPU-2",)))
    second.acquire("another run")
    folder = bare_run(store, put(config("tell CUDA_VISIBLE_DEVICES"), "train.cards", "all"))
    threading.Timer(0.5, second.release).start()
    record = run(folder, store.locations, pair)
    said = [event.reason for event in EventTail(folder.events).read() if isinstance(event, Queued)]
    assert said == ["", "another run holds one of the cards"]
    first, last = record.notes
    assert (first.code, "RTX 4090" in first.text) == ("cards.unlike", True)
    assert "each gets rows by its measured speed" in first.text
    assert (last.text, record.state) == ("GPU-1", "finished"), "the worker is rank 0"


@pytest.mark.parametrize(("ends", "kept"), [("train 1", True), ("kill 9", False), ("fail", False)])
def test_kernels_are_tried_again_after_a_worker_that_did_not_end_well(
    store: RunStore, config: Config, monkeypatch: pytest.MonkeyPatch, ends: str, kept: bool
) -> None:
    monkeypatch.setattr(supervisor, "check_kernels_once", lambda *_asked: pytest.fail("tried without a card"))
    store.locations.make().kernels.write_text("with what they ran")
    record = run(bare_run(store, config(ends)), store.locations)
    assert (record.state == "finished") == kept
    assert store.locations.kernels.exists() == kept


def test_a_stop_during_the_trial_is_obeyed_at_once(
    store: RunStore, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bare_run(store, config("train 1"))

    def trial(_gpus: Sequence[Gpu], _locations: Locations, interrupted: Callable[[], bool]) -> Note | None:
        assert not interrupted()
        send(folder, "stop")
        assert interrupted()
        return REFUSED

    monkeypatch.setattr(supervisor, "check_kernels_once", trial)
    record = run(folder, store.locations, CARD)
    assert (record.state, record.notes, record.hello) == ("stopped", (), None)
    assert held_by(store.locations, CardSet(("GPU-1",))) is None


def test_a_run_waits_for_a_card_that_someone_else_holds(store: RunStore, config: Config) -> None:
    card = CardLock(store.locations, CardSet())
    card.acquire("Try")
    folder = bare_run(store, config("train 1"))
    threading.Timer(0.5, card.release).start()
    record = run(folder, store.locations)
    said = [event.reason for event in EventTail(folder.events).read() if isinstance(event, Queued)]
    assert said == ["", "Try holds the CPU"]
    assert record.state == "finished"


@pytest.mark.parametrize(("verb", "state"), [("pause", "paused"), ("stop", "stopped"), ("stop_now", "stopped")])
def test_what_was_asked_before_the_worker_is_obeyed_without_one(
    store: RunStore, config: Config, verb: Verb, state: str
) -> None:
    folder = bare_run(store, config("train 1"))
    save, last = send(folder, "save"), send(folder, verb)
    record = run(folder, store.locations)
    assert (record.state, record.hello, record.acknowledged) == (state, None, {save.id, last.id})


def test_a_worker_that_stays_after_its_last_word_is_ended(
    store: RunStore, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LINGER_SECONDS", 0.5)
    began = time.monotonic()
    assert run(bare_run(store, config("linger")), store.locations).state == "finished"
    assert time.monotonic() - began < 10


def test_a_worker_that_cannot_be_started_is_a_failed_run(store: RunStore, config: Config) -> None:
    folder = bare_run(store, config("train 1"))
    lock = FileLock(folder.supervisor_lock)
    lock.acquire()
    with pytest.raises(FileNotFoundError):
        Supervisor(folder, store.locations, BARE, ("/no/such/program",)).run()
    assert folded(folder).failure.code == "supervisor.failed"
    assert not is_held(store.locations.locks / "cpu")
    lock.release()


def test_a_promise_is_kept_when_the_worker_asks_for_a_fresh_process(
    store: RunStore, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bare_run(store, config("exit 75"))
    real = supervisor.start_worker

    def start(*arguments: object) -> object:
        send(folder, "stop")  # the worker dies without having read it
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(supervisor, "start_worker", start)
    record = run(folder, store.locations)
    assert (record.state, record.attempt) == ("stopped", 1)


def test_a_log_without_anybody_is_brought_to_its_end(store: RunStore, config: Config) -> None:
    folder = bare_run(store, config("train 1"))
    writer = EventWriter(folder.events, 1)
    writer.write(Starting())
    writer.write(Step(step=1))
    record = run(folder, store.locations)
    assert (record.state, record.failure.code, record.attempt) == ("failed", "worker.died", 1)
    EventWriter(bare_run(store, config("train 2")).events, 1).write(Paused(step=1))
    for other in store.list():  # what has ended, or is paused, is left alone
        folder = store.open(other.run_id)
        before = folder.events.read_bytes()
        assert run(folder, store.locations).state == other.state in ("failed", "paused")
        assert folder.events.read_bytes() == before


def test_a_second_supervisor_and_one_without_a_folder_leave_at_once(
    store: RunStore, here: RunsHere, config: Config, until: Until, tmp_path: Path
) -> None:
    run_id = here.start(config("train 100000"))
    until(run_id, "training")
    folder = store.open(run_id)
    second = subprocess.run([*store._command, str(folder.path)], env=dict(os.environ), timeout=20, check=False)
    assert second.returncode == 0
    assert store.record(run_id).state == "training"
    store.stop_now(run_id)
    until(run_id, "stopped")
    assert main([]) == main([str(tmp_path / "missing")]) == os.EX_USAGE


def test_a_full_disk_holds_the_supervisor_and_no_word_of_it_is_lost(
    store: RunStore, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bare_run(store, config("exit 3"))
    room, refused, real = threading.Event(), [], EventWriter._append

    def append(writer: EventWriter, line: bytes) -> None:
        if not room.is_set():
            refused.append(line)
            raise MachineError.told_by(
                {"code": "disk.write", "message": "Could not write events.jsonl (No space left on device)."}
            )
        real(writer, line)

    monkeypatch.setattr(EventWriter, "_append", append)
    monkeypatch.setattr(supervisor, "ROOM_SECONDS", 0.05)
    threading.Timer(0.5, room.set).start()
    record = run(folder, store.locations)
    assert len(refused) > 2
    assert record.failure.code == "worker.died"
    kinds = [event.kind for event in EventTail(folder.events).read()]
    assert kinds == ["queued", "starting", "hello", "failed"]
