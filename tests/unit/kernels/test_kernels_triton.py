"""The Triton code without a card: run by Triton's interpreter, and compiled ahead of time for every card we name."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A fresh process: Triton decides at its import whether it interprets."""
    root = HERE.parents[2]
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root), **environment},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_kernels_run_in_the_interpreter() -> None:
    script = str(HERE / "interpreted_kernels.py")
    done = python("-m", "pytest", "-p", "no:cacheprovider", script, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


def compiled(folder: Path, *capabilities: int) -> int:
    """How many kernels were compiled for these compute capabilities; fails where one was not."""
    script, names = str(HERE / "compile_kernels.py"), [str(capability) for capability in capabilities]
    done = python(script, *names, TRITON_CACHE_DIR=str(folder))
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.count("compiled")


def test_kernels_compile_ahead_of_time_for_the_oldest_and_the_newest_card(tmp_path: Path) -> None:
    assert compiled(tmp_path, 75, 120) == 12


@pytest.mark.slow
def test_kernels_compile_ahead_of_time_for_every_card_between(tmp_path: Path) -> None:
    assert compiled(tmp_path, 80, 86, 89, 90) == 24
