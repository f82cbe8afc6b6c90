"""Parity: the sides train the same windows, and the verdict is that of the module's two sentences."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from core.bench.children import Outcome, measure_all
from core.bench.parity import compare, settings_of, side_by_side, table
from core.bench.setting import Setting, check
from core.contract.errors import RunError


def test_fast_and_plain_side_by_side(setting: Setting, in_process: Callable[..., Outcome]) -> None:
    base = replace(setting, kernels="twins", steps=3, warm_up=0)
    result = side_by_side(base, in_process, 1, lambda _: None)
    json.dumps(result, allow_nan=False)
    assert list(result["losses"]) == ["fast", "plain 4x1", "plain 2x2", "plain 1x4"]
    assert all(len(losses) == 3 for losses in result["losses"].values())
    assert result["plain_largest_spread"] < 1e-5
    assert result["fast_largest_distance"] < 1e-5
    assert result["held_out"]["agrees"]
    assert result["table"][-1]["step"] == 3
    assert "held out  agrees" in table(result)
    assert any("fast" in line for line in result["plans"]["fast"])


def test_sixteen_rows_are_sent_in_four_ways() -> None:
    ways = settings_of(Setting(rows="dense:8", batch=4, accumulation=4, checkpointing="auto"))
    assert list(ways) == ["fast", "plain 16x1", "plain 8x2", "plain 4x4", "plain 2x8"]
    assert ways["fast"].checkpointing == "auto"
    assert {way.checkpointing for name, way in ways.items() if name != "fast"} == {"recompute"}


def judged(fast: list[float | None], plain: list[list[float]], held_out: list[float | None]) -> dict[str, Any]:
    names = ["fast", *(f"plain {number}" for number in range(len(plain)))]
    known = ("device", "capability", "driver", "vram_total_gib", "python", "versions", "rows", "plan")
    outcomes = {
        name: Outcome({**dict.fromkeys(known), "losses": losses, "held_out_loss": loss})
        for name, losses, loss in zip(names, [fast, *plain], held_out, strict=True)
    }
    return compare({name: Setting(rows="dense:8") for name in names}, outcomes)


def run_of(at_tenth: list[float]) -> list[float]:
    """Losses whose every tenth is given; the others are far away and must not be looked at."""
    return [value for tenth in at_tenth for value in [100.0 * tenth] * 9 + [tenth]]


def test_the_verdict_holds_fast_against_plains_largest_spread() -> None:
    plain = [run_of([4.0, 2.0]), run_of([4.0, 2.2])]
    near = judged(run_of([4.1, 2.1]), plain, [2.0, 2.0, 2.0])
    assert near["plain_largest_spread"] == pytest.approx(0.2)
    assert near["fast_largest_distance"] == pytest.approx(0.1)
    assert near["agrees"]
    assert (near["tenth_steps"], near["tenth_steps_within_their_own_spread"]) == (2, 1)
    far = judged(run_of([4.31, 2.1]), plain, [2.0, 2.0, 2.0])
    assert far["ratio"] == pytest.approx(1.55)
    assert not far["agrees"]


def test_neighbours_in_float32_are_one_loss() -> None:
    plain = [run_of([4.0]), run_of([4.0])]
    assert judged(run_of([4.0 + 4e-7]), plain, [2.0, 2.0, 2.0])["agrees"]
    assert not judged(run_of([4.0 + 6e-7]), plain, [2.0, 2.0, 2.0])["agrees"]


def test_the_held_out_loss_may_lie_three_thousandths_apart() -> None:
    plain = [run_of([4.0]), run_of([4.1])]
    assert judged(run_of([4.0]), plain, [2.0059, 2.0, 2.0])["agrees"]
    apart = judged(run_of([4.0]), plain, [2.0061, 2.0, 2.0])
    assert not apart["held_out"]["agrees"]
    assert not apart["agrees"]
    assert judged(run_of([4.0]), plain, [None, None, None])["held_out"]["agrees"] is None


def test_a_loss_that_is_no_number_never_agrees() -> None:
    plain = [run_of([4.0, 2.0]), run_of([4.5, 2.0])]
    lost: list[float | None] = [*run_of([4.0])]
    result = judged([*lost, *([None] * 10)], plain, [2.0, 2.0, 2.0])
    assert not result["agrees"]
    assert (result["table"][1]["distance"], result["plain_largest_spread"]) == (None, 0.5)
    json.dumps(result, allow_nan=False)
    assert table(result)


def test_a_side_that_fails_gives_no_verdict() -> None:
    base = Setting(rows="dense:8", batch=2, accumulation=1)
    with pytest.raises(RunError, match="plain 2x1: the card was full"):
        side_by_side(base, lambda *_: Outcome(None, "the card was full"), 1, lambda _: None)


def test_sides_are_measured_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=20)

    def run(*_: Any) -> Outcome:
        together.wait()
        return Outcome(None, "measured nothing")

    outcomes = measure_all({name: Setting() for name in "abc"}, run, 3, lambda _: None)
    assert {name: outcome.error for name, outcome in outcomes.items()} == dict.fromkeys("abc", "measured nothing")


class Judged:
    """A runner whose plain sides stray together in step 10; in float32 the loss is where fast has it, or elsewhere."""

    def __init__(self, fast: float, truth: float | None) -> None:
        self.fast, self.truth, self.asked = fast, truth, list[Setting]()

    def __call__(self, setting: Setting, _say: Any, _every: int) -> Outcome:
        self.asked.append(check(setting))
        if setting.dtype == "float32" and self.truth is None:
            return Outcome(None, "the card was full")
        tenth = self.truth if setting.dtype == "float32" else 4.0 + 0.001 * setting.accumulation
        losses = run_of([self.fast if not setting.plain else tenth or 0.0, 2.0])[: setting.steps_taken]
        known = ("device", "driver", "vram_total_gib", "python", "versions", "rows", "plan")
        return Outcome({**dict.fromkeys(known), "capability": [9, 0], "seconds_a_step": 1.0, "losses": losses,
                        "held_out_loss": 2.0})  # fmt: skip


def strays(fast: float, truth: float | None, warm_up: int = 0) -> tuple[dict[str, Any], list[Setting]]:
    runner, kept = Judged(fast, truth), list[tuple[int, bool]]()
    base = Setting(rows="dense:8", batch=4, accumulation=4, steps=20 - warm_up, warm_up=warm_up)
    result = side_by_side(
        base, runner, 1, lambda _: None, lambda verdict: kept.append((len(runner.asked), "judge" in verdict))
    )
    assert kept == [(5, False)], "the verdict is kept before the judge is asked"
    return result, runner.asked


@pytest.mark.parametrize("warm_up", [0, 12])
def test_where_fast_lies_outside_plain_in_float32_says_who_is_nearer(warm_up: int) -> None:
    result, asked = strays(3.9, 3.88, warm_up)
    assert result["outside"] == [10]
    judge = asked[-1]
    assert (judge.plain, judge.dtype, judge.until, judge.total_steps, judge.warm_up) == (True, "float32", 10, 20, 0)
    assert (judge.batch, judge.accumulation) == (2, 8), "what needs least memory"
    assert len(result["judge"]["losses"]) == 10
    assert (result["table"][0]["judge"], result["table"][0]["fast_nearer"]) == (3.88, True)
    assert (result["table"][1]["judge"], result["table"][1]["fast_nearer"]) == (None, None)
    assert result["outside_and_nearer"] == 1
    assert not result["agrees"], "the rule stays what it was"
    assert "nearer to plain in float32 than plain is at 1 of 1" in table(result)
    json.dumps(result, allow_nan=False)


def test_a_judge_may_also_find_plain_nearer_fail_or_not_be_asked() -> None:
    assert strays(3.9, 4.1)[0]["outside_and_nearer"] == 0
    failed = strays(3.9, None)[0]
    assert (failed["outside_and_nearer"], failed["judge"]["error"]) == (0, "the card was full")
    assert "could not be trained: the card was full" in table(failed)
    result, asked = strays(4.001, 4.0)
    assert result["agrees"]
    assert "judge" not in result
    assert len(asked) == 5
