"""The time that is left, by a run's own pace: against runs whose end is known."""

import json
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.contract.config import DataChoice, RunConfig, TrainChoice
from core.contract.events import Evaluation, Event, Finished, Plan, Starting, Step
from core.data.deal.packing import epoch_batches
from core.runs.record.job_record import RunRecord, fold
from core.runs.record.pace import time_left

RECORDED = json.loads(Path(__file__).with_name("recorded_steps.json").read_text(encoding="utf-8"))
ROWS = 16


def config_of(eval_steps: int = 0) -> RunConfig:
    train = TrainChoice(per_device_train_batch_size=ROWS, gradient_accumulation_steps=1, eval_steps=eval_steps)
    return RunConfig(data=DataChoice(path="/x"), train=train)


def record_of(events: list[Event], state: str = "training") -> RunRecord:
    return replace(fold(events), state=state)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(RECORDED["runs"]))
@pytest.mark.parametrize("done", [10, 12, 15, 20])
def test_recorded_runs_end_within_five_percent_of_what_is_said(name: str, done: int) -> None:
    """The tail of a recorded run is what is left; the plan's tokens are those that its steps had."""
    tokens, seconds = RECORDED["runs"][name]["tokens"], RECORDED["runs"][name]["seconds"]
    plan = Plan(total_steps=len(tokens), train_rows=ROWS * len(tokens), train_tokens=sum(tokens))
    left = time_left(record_of([plan, *steps_of(tokens[:done], seconds[:done])]), config_of())
    assert (left.estimated, left.low) == (False, left.high)
    assert left.middle == pytest.approx(sum(seconds[done:]), rel=0.05)


def steps_of(tokens: list[int], seconds: list[float], first: int = 1, at: float = 0.0) -> list[Step]:
    made = []
    for number, (count, took) in enumerate(zip(tokens, seconds, strict=True), start=first):
        at += took
        made.append(Step(step=number, at=at, tokens=count, seconds=took))
    return made


@pytest.mark.parametrize("seed", range(12))
def test_drawn_runs_with_measurements_end_as_said(seed: int) -> None:
    """Rows as chats have them, three epochs, a measurement every 50 steps; time goes by tokens, with noise."""
    events, ends = list(drawn_run(seed, every=50)), {}
    for place, event in enumerate(events):
        if isinstance(event, Step) and event.step in (10, 60, 150):
            ends[event.step] = place
    over = events[-1].at
    for step, place in ends.items():
        left = time_left(record_of(events[: place + 1]), config_of(50))
        assert left.middle == pytest.approx(over - events[place].at, rel=0.05), step


def drawn_run(seed: int, every: int) -> Iterator[Event]:
    dice = random.Random(seed)
    lengths = [min(2048, int(dice.lognormvariate(5.2, 0.7))) for _ in range(1592)]
    dealt = [window for epoch in range(3) for window in epoch_batches(len(lengths), ROWS, epoch, seed)]
    yield Plan(total_steps=len(dealt), train_rows=len(lengths), train_tokens=sum(lengths), eval_rows=80)
    clock = 100.0
    yield Evaluation(step=0, at=clock, seconds=4.0)
    for number, window in enumerate(dealt, start=1):
        tokens = sum(lengths[row] for row in window)
        took = (0.02 + tokens / 15_000) * dice.gauss(1.0, 0.03) * (10 if number == 1 else 1)
        clock += took
        yield Step(step=number, at=clock, tokens=tokens, seconds=took)
        if number % every == 0 or number == len(dealt):
            clock += 4.0
            yield Evaluation(step=number, at=clock, seconds=4.0)
    yield Finished(at=clock)


def test_before_ten_steps_it_is_a_range_and_called_estimated() -> None:
    tokens, seconds = [1000] * 100, [0.5] * 100
    plan = Plan(total_steps=100, train_rows=1600, train_tokens=100_000)
    for done in (1, 5, 9):
        left = time_left(record_of([plan, *steps_of(tokens[:done], seconds[:done])]), config_of())
        assert left.estimated
        assert left.low < 0.5 * (100 - done) < left.high
    assert time_left(record_of([plan]), config_of()) is None
    assert time_left(record_of([plan, *steps_of(tokens, seconds)], "finished"), config_of()) is None


def test_a_resumed_run_and_a_machine_that_slows_down_are_followed() -> None:
    plan = Plan(total_steps=100, train_rows=1600, train_tokens=100_000)
    later = [step.model_copy(update={"attempt": 2}) for step in steps_of([1000] * 12, [0.25] * 12, 41, 900.0)]
    events = [plan, *steps_of([1000] * 40, [1.0] * 40), Starting(attempt=2, resumed_step=40), *later]
    assert time_left(record_of(events), config_of()).middle == pytest.approx(0.25 * 48, rel=0.01)
    plan = Plan(total_steps=200, train_rows=3200, train_tokens=200_000)
    events = [plan, *steps_of([1000] * 150, [0.5] * 100 + [1.0] * 50)]
    assert time_left(record_of(events), config_of()).middle == pytest.approx(50.0, rel=0.01)


@pytest.mark.parametrize("jump", [8 * 3600.0, -8 * 3600.0])
def test_a_night_and_a_clock_that_is_set_do_not_move_what_is_left(jump: float) -> None:
    plan = Plan(total_steps=100, train_rows=1600, train_tokens=100_000)
    steps = steps_of([1000] * 50, [1.0] * 50)
    later = [step.model_copy(update={"at": step.at + jump}) for step in steps[25:]]
    calm, jumped = (
        time_left(record_of(events), config_of()) for events in ([plan, *steps], [plan, *steps[:25], *later])
    )
    assert jumped.middle == pytest.approx(calm.middle, rel=0.01)


def test_a_plan_without_tokens_goes_by_the_steps() -> None:
    left = time_left(record_of([Plan(total_steps=20), *steps_of([10] * 10, [1.0] * 10)]), config_of())
    assert left.middle == pytest.approx(10.0)


def test_a_thousand_passes_cost_no_more_than_one() -> None:
    """What is left is counted once for all later passes, not over every step again for each of them."""
    plan = Plan(total_steps=7000, train_rows=7 * ROWS, train_tokens=7000)
    record = record_of([plan, *steps_of([1000] * 3500, [0.5] * 3500)])
    started = time.process_time()
    left = time_left(record, config_of())
    assert time.process_time() - started < 0.1
    assert left.middle == pytest.approx(3500 * 0.5)
