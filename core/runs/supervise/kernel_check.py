"""Whether this machine can run our kernels: one trivial kernel, tried in a process of its own.

Triton wants a C compiler and Python.h at its first kernel, and a fresh Linux has neither. Where the trial fails the run
takes the plain path and says so. What went well is not tried again with the same card, driver, libraries and compiler:
a person waits meanwhile. After a run that failed, whatever the reason, it is.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from core.contract.events import Note
from core.machine.children.tied import start_tied
from core.machine.disk import write_whole
from core.machine.hardware import Gpu
from core.machine.imports import version_of
from core.machine.locations import REPOSITORY, Locations

PROBE_COMMAND = (sys.executable, "-m", "core.kernels.trial")
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
    quiet = subprocess.DEVNULL
    with tempfile.TemporaryFile() as output:
        try:
            trial = start_tied(command, stdin=quiet, stdout=output, stderr=quiet, cwd=REPOSITORY)
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


def check_kernels_once(gpu: Gpu, locations: Locations, interrupted: Callable[[], bool]) -> Note | None:
    """``check_kernels``, but for the silence where it went well here before."""
    mark = _mark(gpu)
    with suppress(OSError):
        if locations.kernels.read_text(encoding="utf-8") == mark:
            return None
    note = check_kernels(interrupted)
    if note is None:
        with suppress(OSError):  # then it is tried again next time
            write_whole(locations.kernels, mark)
    return note


def forget_kernels(locations: Locations) -> None:
    """The next run tries again."""
    with suppress(OSError):
        locations.kernels.unlink(missing_ok=True)


def _mark(gpu: Gpu) -> str:
    """All that the trial's answer hangs on, but for the kernel itself."""
    named = os.environ.get("CC", "")
    compilers = [shutil.which(name) or "" for name in (named, "gcc", "clang")]
    headers = [str(Path(sysconfig.get_path(kind)) / "Python.h") for kind in ("include", "platinclude")]
    files = []
    for path in map(Path, filter(None, (*compilers, *headers))):
        with suppress(OSError):
            files.append([str(path), path.stat().st_mtime_ns])
    libraries = [version_of(name) for name in ("torch", "triton")]
    return json.dumps([gpu.uuid, gpu.name, gpu.driver, sys.executable, sys.version, named, libraries, files])


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
