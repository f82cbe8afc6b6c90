"""Nested state goes to disk without pickle and comes back bit for bit, shared maps included.

With real optimisers of 8 and 32 bits: test_train_resume.py.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from core.train.keep.state import flatten, load_state, save_state


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def test_a_tree_of_everything_comes_back(tmp_path: Path) -> None:
    shared = torch.arange(4, dtype=torch.uint8)
    tree = {
        "state": {0: {"step": torch.tensor(3.0), "map": shared}, 1: {"map": shared, "m": torch.randn(2, 3).bfloat16()}},
        "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.999), "foreach": None, "params": [0, 1], "on": True}],
        "view": torch.arange(6).reshape(2, 3).T,
    }
    save_state(tmp_path, "optimizer", tree)
    back = load_state(tmp_path, "optimizer")
    assert same(tree, back)
    assert back["state"][0]["map"] is back["state"][1]["map"]
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".safetensors"]


def test_what_json_cannot_say_is_refused() -> None:
    with pytest.raises(TypeError, match="without pickle"):
        flatten({"function": print})


def test_nothing_written_reads_as_none(tmp_path: Path) -> None:
    assert load_state(tmp_path, "scaler") is None
