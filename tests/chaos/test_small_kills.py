"""A tenth of the kills by default, all of them with ``-m slow``; the small processes run apart and have no torch."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from core.machine.locations import REPOSITORY


def chaos(part: str, kills: int = 0, seconds: float = 3600) -> str:
    """Runs one part with a fresh seed; its line, or its fault with the seed."""
    command = [sys.executable, "-m", "tests.chaos", part, "--kills", str(kills)]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=seconds, check=False)
    assert run.returncode == 0, run.stderr[-4000:] + run.stdout
    print(run.stdout.strip())
    return run.stdout


def killed(line: str) -> int:
    """How many kills a line tells."""
    found = re.search(r": (\d+) kills in", line)
    assert found
    assert "0 faults" in line
    return int(found[1])


def test_checkpoints_rotation_and_log_survive_kills_inside_their_writes() -> None:
    line = chaos("small", 75)
    assert killed(line) >= 75
    assert "worker bytes" in line.replace("after ", ""), "no kill was inside a write"


def test_what_was_made_durable_survives_a_power_cut() -> None:
    assert killed(chaos("power", 25)) >= 25


def test_starters_supervisors_and_workers_survive_kills_inside_their_calls() -> None:
    assert killed(chaos("jobs", 15)) >= 15


def test_a_disk_that_is_full_at_any_megabyte_loses_nothing() -> None:
    assert "full at" in chaos("disk")


@pytest.mark.slow
def test_seven_hundred_kills_inside_writes() -> None:
    assert killed(chaos("small")) >= 700


@pytest.mark.slow
def test_two_hundred_power_cuts() -> None:
    assert killed(chaos("power")) >= 200


@pytest.mark.slow
def test_two_hundred_kills_of_starters_supervisors_and_workers() -> None:
    assert killed(chaos("jobs")) >= 200
