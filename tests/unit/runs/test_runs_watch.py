"""Workers that stand still, do not leave, are halted, or lose their card: what their supervisor makes of it."""

import os
import signal
import threading
import time
from typing import Any

import pytest
from living_runs import BARE, CARD, Config, RunsHere, Until, bereaved, codes, gone, run

from core.contract.commands import Verb
from core.contract.events import Stage, Starting
from core.machine.cards import CardSet, held_by
from core.machine.hardware import Machine
from core.runs.control.mailbox import send
from core.runs.control.store import RunStore
from core.runs.log.events_log import EventTail
from core.runs.process.processes import find_worker, read_owners
from core.runs.record import stall
from core.runs.record.job_record import RunRecord, folded
from core.runs.supervise import supervisor, watch
from tests.bare_run import bare_run


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step may take 0.6 s, and a worker that is to leave 1 s."""
    monkeypatch.setattr(stall, "STEP_SECONDS", 0.6)
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(watch, "LEAVE_SECONDS", 1.0)
    monkeypatch.setattr(watch, "STACKS_SECONDS", 0.2)


@pytest.mark.usefixtures("impatient")
def test_a_worker_that_stands_still_is_shown_ended_and_followed(store: RunStore, config: Config) -> None:
    folder = bare_run(store, config("hang 3"))
    record = run(folder, store.locations)
    assert (record.state, record.attempt, codes(record)) == ("finished", 2, ["stall", "worker.restarted"])
    note = record.notes[0]
    assert note.text.startswith("Step 4 did not end (a step takes 0.01 s)")
    assert "goes on from step 3" in note.hint
    assert "most recent call first" in folder.log.read_text()
    assert "in hang" in folder.log.read_text()
    started = [event.resumed_step for event in EventTail(folder.events).read() if isinstance(event, Starting)]
    assert started == [0, 3]


@pytest.mark.usefixtures("impatient")
def test_after_two_fresh_workers_that_stood_still_too_the_run_stops_and_says_so(
    store: RunStore, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall, "_OF_OTHERS", stall.Limit(0.6))
    record = run(bare_run(store, config("hang 0")), store.locations)
    assert (record.state, record.failure.code, record.attempt) == ("failed", "worker.stalled", 3)
    assert "The worker said nothing after its start" in record.failure.message
    assert "3 times without getting beyond step 0" in record.failure.message
    assert codes(record) == ["stall", "worker.restarted", "stall", "worker.restarted", "stall"]


@pytest.mark.usefixtures("impatient")
def test_waiting_is_no_stall(store: RunStore, config: Config) -> None:
    record = run(bare_run(store, config("wait 1.2")), store.locations)
    assert (record.state, record.attempt, codes(record)) == ("finished", 1, [])


CALM = (stall, "STEP_SECONDS", 60.0)
DEAF = (watch, "wake", lambda who: None)
ASKED: dict[str, tuple[str, Verb, list[Any], float | None, list[str]]] = {
    "hears a stop and does not leave": ("hang 3", "stop", [CALM], None, ["left.late"]),
    "hears a pause and does not leave": ("hang 3", "pause", [CALM], None, ["left.late"]),
    "stands still before it can pause": ("hang 3", "pause", [(watch, "LEAVE_SECONDS", 60.0)], None, []),
    "loses its card before it can stop": ("promised", "stop", [], None, []),
    "loses its card before it can pause": ("promised", "pause", [], None, []),
    "is held by a debugger": ("train 100000", "stop", [CALM, DEAF], 0.0, ["left.late"]),
    "is halted for twice what a step may take": ("train 100000", "stop", [], 1.3, []),
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("case", ASKED)
def test_what_was_asked_is_done_though_the_worker(
    store: RunStore, config: Config, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """A fresh worker would know nothing of it, and train on against somebody's word."""
    name, verb, patches, halted_seconds, notes = ASKED[case]
    for patch in [*patches, (supervisor, "check_kernels_once", lambda *_asked: None)]:
        monkeypatch.setattr(*patch)
    folder = bare_run(store, config(name))

    def ask() -> None:
        assert gone(lambda: folded(folder).last_step < 3)
        if halted_seconds is not None:
            os.kill(find_worker(folder).pid, signal.SIGSTOP)
            time.sleep(halted_seconds)
        send(folder, verb)

    asking = threading.Thread(target=ask)
    asking.start()
    record = run(folder, store.locations, CARD)
    asking.join()
    assert (record.state, record.attempt) == ("paused" if verb == "pause" else "stopped", 1)
    assert (codes(record), len(record.acknowledged)) == (notes, "debugger" not in case)
    assert "halted" not in case or record.checkpoints, "it was woken, saved and left by itself"
    assert held_by(store.locations, CARD.cards) is None


@pytest.mark.parametrize(
    ("who", "verb", "state"),
    [
        pytest.param("worker", "stop_now", "stopped", marks=pytest.mark.slow),
        ("both", "stop_now", "stopped"),
        ("both", "pause", "paused"),
    ],
)
def test_halted_processes_hear_all_the_same(
    store: RunStore, config: Config, until: Until, who: str, verb: str, state: str
) -> None:
    run_id = store.start(config("train 100000"))
    until(run_id, "training")
    owners = read_owners(store.open(run_id))
    for one in [owners.worker] if who == "worker" else [owners.supervisor, owners.worker]:
        os.kill(one.pid, signal.SIGSTOP)
    began = time.monotonic()
    getattr(store, verb)(run_id)
    until(run_id, state)
    assert gone(lambda: held_by(store.locations, CardSet()) is not None)
    assert time.monotonic() - began < 5
    assert not owners.worker.alive()


@pytest.mark.parametrize(("name", "leaves_before"), [("told wish", True), ("told wish", False), ("told crash", False)])
def test_an_adopted_worker_gets_a_fresh_process_where_it_asks_for_one(
    store: RunStore, here: RunsHere, config: Config, until: Until, name: str, leaves_before: bool
) -> None:
    """Its supervisor dies and another adopts it; it leaves before that one came, or under its eyes."""
    run_id = store.start(config(name))
    until(run_id, "training")
    folder = store.open(run_id)
    supervisor, worker = bereaved(folder)
    if leaves_before:
        os.kill(worker.pid, signal.SIGSTOP)
        (folder.path / "go").touch()
    assert here.adopt() == [run_id]
    if leaves_before:
        os.kill(worker.pid, signal.SIGCONT)
    else:
        assert gone(lambda: read_owners(folder).supervisor in (None, supervisor))
        time.sleep(0.3)
        (folder.path / "go").touch()
    record = until(run_id, "finished", "failed")
    if name == "told crash":
        assert record.failure.code == "worker.died"
        assert "without an exit code that we could see" in record.failure.message
        return
    assert (record.state, record.attempt) == ("finished", 2)
    assert codes(record) == ["worker.restart", "worker.restarted", "card"]
    assert record.notes[-1].text == run_id, "the second attempt computes while its run holds the card"


def test_a_correction_is_progress(store: RunStore, config: Config) -> None:
    record = run(bare_run(store, config("corrected 3")), store.locations)
    assert (record.state, record.attempt) == ("finished", 4)
    restarts = watch.Restarts()
    assert [restarts.worth_it(*seen) for seen in [(10, 0), (10, 0), (4, 1), (4, 1), (8, 1), (8, 1), (8, 1)]] == [
        True, True, True, True, True, True, False,
    ]  # fmt: skip
    restarts = watch.Restarts(step=10, corrections=2)  # what an earlier supervisor has seen is no progress
    assert [restarts.worth_it(10, 2) for _ in range(3)] == [True, True, False]


def test_a_worker_that_did_not_survive_the_machines_sleep_is_followed_by_another(
    store: RunStore, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slept:
        """A clock whose first tick finds that a night went by."""

        awake, away = 0.0, 8 * 3600.0

        def tick(self, counts: bool = True) -> float:
            return self.awake

    monkeypatch.setattr(watch, "AwakeClock", Slept)
    folder = bare_run(store, config("kill 11"))
    record = run(folder, store.locations)
    assert (record.failure.code, record.attempt) == ("worker.slept", 3)
    assert record.notes[0].text == (
        "The machine slept for 480 min and the worker did not survive it: interrupted, goes on from step 0."
    )
    gone_at_the_first_look = watch.Watch(folder, watch.Worker(None), 1, RunRecord())
    assert gone_at_the_first_look.wait().slept_seconds == 8 * 3600.0


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What the driver says at each look; the last answer holds."""
    answers: list[bool] = []

    class Look:
        def __init__(self, _cards: CardSet) -> None:
            self._left = [*answers]

        def answers(self) -> bool:
            return self._left.pop(0) if len(self._left) > 1 else bool(self._left and self._left[0])

    monkeypatch.setattr(supervisor, "CardLook", Look)
    monkeypatch.setattr(supervisor, "check_kernels_once", lambda *_asked: None)
    return answers


def test_a_card_that_is_gone_is_waited_for(store: RunStore, config: Config, card: list[bool]) -> None:
    card.extend([False] * 14 + [True])
    folder = bare_run(store, config("restart 2"))
    record = run(folder, store.locations, CARD)
    assert (record.state, record.attempt) == ("finished", 2)
    waited = [event.text for event in EventTail(folder.events).read() if isinstance(event, Stage)]
    assert waited == ["The card does not answer: waiting for it"]


def test_a_card_that_does_not_come_back_leaves_a_run_that_can_be_resumed(
    store: RunStore, here: RunsHere, config: Config, card: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "CARD_SECONDS", 0.5)
    folder = bare_run(store, config("restart 2"))
    record = run(folder, store.locations, CARD)
    assert record.failure.code == "card.gone"
    assert "interrupted, goes on from step 1" in record.failure.message
    assert held_by(store.locations, CardSet(("GPU-1",))) is None
    here.resume(folder.name)
    assert gone(lambda: store.record(folder.name).state != "finished")


def test_a_stop_is_heard_while_a_card_is_waited_for(store: RunStore, config: Config, card: list[bool]) -> None:
    folder = bare_run(store, config("restart 2"))

    def stop() -> None:
        assert gone(lambda: folded(folder).stage is None)
        send(folder, "stop")

    steering = threading.Thread(target=stop)
    steering.start()
    record = run(folder, store.locations, CARD)
    steering.join()
    assert (record.state, record.last_step, record.attempt) == ("stopped", 0, 1)


def test_a_library_that_ends_the_process_over_a_fault_of_the_card_is_understood(
    store: RunStore, config: Config, card: list[bool]
) -> None:
    card.append(True)
    record = run(bare_run(store, config("bitsandbytes 1")), store.locations, CARD)
    assert (record.state, record.attempt, codes(record)) == ("finished", 2, ["card.fault", "worker.restarted"])
    assert "illegal memory access was encountered at line 90" in record.notes[0].text
    without = run(bare_run(store, config("bitsandbytes 1")), store.locations)
    assert (without.state, without.attempt) == ("failed", 1)


def test_a_driver_that_hangs_holds_nobody_up() -> None:
    hold, asked = threading.Event(), []

    def read() -> Machine:
        asked.append(1)
        hold.wait(30)
        return CARD

    look = watch.CardLook(CARD.cards, read)
    began = time.monotonic()
    assert not any(look.answers() for _ in range(50))
    assert time.monotonic() - began < 2
    assert len(asked) == 1
    hold.set()
    assert gone(lambda: not look.answers())
    assert watch.CardLook(BARE.cards, read).answers()
    assert not watch.CardLook(CARD.cards, lambda: BARE).answers()
