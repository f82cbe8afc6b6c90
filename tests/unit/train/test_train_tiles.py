"""Runs whose long rows are computed in tiles: they learn what others learn, and go on after a kill bit for bit."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from dying_log import Killed, Log
from tiny_run import equal, weights

from core.model.layers import surgery, tiles
from core.train.run import train

RECOMPUTED = {
    "train__checkpointing": "recompute", "train__tokens_per_pass": 512, "train__max_steps": 4, "train__eval_steps": 2,
}  # fmt: skip
WHOLE, TILED = {**RECOMPUTED, "train__tile_tokens": 0}, {**RECOMPUTED, "train__tile_tokens": 24}


@pytest.fixture
def widest(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Our layers on the CPU, and the tokens of each call of their second half."""
    monkeypatch.setattr(surgery, "plan", partial(surgery.plan, force=True))
    seen, inner = [0], tiles.lora_mlp
    monkeypatch.setattr(tiles, "lora_mlp", lambda a, *rest: seen.append(len(a)) or inner(a, *rest))
    return seen


@pytest.mark.parametrize("method", [pytest.param("sft", marks=pytest.mark.slow), "dpo"])
def test_a_run_in_tiles_learns_what_one_in_whole_rows_does(method: str, runs: Any, widest: list[int]) -> None:
    """Pairs too: a prompt's keys are of both answers, and the reference is a pass without gradients."""
    (_, whole), seen = runs.undisturbed(method=method, **WHOLE), max(widest)
    _, tiled = runs.undisturbed(method=method, **TILED)
    assert (seen, max(widest)) == (0, 24)
    assert list(tiled.losses()) == list(whole.losses())
    for ours, theirs in zip(tiled.losses().values(), whole.losses().values(), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)
    measured = [[event.loss for event in one.of("evaluation")] for one in (tiled, whole)]
    assert measured[0] == pytest.approx(measured[1], rel=1e-4)
    assert any("long passes in tiles of 24 tokens" in line for line in tiled.of("plan")[0].lines)


def test_it_goes_on_after_a_kill_with_the_same_bits(runs: Any, letters: Any, widest: list[int]) -> None:
    class Dying(Log):
        def write(self, event: Any) -> Any:
            if event.kind == "step" and event.step == 3:
                raise Killed
            return super().write(event)

    wanted, _ = runs.undisturbed(**TILED)
    folder = runs.make(**TILED)
    with pytest.raises(Killed):
        train(folder, Dying(folder), letters)
    runs.work(folder, 2)
    assert equal(weights(folder), weights(wanted))
    assert max(widest) == 24
