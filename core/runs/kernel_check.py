"""Whether this machine can run our kernels: one trivial kernel, tried in a process of its own.

Triton wants a C compiler and Python.h at its first kernel, and a fresh Linux has neither. Where the trial fails the run
takes the plain path and says so; it is never a failed run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from core.contract.events import Note
from core.locations import REPOSITORY

__all__ = ["check_kernels", "read_answer"]

PROBE_COMMAND = (sys.executable, "-m", "core.kernels.probe")
LIMIT_SECONDS = 30.0
_CURE = "sudo apt install gcc python3-dev"


def check_kernels(
    interrupted: Callable[[], bool], command: Sequence[str] = PROBE_COMMAND, limit_seconds: float = LIMIT_SECONDS
) -> Note | None:
    """Runs the trial; None where kernels work, else the note that says why not and what cures it.

    Args:
        interrupted: asked while waiting; True ends the trial at once.
        command: prints one line of JSON, ``{"ok", "reason", "cure"}``.
        limit_seconds: what takes longer counts as failed.
    """
    with tempfile.TemporaryFile() as output:
        try:
            trial = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL, cwd=REPOSITORY
            )
        except OSError as error:
            return _note(f"the trial could not be started ({error.strerror})")
        deadline = time.monotonic() + limit_seconds
        while trial.poll() is None:
            if interrupted() or time.monotonic() > deadline:
                trial.kill()
                trial.wait()
                return _note(f"the trial kernel did not answer within {limit_seconds:.0f} s")
            time.sleep(0.05)
        output.seek(0)
        return read_answer(output.read())


def read_answer(printed: bytes) -> Note | None:
    """The trial's verdict: its last line that is JSON; silence is a failure too."""
    for line in reversed(printed.splitlines()):
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        if isinstance(answer, dict) and "ok" in answer:
            return None if answer["ok"] else _note(str(answer.get("reason", "")), str(answer.get("cure", _CURE) or ""))
    return _note("the trial kernel ended without an answer")


def _note(reason: str, cure: str = _CURE) -> Note:
    return Note(code="kernels.plain", text=reason or "the trial kernel failed", hint=cure)
