"""Whole runs of the built-in model, their processes killed: a hundred times, with ``-m slow``.

By default its parts prove the same: a worker that is killed (``tests/unit/worker``, bit for bit in
``test_train_resume.py``), a supervisor and a starter (``test_small_kills.py`` and ``test_runs_supervisor.py``), and a
studio (``tests/e2e/test_closings.py``).
"""

import random
from pathlib import Path

import pytest

from .whole import kill_ranks, kill_whole_runs


@pytest.mark.slow
def test_a_hundred_kills_change_nothing(tmp_path: Path) -> None:
    seed = random.SystemRandom().randint(1, 2**31)
    figures = kill_whole_runs(tmp_path, 100, seed)
    print(figures.line("whole", seed, 0))
    assert figures.kills.total() == 100
    assert set(figures.kills) == {"worker", "supervisor", "studio"}


@pytest.mark.slow
def test_a_hundred_kills_among_three_ranks_change_nothing(tmp_path: Path) -> None:
    """Any rank, rank 0 or the supervisor: all of an attempt are gone within seconds, and the end is the same."""
    seed = random.SystemRandom().randint(1, 2**31)
    figures = kill_ranks(tmp_path, 100, seed)
    print(figures.line("ranks", seed, 0))
    assert figures.kills.total() == 100
    assert set(figures.kills) == {"rank", "worker", "supervisor"}
