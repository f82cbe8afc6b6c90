"""The Triton code without a card: run by Triton's interpreter, and compiled ahead of time for every card we name."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KERNELS = 18
EIGHT_BIT = {"75": 12, "80": 15, "86": 15, "89": 30, "90": 30, "100": 30, "120": 30}
pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


def python(*arguments: str, **environment: str) -> str:
    """What a fresh process prints: Triton decides at its import whether it interprets."""
    root = HERE.parents[2]
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root), **environment},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-3000:]
    return done.stdout


def test_kernels_run_in_the_interpreter() -> None:
    tests = [str(HERE / name) for name in ("test_kernels_rows.py", "test_kernels_nf4.py", "test_kernels_eightbit.py")]
    said = python("-m", "pytest", "-p", "no:cacheprovider", *tests, TRITON_INTERPRET="1", TORCHDYNAMO_DISABLE="1")
    assert " passed" in said
    assert "skipped" not in said


@pytest.mark.parametrize(
    "capabilities", [("75",), pytest.param(("80", "86", "89", "90", "120"), marks=pytest.mark.slow)]
)
def test_kernels_compile_ahead_of_time_for_every_card(capabilities: tuple[str, ...], tmp_path: Path) -> None:
    """The oldest card, which has the least of everything, always; the newer ones only in the long run."""
    said = python(str(HERE / "compile_kernels.py"), *capabilities, TRITON_CACHE_DIR=str(tmp_path))
    assert said.count("compiled") == len(capabilities) * KERNELS


@pytest.mark.parametrize(
    "capabilities", [("75",), pytest.param(("80", "86", "89", "90", "100", "120"), marks=pytest.mark.slow)]
)
def test_eight_bit_kernels_compile_ahead_of_time_for_every_card(capabilities: tuple[str, ...], tmp_path: Path) -> None:
    """Within a block's shared memory, without spills, on matrix units of their format."""
    said = python(str(HERE / "compile_eightbit.py"), *capabilities, TRITON_CACHE_DIR=str(tmp_path))
    assert said.count("compiled") == sum(EIGHT_BIT[capability] for capability in capabilities)
