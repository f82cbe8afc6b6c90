"""On a card: a run that was cut off and resumed ends bit for bit like an undisturbed one in deterministic mode, and
otherwise no farther from undisturbed ones than these are from each other.

With 8-bit AdamW, packing, and with dropout (then layers compute as peft does) or without (then our kernels do, none of
which adds in an order of the moment). About 30 s of a card.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from resume_on_card import CASES

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card here")]

TESTS = Path(__file__).parents[1]
SPREADS = 3.0
"""Three undisturbed runs are few to know a spread by; a lost step or other random numbers are far beyond it."""


def runs(tmp_path: Path, mode: str) -> dict[str, dict[str, float]]:
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, str(Path(__file__).with_name("resume_on_card.py")), str(tmp_path), mode]
    env = {**os.environ, "PYTHONPATH": paths, "LUTHIER_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    assert found.keys() == CASES.keys()
    for case in found.values():
        assert case["resumed_from"] == 4
        assert case["changed"] > 0, "the last steps changed something"
    return found


def test_in_deterministic_mode_resumed_is_uninterrupted_bit_for_bit(tmp_path: Path) -> None:
    for name, case in runs(tmp_path, "deterministic").items():
        assert case["spread"] == 0, f"{name}: two undisturbed runs differ, so equality could not be asked"
        assert case["resumed"] == 0, name


def test_otherwise_it_is_within_the_runs_own_spread(tmp_path: Path) -> None:
    for name, case in runs(tmp_path, "free").items():
        assert case["resumed"] <= SPREADS * case["spread"], (name, case)
