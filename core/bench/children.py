"""Measures settings in child processes, so that none is affected by another's memory, patches or kernels.

A child is ``python -m core.bench step ...``: its result is a JSON file; progress and the error line go to stderr.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.bench.setting import flags_of
from core.machine.children.tied import start_tied
from core.machine.hardware import read_machine
from core.machine.imports import without_card
from core.machine.locations import REPOSITORY

PROGRESS = "step "
"""Begins each progress line."""


def say(line: str) -> None:
    """Progress goes to stderr; stdout holds the result alone."""
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Outcome:
    """One setting's result, or why there is none."""

    result: dict[str, Any] | None
    error: str = ""


Runner = Callable[[Any, Callable[[str], None], int], Outcome]


def measure_all(
    settings: Mapping[str, Any], run: Runner, jobs: int, say: Callable[[str], None], every: int = 0
) -> dict[str, Outcome]:
    """Each setting's outcome by its name, ``jobs`` at a time; says when each begins and ends."""
    order = {name: number for number, name in enumerate(settings, start=1)}

    def one(name: str) -> Outcome:
        say(f"{name}: begins ({order[name]} of {len(order)})")
        outcome = run(settings[name], lambda line: say(f"{name}: {line}"), every)
        say(f"{name}: " + (f"failed: {outcome.error}" if outcome.result is None else _ended(outcome.result)))
        return outcome

    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        return dict(zip(settings, pool.map(one, settings), strict=True))


def own_process(setting: Any, say: Callable[[str], None], every: int) -> Outcome:
    """Measures ``setting`` (a dataclass of flags with its ``command``) in a child process."""
    with tempfile.TemporaryDirectory(prefix="luthier-bench-") as folder:
        place = Path(folder) / "result.json"
        flags = [*flags_of(setting), "--json", str(place), "--every", str(every)]
        child = start_tied(
            [sys.executable, "-m", "core.bench", *setting.command, *flags],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=_environment(),
        )
        last = ""
        for line in child.stderr or ():
            if line.startswith(PROGRESS):
                say(line.strip())
            elif line.strip():
                last = line.strip()
        code = child.wait()
        if code or not place.is_file():
            return Outcome(None, last or f"the process ended with {code} and no word")
        return Outcome(json.loads(place.read_text(encoding="utf-8")))


def _environment() -> dict[str, str]:
    """The child runs in the current folder (flags may hold relative paths), so PYTHONPATH must name this checkout."""
    paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    told = {} if read_machine().gpu else without_card(os.environ)
    return {**os.environ, **told, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def _ended(result: dict[str, Any]) -> str:
    seconds, loss = result["seconds_a_step"], result["losses"][-1]
    return f"{seconds:.4f} s a step, last loss " + ("none" if loss is None else f"{loss:.4f}")
