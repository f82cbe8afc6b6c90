"""Runs whose layers stream from the machine's memory: they learn, stop, go on and answer as all others do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dying_log import Killed, Log
from tiny_run import equal, weights

from core.contract.config import RunConfig
from core.train.run import train

STREAMED = {"model__streamed_layers": 2}
SHORT = {"train__max_steps": 4, "train__eval_steps": 2}


@pytest.mark.parametrize("method", [pytest.param("sft", marks=pytest.mark.slow), "dpo"])
def test_a_run_with_streamed_layers_learns_the_same_bit_for_bit(runs: Any, method: str) -> None:
    more = {"method": "dpo", "train__tokens_per_pass": 128, **SHORT} if method == "dpo" else {}
    folder, log = runs.undisturbed(**more)
    streamed, streamed_log = runs.undisturbed(**more, **STREAMED, train__checkpointing="recompute")
    assert streamed_log.losses() == log.losses()
    measured = [[event.loss for event in one.of("evaluation")] for one in (log, streamed_log)]
    assert measured[0] == measured[1]
    assert equal(weights(streamed), weights(folder))
    lines = streamed_log.of("plan")[0].lines
    assert any("2 of 2 layers stream from the machine's memory" in line for line in lines), lines


def test_so_does_one_whose_head_streams_too(runs: Any) -> None:
    """But for the order of sums."""
    folder, log = runs.undisturbed(**SHORT)
    streamed, streamed_log = runs.undisturbed(model__streamed_layers=3, train__checkpointing="recompute", **SHORT)
    assert streamed_log.losses() == pytest.approx(log.losses(), rel=1e-4)
    measured = [[event.loss for event in one.of("evaluation")] for one in (log, streamed_log)]
    assert measured[0] == pytest.approx(measured[1], rel=1e-4)
    for name, value in weights(folder).items():
        assert (weights(streamed)[name] - value).norm() <= 1e-2 * value.norm(), name
    lines = streamed_log.of("plan")[0].lines
    assert any("the head tile by tile" in line for line in lines), lines


def test_it_goes_on_after_a_kill_where_it_stood(runs: Any, letters: Any) -> None:
    class Dying(Log):
        def write(self, event: Any) -> Any:
            if event.kind == "step" and event.step == 3:
                raise Killed
            return super().write(event)

    wanted, _ = runs.undisturbed(**STREAMED, **SHORT)
    folder = runs.make(**STREAMED, **SHORT)
    with pytest.raises(Killed):
        train(folder, Dying(folder), letters)
    runs.work(folder, 2)
    assert equal(weights(folder), weights(wanted))


def test_where_every_weight_learns_none_can_stream(tmp_path: Path) -> None:
    raw = {
        "train": {"learns": "everything"},
        "model": {"streamed_layers": 3, "quantization": "none", "name": "starter"},
    }
    faults = RunConfig.model_validate({**raw, "data": {"path": str(tmp_path)}}).problems()
    assert any(fault.startswith("model.streamed_layers: every weight") for fault in faults), faults
