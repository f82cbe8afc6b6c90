"""The test command: format, lint, floors, every test, types; a line each, and the first red one is the answer.

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
from typing import Any

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
    kinds = "not gpu" if slow else "not gpu and not slow"
    if chosen:
        checks = {"tests": ["pytest", *ALL_WORKERS, "-m", kinds, *chosen]}
    else:  # what measures time runs after the others, alone; all that is not slow drives a browser
        checks = {
            "format": ["ruff", "format", "--check", "."],
            "lint": ["ruff", "check", "."],
            "floors": ["lint-imports"],
            "tests": ["pytest", *ALL_WORKERS, "-m", f"{kinds} and not alone"],
            "types": ["mypy", *SOURCES],
            "tests that measure time": ["pytest", "-m", f"{kinds} and alone", *([] if slow else ["tests/e2e"])],
        }
    # Types are checked while tests run, which often wait for each other, and are told of after them.
    beside = {name: begin(checks[name], stdout=subprocess.PIPE) for name in ("types",) if name in checks}
    failed = [name for name, command in checks.items() if not run(name, command, beside.get(name))]
    print(f"\nFailed: {', '.join(failed)}" if failed else "\nAll checks passed.", flush=True)
    return 1 if failed else 0


def begin(command: list[str], **options: Any) -> subprocess.Popen[str]:
    """A program of this environment."""
    path = os.pathsep.join([str(PYTHON.parent), os.environ.get("PATH", "")])
    # One thread each: the workers share the cores, and torch would start as many threads in every process. And compiled
    # modules are kept: without them hundreds of child processes, and each worker's collection, would compile anew.
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PATH": path}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    program = [str(PYTHON.parent / command[0]), *command[1:]]
    return subprocess.Popen(program, cwd=ROOT, env=environment, text=True, **options)


def run(name: str, command: list[str], begun: subprocess.Popen[str] | None = None) -> bool:
    """One check, its output shown as it comes, of one that was begun already at once; True when it passed."""
    print(f"── {name} {'─' * (60 - len(name))}", flush=True)
    started = time.monotonic()
    process = begun or begin(command)
    said, _ = process.communicate()
    print(said or "", end="")
    passed = process.returncode == 0
    print(f"   {'passed' if passed else 'FAILED'} in {time.monotonic() - started:.0f} s", flush=True)
    return passed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
