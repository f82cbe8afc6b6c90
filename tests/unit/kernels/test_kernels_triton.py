"""The Triton code without a card: run by Triton's interpreter, and compiled ahead of time for every card we name."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
KERNELS = 18
EIGHT_BIT = {75: 12, 80: 15, 86: 15, 89: 30, 90: 30, 100: 30, 120: 30}
CONTAINED = ("rope back", "swiglu forward", "swiglu backward", "cross_entropy alone", "nf4 of a stack")
CONTAINED_OF_EIGHT = ("rows, 4096 True", "gate backward ROUNDED", "16 bits, turned False")
"""What another compilation of the same kernel does as well, and more beside."""
pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


@pytest.fixture
def compiles_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing that was compiled before is found."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_kernels_run_in_the_interpreter(which: str) -> None:
    """In a fresh process: Triton decides at its import whether it interprets."""
    tests = [str(HERE / name) for name in ("test_kernels_rows.py", "test_kernels_nf4.py", "test_kernels_eightbit.py")]
    told = {"TRITON_INTERPRET": "1", "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", f"not gpu and {which}", *tests],
        env={**os.environ, **told}, cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-3000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.parametrize(
    ("capabilities", "without"),
    [((75,), CONTAINED), pytest.param((75, 80, 86, 89, 90, 120), (), marks=pytest.mark.slow)],
)
def test_kernels_compile_ahead_of_time_for_every_card(
    capabilities: tuple[int, ...], without: tuple[str, ...], compiles_anew: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every kernel for the oldest card, which has the least of everything, always; the others only in the long run."""
    import compile_kernels

    for capability in capabilities:
        compile_kernels.main(capability, without)
    assert capsys.readouterr().out.count("compiled") == len(capabilities) * (KERNELS - len(without))


@pytest.mark.parametrize(
    ("capabilities", "without"),
    [((75,), CONTAINED_OF_EIGHT), pytest.param((75, 80, 86, 89, 90, 100, 120), (), marks=pytest.mark.slow)],
)
def test_eight_bit_kernels_compile_ahead_of_time_for_every_card(
    capabilities: tuple[int, ...], without: tuple[str, ...], compiles_anew: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within a block's shared memory, without spills, on matrix units of their format."""
    import compile_eightbit

    for capability in capabilities:
        compile_eightbit.main(capability, without)
    compiled = sum(EIGHT_BIT[capability] - len(without) for capability in capabilities)
    assert capsys.readouterr().out.count("compiled") == compiled
