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
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = Path(sys.executable)
SOURCES = ("core", "studio", "launcher.py")
WORKERS = ["-n", str(os.cpu_count() or 2), "--dist", "loadfile", "--no-loadscope-reorder"]
"""One a core. Beside them goes one for browser tests, which mostly wait for several processes."""
BROWSER = "tests/e2e"


def main(arguments: Sequence[str]) -> int:
    """Runs all checks even after a failure, so that one run names every fault; returns how many failed, at most 1."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    slow = "--slow" in arguments
    chosen = [word for word in arguments if word != "--slow"]
    kinds = "not gpu" if slow else "not gpu and not slow"
    if chosen:
        return 0 if told("tests", begin(["pytest", "-m", kinds, *chosen])) else 1
    # Types are checked and browsers driven beside the other tests, and are told of after them.
    types = begin(["mypy", *SOURCES], stdout=subprocess.PIPE)
    passed = {
        name: told(name, begin(command))
        for name, command in {
            "format": ["ruff", "format", "--check", "."],
            "lint": ["ruff", "check", "."],
            "floors": ["lint-imports"],
        }.items()
    }
    tests = begin(["pytest", *WORKERS, "-m", f"{kinds} and not alone", f"--ignore={BROWSER}"])
    waits = {"OTHER_TESTS": str(tests.pid)}
    browsers = begin(["pytest", "-m", kinds, BROWSER], waits, stdout=subprocess.PIPE)
    for name, process in (("tests", tests), ("types", types), ("browser tests, and what measures time", browsers)):
        passed[name] = told(name, process)
    if slow:
        alone = ["pytest", "-m", f"{kinds} and alone", f"--ignore={BROWSER}"]
        passed["tests that measure time"] = told("tests that measure time", begin(alone))
    failed = [name for name, well in passed.items() if not well]
    print(f"\nFailed: {', '.join(failed)}" if failed else "\nAll checks passed.", flush=True)
    return 1 if failed else 0


def begin(command: list[str], own: Mapping[str, str] | None = None, stdout: int | None = None) -> subprocess.Popen[str]:
    """A program of this environment, with variables of its own."""
    path = os.pathsep.join([str(PYTHON.parent), os.environ.get("PATH", "")])
    # One thread each: the workers share the cores, and torch would start as many threads in every process. And compiled
    # modules are kept: without them hundreds of child processes, and each worker's collection, would compile anew.
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PATH": path, **(own or {})}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    program = [str(PYTHON.parent / command[0]), *command[1:]]
    return subprocess.Popen(program, cwd=ROOT, env=environment, text=True, stdout=stdout)


def told(name: str, process: subprocess.Popen[str]) -> bool:
    """Waits for a check, says what it said unless that was shown as it came, and whether it passed."""
    print(f"── {name} {'─' * (60 - len(name))}", flush=True)
    started = time.monotonic()
    said, _ = process.communicate()
    print(said or "", end="")
    passed = process.returncode == 0
    print(f"   {'passed' if passed else 'FAILED'} in {time.monotonic() - started:.0f} s", flush=True)
    return passed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
