"""The Triton code without a card: run by Triton's interpreter, and compiled ahead of time for every card we name."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KERNELS = 12
FLAGS = """
from core.kernels import cross_entropy, rms_norm, rope, swiglu
norms = (rms_norm._forward, rms_norm._backward)
for kernel in (*norms, rope._turn, rope._turn_back, swiglu._forward, swiglu._backward, cross_entropy._kernel):
    plain = [parameter for parameter in kernel.params if not parameter.is_constexpr]
    free = [parameter.name for parameter in plain if parameter.do_not_specialize]
    kept = [parameter.name for parameter in plain if not parameter.do_not_specialize]
    print(kernel.__name__, " ".join(free), " ".join(kept), sep=";")
"""
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
    assert compiled(tmp_path, 75, 120) == 2 * KERNELS


@pytest.mark.slow
def test_kernels_compile_ahead_of_time_for_every_card_between(tmp_path: Path) -> None:
    assert compiled(tmp_path, 80, 86, 89, 90) == 4 * KERNELS


def test_token_counts_compile_nothing_anew_and_a_models_sizes_keep_their_alignment() -> None:
    done = python("-c", FLAGS)
    assert done.returncode == 0, done.stderr[-2000:]
    for line in done.stdout.splitlines():
        name, free, kept = line.split(";")
        changing = {"rows", "tokens", "angles", "inverse", "labels", "losses"}
        assert not changing & set(kept.split()), name
        assert set(free.split()) <= changing, name
    assert len(done.stdout.splitlines()) == 7
