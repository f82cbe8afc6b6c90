"""What earlier runs taught goes into the plan, not only into the verdict on it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig, TrainChoice
from core.estimate import Learned, estimate, make_it_fit, predict, resolve
from core.machine.hardware import Machine

Card = Callable[..., Machine]
Model = Callable[[str], ModelSpec]


def taught(config: RunConfig, spec: ModelSpec, machine: Machine, more: float) -> Learned:
    """A run like this one that took so many times what was predicted."""
    line = predict(config, spec, None, machine)
    took = {"measured_bytes": round(more * line.predicted_bytes), "steps": 50}
    took["measured_reserved_bytes"] = round(more * line.predicted_reserved_bytes)
    return Learned((line.model_copy(update=took),))


@pytest.mark.parametrize("more", [1.02, 1.08, 1.15])
@pytest.mark.parametrize(("key", "free"), [("mistral-7b", 7.0), ("qwen3-8b", 11.0), ("llama-3.2-3b", 5.0)])
def test_an_automatic_plan_fits_after_a_run_that_took_more(
    key: str, free: float, more: float, card: Card, model: Model
) -> None:
    config, spec, machine = RunConfig(train=TrainChoice(max_length=2048)), model(key), card(free)
    first, _ = resolve(config, spec, None, machine)
    assert estimate(first, spec, None, machine).verdict == "fits"
    learned = taught(first, spec, machine, more)
    full, lines = resolve(config, spec, None, machine, learned)
    found = estimate(full, spec, None, machine, learned)
    assert found.verdict == "fits"
    assert found == estimate(config, spec, None, machine, learned), "the choice, and what was made of it"
    assert make_it_fit(config, spec, None, machine, learned) == ()
    if full != first:
        [line] = [one for one in lines if one.key == "train.memory_gib"]
        assert full.train.memory_gib < first.train.memory_gib
        assert f"took {more - 1:.0%} more than counted" in line.reason


def test_what_leaves_room_enough_is_not_changed(card: Card, model: Model) -> None:
    config, spec, machine = RunConfig(train=TrainChoice(max_length=256)), model("qwen2.5-0.5b"), card(23.0)
    first, _ = resolve(config, spec, None, machine)
    assert resolve(config, spec, None, machine, taught(first, spec, machine, 1.1))[0] == first


def test_memory_that_was_chosen_by_hand_stays(card: Card, model: Model) -> None:
    config, spec, machine = RunConfig(train=TrainChoice(memory_gib=6.2)), model("mistral-7b"), card(7.0)
    first, _ = resolve(config, spec, None, machine)
    assert resolve(config, spec, None, machine, taught(first, spec, machine, 1.1))[0] == first
