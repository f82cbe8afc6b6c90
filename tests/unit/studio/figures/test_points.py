"""The chart's numbers: what is sent when, thinned how, and read how often."""

import time

import pytest
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from made_runs import BEGAN, on_two_cards, past, step

from core.contract.events import Event, Starting, Step
from core.runs.record.job_record import RunFold, fold
from studio.figures.marks import csv_of
from studio.figures.points import BUCKETS, METRICS, RunPoints, Window, is_metric


def merged(have: dict, got: dict) -> dict:
    """What the page does with an answer: keeps what lies before ``begin`` and puts the new buckets behind."""
    if got["fresh"]:
        have = {"steps": [], "raw": {}}
    keep = next((index for index, at in enumerate(have["steps"]) if at >= got["begin"]), len(have["steps"]))
    joined = {}
    for name in have["raw"].keys() | got["raw"].keys():
        old = have["raw"].get(name, {"low": [None] * keep, "high": [None] * keep})
        new = got["raw"].get(name, {"low": [None] * len(got["steps"]), "high": None})
        joined[name] = {
            "low": old["low"][:keep] + new["low"],
            "high": old["high"][:keep] + (new["high"] or new["low"]),
        }
    return {"steps": have["steps"][:keep] + got["steps"], "raw": joined}


def ask(points: RunPoints, events: list[Event], **window: object) -> dict:
    return points.answer(fold(events), Window(**window))


def of_steps(values: list[float | None], name: str = "loss", **window: object) -> dict:
    events: list[Event] = [step(number).model_copy(update={name: value}) for number, value in enumerate(values, 1)]
    return ask(RunPoints(), events, **window)


@pytest.fixture(scope="module")
def long_past() -> list[Event]:
    """A run of 20,000 steps."""
    return past(20_000)


def test_a_short_run_is_sent_step_by_step_and_an_empty_one_is_empty() -> None:
    answer = ask(RunPoints(), past(50))
    assert answer["width"] == 1
    assert answer["steps"] == list(range(1, 51))
    assert answer["raw"]["loss"]["high"] is None  # the same as low
    assert answer["since"] == 50
    assert answer["last"]["loss"] == pytest.approx(answer["raw"]["loss"]["low"][-1])
    assert "gpu_load" not in answer["raw"]
    assert answer["last"]["gpu_load"] is None
    empty = ask(RunPoints(), [])
    assert (empty["steps"], empty["raw"], empty["since"], empty["best"]) == ([], {}, 0, None)


def test_a_long_run_fits_a_screen_loses_no_spike_and_a_zoom_shows_single_steps(long_past: list[Event]) -> None:
    events = list(long_past)
    spike = next(index for index, event in enumerate(events) if isinstance(event, Step) and event.step == 12_345)
    events[spike] = events[spike].model_copy(update={"loss": 99.0})
    points, record = RunPoints(), fold(events)
    began = time.thread_time()
    answer = points.answer(record, Window(level=0.9))
    assert time.thread_time() - began < 1.0
    assert len(answer["steps"]) <= BUCKETS
    assert max(answer["raw"]["loss"]["high"]) == 99.0
    assert answer["best"] == [20_000, pytest.approx(1.20005), "evaluation"]
    zoomed = points.answer(record, Window(first=1_000, last=1_200))
    assert (zoomed["width"], zoomed["steps"]) == (1, list(range(1_000, 1_201)))


def test_a_tick_sends_only_what_is_new() -> None:
    points, events = RunPoints(), past(300)
    first = ask(points, events)
    second = ask(points, [*events, step(301)], since=first["since"], shape=first["shape"])
    assert not second["fresh"]
    assert second["steps"] == [300, 301]
    assert second["version"] != first["version"]
    third = ask(points, [*events, step(301)], since=second["since"], shape=second["shape"])
    assert third["version"] == second["version"]


@pytest.mark.parametrize("last", [201, 260])
def test_a_resumed_run_is_sent_anew_also_where_it_caught_up_between_two_ticks(last: int) -> None:
    points, events = RunPoints(), past(250)
    first = ask(points, events)
    again = [step(number, BEGAN + 500 + number, attempt=2) for number in range(201, last + 1)]
    second = ask(points, [*events, Starting(attempt=2, resumed_step=200), *again], shape=first["shape"], since=250)
    assert second["fresh"]
    assert second["steps"][-1] == last


def test_smoothing_comes_before_thinning_and_has_no_start_up_bias() -> None:
    answer = of_steps([3.0] * 1_000, level=0.9)
    assert set(answer["smooth"]["loss"]["low"]) == {3.0}
    assert "grad_norm" not in of_steps([None] * 1_000, "grad_norm", level=0.9)["smooth"]
    noisy = of_steps([float(number % 2) for number in range(2_000)], level=0.98)["smooth"]["loss"]
    assert all(0.4 < value < 0.6 for value in noisy["low"][50:])


def test_unknown_and_infinite_are_null() -> None:
    assert of_steps([1.0, None, float("inf"), 2.0])["raw"]["loss"]["low"] == [1.0, None, None, 2.0]


@draws(15)
@given(cuts=st.lists(st.integers(1, 400), min_size=1, max_size=8), level=st.sampled_from([0.0, 0.9]))
def test_ticks_put_together_are_the_whole(cuts: list[int], level: float) -> None:
    """However the log grows between ticks, a page ends with what one single answer would have given it."""
    points, have, shape, since, number = RunPoints(), {"steps": [], "raw": {}}, "", 0, 0
    events: list[Event] = []
    for cut in cuts:
        events += [step(n) for n in range(number + 1, number + cut + 1)]
        number += cut
        answer = ask(points, events, since=since, shape=shape, level=level)
        have, shape, since = merged(have, answer), answer["shape"], answer["since"]
    assert have == merged({"steps": [], "raw": {}}, ask(RunPoints(), events, level=level))


def test_ticks_are_cheap(long_past: list[Event]) -> None:
    """What is there is not smoothed again: a tick of a long run costs less than 5% of a core."""
    points, state = RunPoints(), RunFold()
    for event in long_past:
        state.add(event)
    answer = points.answer(state.record, Window(level=0.9))
    began = time.thread_time()
    for number in range(20_001, 20_021):
        state.add(step(number))
        answer = points.answer(state.record, Window(since=answer["since"], shape=answer["shape"], level=0.9))
    assert (time.thread_time() - began) / 20 < 0.05
    assert set(answer["raw"]) <= set(METRICS)


def test_lines_of_several_cards_begin_with_the_first_step_that_has_them() -> None:
    """A run that goes on on two cards: before that nothing is known of them."""
    alone = past(10)
    points, window = RunPoints(), Window(level=0.6)
    points.answer(fold(alone), window)
    steps = [step(number) for number in range(11, 21)]
    record = fold([*alone, *on_two_cards(list(steps))])
    answer = points.answer(record, window)
    assert answer["raw"]["power_watts.1"]["low"] == [None] * 10 + [188.0] * 10
    assert answer["last"]["gpu_load.0"] == 0.97
    assert "temperature_celsius.1" not in answer["raw"], "what a card does not tell is no line"
    assert answer["smooth"]["power_watts.1"]["low"][-1] == 188.0
    assert points.answer(record, window)["raw"] == answer["raw"]
    assert csv_of(record, ["power_watts.0", "power_watts.1"]).splitlines()[-1] == "20,168.0,188.0"
    assert [is_metric(name) for name in ("power_watts.1", "power_watts.99", "loss.0", "power_watts.x")] == [
        True,
        *[False] * 3,
    ]
