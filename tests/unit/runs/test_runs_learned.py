"""What ended runs leave for the next estimate: one line each, whatever happens to the file."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from living_runs import Config, run

from core.contract.estimate import LayerTrial, LearnedRun, ProvenHere
from core.contract.events import Evaluation, Finished, Plan, Step
from core.machine.locations import Locations
from core.runs.control.store import RunStore
from core.runs.record.job_record import RunRecord, fold
from core.runs.record.learned import append, learn, learned_file, line_of, speeds
from tests.bare_run import bare_run

SAID = LearnedRun(card="H200", model="a/b", shape="x", predicted_bytes=900, predicted_tokens_per_second=150.0)


def ended(steps: int = 20, predicted: LearnedRun | None = SAID, cpu: bool = False) -> RunRecord:
    made = [
        Step(step=step, at=step, tokens=100, seconds=2.0 if step <= 3 else 0.5, memory_bytes=900 + step,
             reserved_bytes=None if cpu else 1000 + step, power_watts=None if cpu else 300.0)
        for step in range(1, steps + 1)
    ]  # fmt: skip
    return fold([Plan(total_steps=steps, predicted=predicted, fast=True), *made, Finished(at=99.0)])


def test_a_run_that_ended_leaves_predicted_and_measured(locations: Locations) -> None:
    line = line_of("run-1", ended())
    assert (line.run_id, line.at, line.kernels, line.steps) == ("run-1", 99.0, "fast", 17)
    assert (line.predicted_bytes, line.measured_bytes, line.measured_reserved_bytes) == (900, 920, 1020)
    assert (line.measured_tokens_per_second, line.watts) == (200.0, 300.0), "the first steps compile, and do not count"
    append(locations.make(), line)
    assert speeds(locations).runs == (line,)
    on_cpu = line_of("run-1", ended(cpu=True))
    assert (on_cpu.measured_bytes, on_cpu.measured_reserved_bytes, on_cpu.watts) == (0, 0, 0.0)
    assert on_cpu.measured_tokens_per_second == 200.0


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("record", [ended(steps=7), ended(predicted=None), RunRecord(), fold([Plan(predicted=SAID)])])
def test_a_short_or_failed_run_teaches_nothing(record: RunRecord) -> None:
    assert line_of("run-1", record) is None


def test_the_same_run_is_kept_once_and_a_disk_that_does_not_take_it_is_no_fault(
    store: RunStore, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, locations = bare_run(store, config("train 1")), store.locations
    with monkeypatch.context() as patch:
        patch.setattr("core.runs.record.learned.append_line", full)
        learn(folder, ended(), locations)
    assert speeds(locations).runs == ()
    for _ in range(3):
        learn(folder, ended(), locations)
    assert [run.run_id for run in speeds(locations).runs] == [folder.name]


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 400))
def test_torn_and_foreign_lines_count_as_none(tmp_path_factory: pytest.TempPathFactory, junk: bytes, cut: int) -> None:
    locations = Locations(tmp_path_factory.mktemp("home"))
    file = learned_file(locations)
    whole = SAID.model_copy(update={"run_id": "first"}).model_dump_json().encode()
    file.write_bytes(junk.replace(b"\n", b" ") + b"\n" + whole + b"\n" + whole[: min(cut, len(whole) - 1)])
    append(locations, SAID.model_copy(update={"run_id": "second"}))
    assert [run.run_id for run in speeds(locations).runs] == ["first", "second"]


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ('{"run_id": "new", "card": "H200", "something": [1]}', ["new"]),
        *((SAID.model_dump_json().replace('"watts":0.0', f'"watts":{watts}'), []) for watts in ("Infinity", "NaN")),
    ],
)
def test_lines_of_a_later_version_are_read_and_numbers_without_end_are_none(
    locations: Locations, line: str, read: list[str]
) -> None:
    learned_file(locations.make()).write_text(line + "\n", encoding="utf-8")
    append(locations, SAID.model_copy(update={"run_id": "last"}))
    assert [run.run_id for run in speeds(locations).runs] == [*read, "last"]


def test_many_at_once_lose_none_and_only_the_newest_are_read(
    locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert speeds(locations).runs == ()
    names = [f"run-{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: append(locations.make(), SAID.model_copy(update={"run_id": name})), names))
    kept = [run.run_id for run in speeds(locations).runs]
    assert sorted(kept) == sorted(names)
    monkeypatch.setattr("core.runs.record.learned.NEWEST", 3)
    assert [run.run_id for run in speeds(locations).runs] == kept[-3:]


def test_the_supervisor_keeps_the_line_at_a_runs_end(store: RunStore, config: Config) -> None:
    folder = bare_run(store, config("teach 12"))
    assert run(folder, store.locations).state == "finished"
    (line,) = speeds(store.locations).runs
    assert (line.run_id, line.card, line.kernels, line.steps) == (folder.name, "NVIDIA H200", "fast", 9)
    assert (line.predicted_bytes, line.measured_bytes, line.measured_tokens_per_second) == (900, 1002, 200.0)


def test_starting_is_learned_apart_from_training_and_measuring() -> None:
    def start_seconds(**facts: object) -> float:
        steps = tuple(Step(step=n, attempt=1, at=118.0 + 2 * n, seconds=2.0, tokens=9) for n in range(1, 21))
        known = {"started_at": 100.0, "steps": steps, "state": "finished", "plan": Plan(predicted=SAID)}
        line = line_of("run-1", RunRecord(**{**known, **facts}))  # type: ignore[arg-type]
        return line.start_seconds

    assert start_seconds() == 18.0
    slow = tuple(
        Step(step=n, attempt=1, at=118.0 + 2 * n + 5, seconds=7.0 if n == 1 else 2.0, tokens=9) for n in range(1, 21)
    )
    assert start_seconds(steps=slow) == 23.0, "the first step took 5 s longer than the others"
    assert start_seconds(evaluations=(Evaluation(step=0, seconds=5.0),)) == 13.0
    resumed = tuple(Step(step=n, attempt=2, at=120.0 + n, seconds=2.0, tokens=9) for n in range(9, 29))
    assert start_seconds(steps=resumed) == 0.0


def test_trials_and_proofs_of_arithmetics_are_kept_beside_runs(locations: Locations) -> None:
    """A proof counts for as long as it is kept."""
    trial = LayerTrial(card="H200", tokens=8192, milliseconds={"16-bit": 14.2, "int8": 11.0})
    proof = ProvenHere(proof="2026-11-21_113000_eight_k3f9", card="H200", arithmetic="int8", share=0, worst=0, spread=0)
    for line in (SAID, trial, proof, proof.model_copy(update={"proof": ".."})):
        append(locations.make(), line)
    (locations.proofs / proof.proof).mkdir(parents=True)
    known = speeds(locations)
    assert (known.runs, known.trials, known.proofs) == ((SAID,), (trial,), (proof,))
    (locations.proofs / proof.proof).rmdir()
    assert speeds(locations).proofs == ()
