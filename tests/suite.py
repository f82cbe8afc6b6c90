"""The test command: format, lint, types, floors, then every test; a line each, and the first red one is the answer.

python3 launcher.py test                the default run: everything that needs no GPU and is not slow
python3 launcher.py test --slow         the slow ones too
python3 launcher.py test -k name        what follows is pytest's own
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = Path(sys.executable)
SOURCES = ("core", "studio", "launcher.py")
CORES = os.cpu_count() or 2
ALL_WORKERS = ["-n", str(CORES + max(1, CORES // 4)), "--dist", "loadfile", "--no-loadscope-reorder"]
"""One a core, and some for browser tests, which mostly wait; who follows whom is said in tests/conftest.py."""


def main(arguments: Sequence[str]) -> int:
    """Runs all checks even after a failure, so that one run names every fault; returns how many failed, at most 1."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    slow = "--slow" in arguments
    chosen = [word for word in arguments if word != "--slow"]
    checks = {
        "format": ["ruff", "format", "--check", "."],
        "lint": ["ruff", "check", "."],
        "types": ["mypy", *SOURCES],
        "floors": ["lint-imports"],
    }
    failed = [name for name, command in ({} if chosen else checks).items() if not run(name, command)]
    kinds = "not gpu" if slow else "not gpu and not slow"
    if chosen:
        parts = {"tests": ["pytest", *ALL_WORKERS, "-m", kinds, *chosen]}
    else:  # what measures time runs after the others, alone; all that is not slow drives a browser
        parts = {
            "tests": ["pytest", *ALL_WORKERS, "-m", f"{kinds} and not alone"],
            "tests that measure time": ["pytest", "-m", f"{kinds} and alone", *([] if slow else ["tests/e2e"])],
        }
    failed += [name for name, command in parts.items() if not run(name, command)]
    print(f"\nFailed: {', '.join(failed)}" if failed else "\nAll checks passed.", flush=True)
    return 1 if failed else 0


def run(name: str, command: list[str]) -> bool:
    """One check, its output shown as it comes; True when it passed."""
    print(f"── {name} {'─' * (60 - len(name))}", flush=True)
    started = time.monotonic()
    path = os.pathsep.join([str(PYTHON.parent), os.environ.get("PATH", "")])
    # One thread each: the workers share the cores, and torch would start as many threads in every process.
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PATH": path}
    program = [str(PYTHON.parent / command[0]), *command[1:]]
    code = subprocess.run(program, cwd=ROOT, env=environment, check=False).returncode
    print(f"   {'passed' if code == 0 else 'FAILED'} in {time.monotonic() - started:.0f} s", flush=True)
    return code == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
