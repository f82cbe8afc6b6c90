"""``python -m tests.chaos``: the full numbers, a line each; or some parts, by name."""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from .fulldisk import sweep_disk
from .jobs import kill_jobs
from .kills import Figures, kill_small

MEMORY = Path("/dev/shm")
"""Where there is one: a SIGKILL loses nothing that was written, there or on a disk, and a disk keeps one waiting."""


def _whole(home: Path, kills: int, seed: int) -> Figures:
    from .whole import kill_whole_runs  # brings the studio's tests along, which small processes do without

    return kill_whole_runs(home, kills, seed)


def _ranks(home: Path, kills: int, seed: int) -> Figures:
    from .whole import kill_ranks

    return kill_ranks(home, kills, seed)


PARTS: dict[str, tuple[Callable[[Path, int, int], Figures], int]] = {
    "small": (kill_small, 700),
    "power": (partial(kill_small, power=True), 200),
    "jobs": (kill_jobs, 200),
    "whole": (_whole, 100),
    "ranks": (_ranks, 100),
    "disk": (lambda home, apart, _seed: sweep_disk(home, apart), 1),
}
"""Each part and its full number of kills; of a full disk, how many megabytes lie between its fillings."""


def run_part(part: str, many: int, seed: int) -> str:
    """Runs one part and returns its line.

    Raises:
        AssertionError: something was lost; the words say the seed.
    """
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-", dir=MEMORY if MEMORY.is_dir() else None) as home:
        figures = PARTS[part][0](Path(home), many or PARTS[part][1], seed)
    return figures.line(part, seed, time.monotonic() - begun)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the chosen parts; 0 where nothing was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all where none is named")
    parser.add_argument("--kills", type=int, default=0, help="how many, for each part (0: the full number)")
    parser.add_argument("--seed", type=int, default=0, help="0: drawn now; it is printed")
    told = parser.parse_args(arguments)
    seed = told.seed or random.SystemRandom().randint(1, 2**31)
    for part in told.parts or PARTS:
        print(run_part(part, told.kills, seed), flush=True)
    if "torch" in sys.modules:
        raise AssertionError("torch was imported by a small process")
    return 0


if __name__ == "__main__":
    sys.exit(main())
