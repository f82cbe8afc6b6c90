"""Whether this machine can run our kernels: a trivial one is tried in a process of its own.

Triton needs a C compiler and Python.h, which a fresh Linux lacks. Where the trial fails the run uses plain torch and
says so. A success holds for the same card, driver, libraries and compiler, until a run fails.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from core.contract.events import Note
from core.machine.cards import CardSet
from core.machine.children.tied import start_tied
from core.machine.disk import write_whole
from core.machine.hardware import KERNELS_FROM, Gpu, kinds
from core.machine.imports import version_of
from core.machine.locations import REPOSITORY, Locations

PROBE_COMMAND = (sys.executable, "-m", "core.kernels.trial")
LIMIT_SECONDS = 30.0
MOST_MARKS = 16
"""Successes that are kept."""
_CURE = "sudo apt install gcc python3-dev"


def check_kernels(
    interrupted: Callable[[], bool],
    command: Sequence[str] = PROBE_COMMAND,
    limit_seconds: float = LIMIT_SECONDS,
    card: Mapping[str, str] = MappingProxyType({}),
) -> Note | None:
    """Runs the trial; None where kernels work, else a note with reason and remedy.

    Args:
        interrupted: called while waiting; True ends the trial.
        command: prints one line of JSON, ``{"ok", "reason", "cure"}``.
        limit_seconds: what takes longer counts as failed.
        card: variables that say on which it runs.
    """
    quiet, told = subprocess.DEVNULL, {**os.environ, **card}
    with tempfile.TemporaryFile() as output:
        try:
            trial = start_tied(command, stdin=quiet, stdout=output, stderr=quiet, cwd=REPOSITORY, env=told)
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


def check_kernels_once(gpus: Sequence[Gpu], locations: Locations, interrupted: Callable[[], bool]) -> Note | None:
    """``check_kernels`` on one card of each kind, skipped where it succeeded before; the first note, or None.

    A card that is too old decides only where all are: beside others its own process computes without kernels.
    """
    able = [gpu for gpu in gpus if (gpu.compute_capability or KERNELS_FROM) >= KERNELS_FROM] or gpus
    for gpu in (kind[0] for kind in kinds(able)):
        if (mark := _mark(gpu)) in _known(locations):
            continue
        if note := check_kernels(interrupted, card=CardSet((gpu.cuda_name,)).environment(os.environ)):
            return note if len(gpus) == 1 else note.model_copy(update={"text": f"{gpu.title}: {note.text}"})
        with suppress(OSError):  # then it is tried again next time
            write_whole(locations.kernels, "\n".join([*_known(locations), mark][-MOST_MARKS:]))
    return None


def _known(locations: Locations) -> list[str]:
    """Successes as they are now: another run may have had them forgotten during a trial."""
    with suppress(OSError, ValueError):
        return locations.kernels.read_text(encoding="utf-8").splitlines()
    return []


def forget_kernels(locations: Locations) -> None:
    """Has the next run try again."""
    with suppress(OSError):
        locations.kernels.unlink(missing_ok=True)


def _mark(gpu: Gpu) -> str:
    """What the trial's result depends on, apart from the kernel."""
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
    """The trial's verdict, from its last line of JSON; none is a failure."""
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
