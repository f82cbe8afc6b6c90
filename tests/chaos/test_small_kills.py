"""A few of the kills by default, all with ``-m slow``; the small processes run apart and have no torch."""

import re
import subprocess
import sys

import pytest

from core.machine.locations import REPOSITORY


def chaos(parts: str, kills: int = 0, seconds: float = 3600) -> str:
    """Runs these parts with a fresh seed; a line of each, or a fault with the seed."""
    command = [sys.executable, "-m", "tests.chaos", *parts.split(), "--kills", str(kills)]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=seconds, check=False)
    assert run.returncode == 0, run.stderr[-4000:] + run.stdout
    print(run.stdout.strip())
    return run.stdout


def killed(line: str) -> int:
    """How many kills a line tells."""
    told = re.search(r": (\d+) kills in", line)
    assert told
    assert "0 faults" in line
    return int(told[1])


@pytest.mark.parametrize(
    ("parts", "kills"),
    [
        ("small power", 15), ("jobs", 2),
        pytest.param("small", 700, marks=pytest.mark.slow),
        pytest.param("power", 200, marks=pytest.mark.slow),
        pytest.param("jobs", 200, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_nothing_is_lost_by_kills_inside_writes_and_calls(parts: str, kills: int) -> None:
    """Workers and their logs, rotation and checkpoints; the same with the power going; starters and supervisors."""
    lines = chaos(parts, kills).splitlines()
    for part, line in zip(parts.split(), lines, strict=True):
        assert killed(line) >= kills
        assert part != "small" or "worker bytes" in line.replace("after ", ""), "no kill was inside a write"


@pytest.mark.parametrize("apart", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_disk_that_is_full_at_any_megabyte_loses_nothing(apart: int) -> None:
    """In every of three ways at each; by default in one of them."""
    assert "full at" in chaos("disk", apart)
