"""The trial of arithmetics on one of a model's own layers, on the CPU with the products' definitions."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
import torch
from model_tiny import adapt, build

from core.kernels.eightbit import matrix
from core.model.layers import trial
from core.model.layers.trial import milliseconds_a_layer

ALL = ("16-bit", "fp8", "int8")


def clock() -> Any:
    """A second each time it is looked at."""
    ticks = count()
    return lambda: float(next(ticks))


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2"])
def test_every_arithmetic_is_timed_on_the_layer_s_own_stacks(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, inner = list[str](), matrix.product
    monkeypatch.setattr(matrix, "product", lambda *args, **more: (made.append("8"), inner(*args, **more))[1])
    tables, known = list[str](), matrix.Known.of
    monkeypatch.setattr(matrix.Known, "of", lambda *args: (tables.append("8"), known(*args))[1])
    model = adapt(build(family))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    found = milliseconds_a_layer(model, 24, ALL, torch.float32, force=True, clock=clock())
    assert found == dict.fromkeys(ALL, 4000.0), "four stacks of a second each"
    assert len(made) == 2 * 4 * 2 * (1 + trial.LEAST_ROUNDS)
    assert len(tables) == 2 * 4, "what is found once a run is found once"
    assert torch.equal(torch.get_rng_state(), state), "a run draws the same numbers after it"
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_what_fails_on_this_card_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(matrix, "product", full)
    assert list(milliseconds_a_layer(adapt(build("llama")), 24, ALL, torch.float32, force=True)) == ["16-bit"]
    dora = adapt(build("llama"), use_dora=True)
    assert list(milliseconds_a_layer(dora, 24, ALL, torch.float32, force=True)) == ["16-bit"]
    assert milliseconds_a_layer(adapt(build("llama")), 24, ALL, torch.float32) == {}, "no layer is fast without a card"
