"""Parity of 8-bit products: the same rows in three draws, judged by the held-out loss."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from core.bench.children import Outcome
from core.bench.parity_eight import compare, settings_of, side_by_side, table
from core.bench.setting import Setting


def test_eight_and_sixteen_side_by_side(setting: Setting, in_process: Callable[..., Outcome]) -> None:
    base = replace(setting, kernels="twins", steps=2, warm_up=0, arithmetic="int8")
    result = side_by_side(base, in_process, 1, lambda _: None)
    json.dumps(result, allow_nan=False)
    losses = result["losses"]
    assert list(losses) == ["int8 1", "int8 2", "int8 3", "16-bit 1", "16-bit 2", "16-bit 3"]
    assert losses["int8 1"] != losses["16-bit 1"]
    assert losses["int8 1"] == pytest.approx(losses["16-bit 1"], rel=0.01)
    assert losses["16-bit 1"] != losses["16-bit 2"]
    assert result["agrees"]
    assert "held out  agrees: int8" in table(result)
    assert any("8-bit integers" in line for line in result["plans"]["int8 1"])
    assert not any("8-bit integers" in line for line in result["plans"]["16-bit 1"])
    found = result["verdicts"]["int8"]
    assert len(found["cosines"]) == 2, "layers"
    assert all(0.999 < cosine < 1 for cosine in found["cosines"])
    assert "gradients int8: cosine with those of 16 bits, layer by layer: 0.9" in table(result)
    assert [step for step, _ in result["curves"]["int8 1"]] == [1, 2]
    assert result["curves"]["int8 1"][-1][1] == result["held_out"]["int8 1"]
    assert found["answers"] is None, "nobody asks a model of random weights"


def test_right_answers_of_each_draw_stand_beside_those_of_sixteen_bits() -> None:
    base = Setting(model="folder", rows="file:rows", arithmetic="int8", steps=10, warm_up=0)
    outcomes = {
        f"{name} {draw}": Outcome(a_result(2.0, {"asked": 40, "right": 30 + draw + (name == "int8")}))
        for name in ("int8", "16-bit")
        for draw in (1, 2, 3)
    }
    settings = {name: replace(base, arithmetic=name.split(" ")[0]) for name in outcomes}
    result = compare(settings, outcomes)
    assert result["verdicts"]["int8"]["answers"] == {"asked": 40, "eight": [32, 33, 34], "sixteen": [31, 32, 33]}
    assert "int8: [32, 33, 34] of 40 held-out rows word for word, 16-bit [31, 32, 33]" in table(result)


def a_result(loss: float | None, answers: dict[str, int] | None = None) -> dict[str, Any]:
    """What one training of a bench tells, as far as it is compared."""
    empty = ("device", "capability", "driver", "vram_total_gib", "python", "versions", "rows", "plan", "seconds_a_step")
    told = {"held_out_curve": [], "cosines": [], "answers": answers, "losses": [3.0], "held_out_loss": loss}
    return {**dict.fromkeys(empty), **told}


@pytest.mark.parametrize(
    ("eight", "agrees"),
    [
        ([2.01, 2.0, 1.99], True),
        ([2.02, 2.02, 2.02], False),
        ([2.0, 1.6, 2.4], False),
        ([2.0, None, 2.0], False),
    ],
)
def test_the_verdict_is_the_mean_held_out_loss_and_the_worst_draw(eight: list[float | None], agrees: bool) -> None:
    settings = settings_of(Setting(rows="dense:8", arithmetic="fp8,int8"))
    assert [*dict.fromkeys(one.arithmetic for one in settings.values())] == ["fp8", "int8", "16-bit"]
    sixteen = [2.0, 1.9, 2.1]
    outcomes = {
        name: Outcome(a_result(loss)) for name, loss in zip(settings, [*eight, *sixteen, *sixteen], strict=True)
    }
    result = compare(settings, outcomes)
    found = result["verdicts"]["fp8"]
    assert found["agrees"] == result["agrees"] == agrees
    assert ("DIFFERS" in table(result)) != agrees
    assert found["share"] is None or found["spread"] == pytest.approx(0.1)
    assert result["verdicts"]["int8"]["agrees"], "each by itself"
    assert result["verdicts"]["int8"]["share"] == 0
