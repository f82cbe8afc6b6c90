"""Several ranks train as one: same losses on any number of them, and what befalls one is said and mended for all.

The ranks are the real worker, its leader and members, over gloo, forked of one process (``nursery.py``)."""

from __future__ import annotations

import json
import os
import queue
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from waiting import until

from core.contract.config import RunConfig
from core.contract.errors import RunError
from core.machine.cards import CardSet
from core.machine.children.shared_memory import NAME
from core.machine.hardware import Machine
from core.machine.locations import REPOSITORY
from core.runs.control.mailbox import send
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import dump_config
from core.runs.log.events_log import ATTEMPT_VARIABLE, EventTail
from core.runs.ranks.line import Line
from core.runs.ranks.nodes import Meeting, credentials
from core.runs.ranks.start import Started
from core.runs.supervise.worker_process import chosen_machine
from core.train.ranks import group, leader

CPU = torch.device("cpu")
NURSERY = Path(__file__).with_name("nursery.py")


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    home = tmp_path_factory.mktemp("home")
    told = {"LUTHIER_HOME": str(home), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        [sys.executable, str(NURSERY)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY,
        env={**os.environ, **told},
    ) as process:  # fmt: skip
        yield process
        assert process.stdin
        process.stdin.close()


Work = Callable[..., Any]


@pytest.fixture
def work(nursery: subprocess.Popen[str]) -> Work:
    """A worker of so many ranks to its end; its exit code."""

    def run(folder: JobFolder, ranks: int, attempt: int = 1, woe: str = "nothing 0 0", **more: Any) -> Any:
        assert nursery.stdin
        assert nursery.stdout
        env = {ATTEMPT_VARIABLE: str(attempt), "WOE": woe}
        wish = {"folder": str(folder.path), "ranks": ranks, "env": env, **more}
        print(json.dumps(wish), file=nursery.stdin, flush=True)
        codes = json.loads(nursery.stdout.readline())
        return codes if more else codes[0]

    return run


def said(folder: JobFolder, kind: str) -> list[Any]:
    return [event for event in EventTail(folder.events).read() if event.kind == kind]


def losses(folder: JobFolder) -> dict[int, float]:
    return {event.step: event.loss for event in said(folder, "step")}


def shared(folder: JobFolder) -> dict[int, list[str]]:
    """By attempt: the inodes of memory that ranks had mapped together, in the order of their ranks."""
    noted: dict[int, dict[int, str]] = {}
    told = folder.path / "shared"
    for line in told.read_text(encoding="utf-8").splitlines() if told.exists() else ():
        attempt, rank, inodes = line.split()
        noted.setdefault(int(attempt), {})[int(rank)] = inodes
    return {attempt: [inodes for _, inodes in sorted(ranks.items())] for attempt, ranks in noted.items()}


def nobody_has(folder: JobFolder) -> bool:
    """Whether no process of this run is left, nor any that holds memory which its ranks shared."""
    inodes = {inode for ranks in shared(folder).values() for inode in ranks}
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if path.samefile(folder.log) or str(path.stat().st_ino) in inodes:
                return False
    for path in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            if any(line.split()[4] in inodes for line in path.read_text().splitlines() if NAME in line):
                return False
    return True


def test_a_run_goes_from_two_ranks_to_one_and_back_with_the_losses_of_one(runs: Any, work: Work) -> None:
    """Fourteen steps: rank 0 dies in step 6, and the one process that goes on in step 10. All layers stream, and lie in
    memory once for both ranks, until the last of them is gone."""
    values = {"train__max_steps": 14, "train__save_steps": 4, "train__eval_steps": 7}
    one, other = runs.make("one", **values), runs.make("other", model__streamed_layers=2, **values)
    assert work(one, 1) == 0
    assert [work(other, 2, 1, "killed 0 6"), work(other, 1, 2, "killed 0 10"), work(other, 2, 3)] == [-9, -9, 0]
    expected, found = losses(one), losses(other)
    assert [event.resumed_step for event in said(other, "starting")][-2:] == [4, 8]
    assert list(expected) == list(range(1, 15))
    assert max(abs(found[step] - loss) for step, loss in expected.items()) < 1e-3
    measured = [[(event.step, event.rows, event.tokens) for event in said(job, "evaluation")] for job in (one, other)]
    assert measured[0] == measured[1]
    by_step = {event.step: event for event in said(other, "step")}
    assert {step: len(event.cards) for step, event in by_step.items() if step in (1, 7, 14)} == {1: 2, 7: 0, 14: 2}
    assert all(card.memory_bytes > 2**20 for card in by_step[14].cards)
    assert by_step[14].tokens == said(one, "step")[-1].tokens, "of both"
    noted = shared(other)
    assert {attempt: (len(inodes), len(set(inodes))) for attempt, inodes in noted.items()} == {1: (2, 1), 3: (2, 1)}
    assert len({*noted[1], *noted[3]}) == 2, "the next attempt has its own"
    until(lambda: nobody_has(other))
    lines = [" ".join(event.lines) for event in said(other, "plan")]
    assert ["2 of 2 layers stream" in line for line in lines] == [True] * 3
    assert ["once for all 2 processes" in line for line in lines] == [True, False, True]


def test_one_rank_without_memory_does_its_share_again_and_all_cut_smaller(runs: Any, work: Work) -> None:
    values = {"train__max_steps": 2, "train__tokens_per_pass": 64, "train__eval_steps": 100}
    whole, folder = runs.make("whole", **values), runs.make("full", **values)
    assert [work(whole, 2), work(folder, 2, 1, "full 1 2")] == [0, 0]
    (correction,) = said(folder, "correction")
    assert (correction.key, correction.step) == ("train.tokens_per_pass", 1)
    assert "rank 1" in correction.reason
    for (step, loss), (_, other) in zip(losses(whole).items(), losses(folder).items(), strict=True):
        assert loss == pytest.approx(other, abs=1e-4), step


def test_what_ends_a_rank_ends_the_attempt_and_is_said_once(runs: Any, work: Work) -> None:
    """A death asks for a fresh process; a fault is the run's, and one of them refuses weights for all."""
    short = {"model__streamed_layers": 2, "train__max_steps": 3, "train__eval_steps": 100}
    killed, odd, small = (runs.make(name, **short) for name in ("killed", "odd", "small"))
    assert work(killed, 2, 1, "killed 1 3") == 75
    (note,) = said(killed, "note")
    assert (note.code, "Rank 1 was killed (SIGKILL)" in note.text) == ("worker.restart", True)
    assert work(killed, 2, 2) == 0
    assert all(one <= two for one, two in pairwise(event.step for event in said(killed, "starting")))
    assert work(odd, 2, 1, "fault 1 2") == 0
    (failure,) = said(odd, "failed")
    assert (failure.code, "odd" in failure.message) == ("worker.fault", True)
    assert work(small, 2, 1, "small 0 0") == 0
    (failure,) = said(small, "failed")
    assert (failure.key, failure.values["layers"], failure.values["fit"]) == ("memory.streamed", 2, 0)
    assert shared(killed).keys() == {1, 2}
    for folder in (killed, odd, small):
        until(lambda folder=folder: nobody_has(folder))


def test_a_rank_that_dies_while_rank_0_still_prepares_ends_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stillborn(*_: Any, **__: Any) -> Started:
        mine, its = socket.socketpair()
        its.close()
        return Started(subprocess.Popen(["true"]), Line(mine))

    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    monkeypatch.setattr(leader, "start_rank", stillborn)
    monkeypatch.setattr(leader, "Door", lambda *_: SimpleNamespace(visitors=time.sleep(0.2) or list))
    leader.Leader(JobFolder(tmp_path), CardSet(processes=2), told.put, Meeting(2, "127.0.0.1", 1))
    assert "Rank 1 ended (exit code 0)" in told.get(timeout=10)


def met(path: Path, told: queue.SimpleQueue[Any], nodes: int) -> tuple[leader.Leader, socket.socket]:
    """Rank 0 without ranks of its own, and machine 1's end of its line."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    made = leader.Leader(JobFolder(path), CardSet(), told.put, Meeting(nodes, "127.0.0.1", port, 0.5))
    end = socket.create_connection(("127.0.0.1", port))
    Line(end).say(node=1, cards=1, **credentials(path / "rows"))
    return made, end


def test_a_machine_that_does_not_come_or_goes_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows").touch()
    told, waited = queue.SimpleQueue[Any](), []
    made, end = met(tmp_path, told, 3)
    with pytest.raises(RunError, match="Machine 2 did not come to") as caught:
        made.await_nodes(lambda text: (waited.append(text), time.sleep(0.05)))
    assert (caught.value.key, waited[-1][:28]) == ("ranks.no_answer", "for machine 2 of 3 at 127.0.")
    made._met = True
    end.close()
    assert told.get(timeout=10) == "Machine 1 is gone."


def test_sums_that_never_come_about_end_the_start_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL may wait for ever, say behind a firewall: another thread says so."""
    (tmp_path / "rows").touch()
    told, hangs = queue.SimpleQueue[Any](), threading.Event()
    monkeypatch.setattr(leader, "START_SECONDS", 0.1)
    monkeypatch.setattr(group, "join", lambda *_: hangs.wait())
    made, end = met(tmp_path, told, 2)
    made.await_nodes(lambda _text: time.sleep(0.02))
    starting = threading.Thread(target=made.gather, args=(CPU, tmp_path / "rows"))
    starting.start()
    fault = told.get(timeout=10)
    assert (fault.key, fault.message) == (
        "ranks.no_start", "The processes of this run could not start to work together: no answer in 0 s."
    )  # fmt: skip
    hangs.set()
    starting.join()
    end.close()


@pytest.mark.slow
def test_commands_are_heard_by_one_and_all_leave_with_it(runs: Any, work: Work) -> None:
    """Sample, save and pause in the middle of a step of two; nobody is left, and one goes on from there."""
    folder = runs.make(train__max_steps=100, train__save_steps=1000, train__eval_steps=1000)

    def steer() -> None:
        until(lambda: len(said(folder, "step")) > 2)
        send(folder, "sample", prompt="the cat", max_new_tokens=4, attempt=1)
        send(folder, "save", attempt=1)
        until(lambda: said(folder, "checkpoint"))
        send(folder, "pause", attempt=1)

    steering = threading.Thread(target=steer)
    steering.start()
    assert work(folder, 2, 1) == 0
    steering.join()
    (paused,) = said(folder, "paused")
    assert 2 < paused.step < 100
    assert said(folder, "checkpoint")[-1].step == paused.step
    assert [event.command for event in said(folder, "acknowledged")] == ["sample", "save", "pause"]
    assert len(said(folder, "sample")) == 2
    assert work(folder, 1, 2) == 0
    assert list(losses(folder)) == list(range(1, 101))


@pytest.mark.slow
@pytest.mark.parametrize(("woe", "told"), [("nan 1 3", "Step 3 skipped: loss nan"), ("disk 0 2", "Room on the disk.")])
def test_all_skip_what_one_cannot_use_and_wait_for_room(woe: str, told: str, runs: Any, work: Work) -> None:
    folder = runs.make(train__max_steps=6, train__save_steps=2)
    assert work(folder, 2, 1, woe) == 0
    assert any(told in event.text for kind in ("note", "stage") for event in said(folder, kind))
    assert [event.step for event in said(folder, "step")] == list(range(1, 7))
    assert said(folder, "finished")


@pytest.mark.slow
def test_ranks_that_cannot_start_say_so_in_a_line_or_one_goes_on_where_that_is_asked(runs: Any, work: Work) -> None:
    ends, goes_on = runs.make("ends"), runs.make("on", train__one_card_if_needed=True, train__cards="0,1")
    assert [work(ends, 2, 1, "apart 0 0"), work(goes_on, 2, 1, "apart 0 0")] == [0, 75]
    (failure,) = said(ends, "failed")
    assert failure.key == "ranks.no_start"
    assert "work together: NCCL error: unhandled system error." in failure.message
    (correction,) = said(goes_on, "correction")
    assert (correction.key, correction.old, correction.new) == ("train.cards", "0,1", "0")
    machine, unfit = chosen_machine(goes_on, Machine((), 2, 0, 0, None, "Linux", False))
    assert (machine.cards.ranks, unfit) == (1, None)


def beside(home: Path, folder: JobFolder, data: str = "") -> dict[str, str]:
    """A second machine with its own copy of this run's data, which may be another's."""
    raw = folder.config().model_dump()
    copy = home / "copy.jsonl"
    copy.write_text(Path(raw["data"]["path"]).read_text(encoding="utf-8") + data, encoding="utf-8")
    raw["data"]["path"] = str(copy)
    raw["train"]["cards"] = "0,1"
    (home / "other.yaml").write_text(dump_config(RunConfig.model_validate(raw)), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return {"yaml": str(home / "other.yaml"), "home": str(home), "meeting": f"2 127.0.0.1:{port} 60"}


def test_two_machines_train_one_run_and_one_with_other_data_is_refused(runs: Any, work: Work, tmp_path: Path) -> None:
    """One rank here and two there."""
    short = {"train__max_steps": 3, "train__eval_steps": 100}
    whole, _ = runs.undisturbed(**short)
    folder, other = runs.make("both", model__streamed_layers=1, **short), runs.make("other", **short)
    assert work(other, 1, beside=beside(tmp_path, other, '{"prompt": "a", "completion": "b"}\n')) == [0, 1]
    (failure,) = said(other, "failed")
    assert (failure.key, failure.values["others"]) == ("ranks.other_machine", "another data file")
    assert (tmp_path / "fault").read_text() == "ranks.other_machine/first"
    assert work(folder, 1, beside=beside(tmp_path, folder)) == [0, 0]
    for step, loss in losses(whole).items():
        assert losses(folder)[step] == pytest.approx(loss, abs=1e-3)
    assert len(said(folder, "step")[-1].cards) == 3
    noted = shared(JobFolder(tmp_path / "ranks" / "machine-1"))[1]
    assert (len(noted), len(set(noted))) == (2, 1), "the two of the other machine share theirs"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_unlike_ranks_have_shares_by_their_speed_and_learn_the_same(method: str, runs: Any, work: Work) -> None:
    """Rank 1 takes two milliseconds more a token: after the first steps the others wait less for it."""
    values = {"method": method, "train__max_steps": 24, "train__per_device_train_batch_size": 8}
    one, two = runs.make("one", **values), runs.make("two", **values)
    assert [work(one, 1), work(two, 2, 1, "slow 1 0")] == [0, 0]
    notes = [(event.step, event.text) for event in said(two, "note") if event.code == "cards.shares"]
    assert len(notes) == 1, notes
    assert notes[0][0] in (8, 9)
    quick, slow = (int(part.rstrip("%")) for part in notes[0][1].split()[6:9:2])
    assert quick > 2 * slow
    seconds = {event.step: event.seconds for event in said(two, "step")}
    even, by_speed = ([seconds[step] for step in steps] for steps in (range(3, 9), range(12, 25)))
    assert statistics.median(by_speed) < 0.8 * statistics.median(even)
    for step, loss in losses(one).items():
        assert losses(two)[step] == pytest.approx(loss, abs=2e-3), step


@pytest.mark.slow
@pytest.mark.parametrize(("learns", "off"), [("adapter", 1e-4), ("adapter_embeddings", 2e-2), ("everything", 1e-2)])
def test_whatever_learns_learns_the_same_on_two_ranks(learns: str, off: float, runs: Any, work: Work) -> None:
    """Weights of 16 bits as well, whose gradients are moved to float32 sums before the ranks add up theirs. What 16
    bits round differs with every cut into micro-batches: on one rank by as much, 1.2e-2 where embeddings learn."""
    dtype = "float32" if learns == "adapter" else "bfloat16"
    values = {"train__learns": learns, "model__dtype": dtype, "train__max_steps": 6, "train__max_grad_norm": 0.1}
    one, two = runs.make("one", **values), runs.make("two", **values)
    assert [work(one, 1), work(two, 2)] == [0, 0]
    kept = [
        load_file(path)
        for job in (one, two)
        for path in sorted((job.checkpoints / "step-000006").rglob("*model.safetensors"))
    ]
    for name, tensor in kept[0].items():
        assert (kept[1][name].float() - tensor.float()).norm() <= off * tensor.float().norm(), name


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dpo", "orpo", "simpo", "cpo", "kto", "reward", "classify", "pretrain"])
@pytest.mark.parametrize("packing", [True, False])
def test_every_method_learns_on_three_ranks_what_it_learns_on_one(
    method: str, packing: bool, runs: Any, work: Work
) -> None:
    """Losses, measures and what held-out rows say; the third rank has no row in a last, partial batch."""
    values = {"method": method, "train__packing": packing, "train__max_steps": 8, "train__rpo_alpha": 0.5}
    one, three = runs.make("one", **values), runs.make("three", **values)
    assert [work(one, 1), work(three, 3)] == [0, 0]
    for kind in ("step", "evaluation"):
        for mine, its in zip(said(one, kind), said(three, kind), strict=True):
            for name in ("loss", "margin", "accuracy", "chosen_reward", "kl", "grad_norm", "macro_f1", "confusion"):
                found, expected = getattr(its, name, None), getattr(mine, name, None)
                assert found == (pytest.approx(expected, abs=2e-3) if isinstance(expected, float) else expected), name
