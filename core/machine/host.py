"""Access to this machine: files, commands, memory, disk, the driver. Tests put a recording in its place.

Nothing here raises: what is missing is empty or None, and a command that hangs is ended after two seconds.
"""

import contextlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, TypeVar

import psutil

from core.machine.imports import unmet_by, version_of
from core.machine.limits import held_to

COMMAND_SECONDS = 2.0
TEXT_BYTES = 1 << 18
T = TypeVar("T")


class Host:
    """The machine that this process runs on."""

    def __init__(self) -> None:
        self.root = Path("/")
        self.system = platform.system()
        self.python: tuple[int, ...] = tuple(sys.version_info[:3])
        self.environment: Mapping[str, str] = os.environ

    def place(self, path: str | Path) -> Path:
        """A path of the machine, below ``root``."""
        return self.root / str(path).lstrip("/")

    def text(self, path: str) -> str:
        """A file's text, at most a quarter of a megabyte; empty where it cannot be read."""
        try:
            with self.place(path).open("rb") as file:
                return file.read(TEXT_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

    def exists(self, path: str) -> bool:
        """Whether the path exists."""
        try:
            return self.place(path).exists()
        except OSError:
            return False

    def names(self, folder: str) -> list[str]:
        """The sorted names in a folder."""
        try:
            return sorted(path.name for path in self.place(folder).iterdir())
        except OSError:
            return []

    def run(self, command: Sequence[str]) -> str:
        """What a program prints; empty where it is missing or takes longer than two seconds."""
        try:
            done = subprocess.run(command, capture_output=True, timeout=COMMAND_SECONDS, check=False)
        except (OSError, subprocess.SubprocessError):
            return ""
        return (done.stdout + done.stderr)[:TEXT_BYTES].decode("utf-8", "replace")

    def compiler(self) -> str | None:
        """A C compiler: $CC or one on PATH."""
        names = (self.environment.get("CC", ""), "gcc", "clang", "cc")
        return next((path for name in names if name and (path := shutil.which(name))), None)

    def python_header(self) -> bool:
        """Whether this interpreter's Python.h exists."""
        return (Path(sysconfig.get_paths()["include"]) / "Python.h").exists()

    def cpu_count(self) -> int:
        """Processors that this process may use."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def memory(self) -> tuple[int, int]:
        """Bytes of memory: total and available, within what a container or a scheduler allows this process."""
        memory = psutil.virtual_memory()
        total, free = int(memory.total), int(memory.available)
        for limit, used in held_to(self.text):
            total, free = min(total, limit), max(0, min(free, limit - used))
        return total, free

    def free_bytes(self, folder: Path) -> int | None:
        """Room on the disk of a folder, which may not exist yet."""
        try:
            return shutil.disk_usage(_standing(folder)).free
        except OSError:
            return None

    def writable(self, folder: Path) -> bool:
        """Whether a folder, which may not exist yet, can be written."""
        return os.access(_standing(folder), os.W_OK | os.X_OK)

    def seconds_ahead(self, folder: Path) -> float:
        """How far the newest log below ``folder/runs`` is ahead of the clock."""
        newest = 0.0
        with contextlib.suppress(OSError):
            for place in list((folder / "runs").iterdir())[:500]:
                with contextlib.suppress(OSError):
                    newest = max(newest, (place / "events.jsonl").stat().st_mtime)
        return newest - time.time()

    def torch_build(self) -> str:
        """The installed PyTorch's version and build, such as ``2.13.0+cpu``; empty where there is none."""
        return version_of("torch")

    def xformers(self) -> tuple[str, str]:
        """The installed version, and the versions of PyTorch that it is made for where another one is installed."""
        return version_of("xformers"), unmet_by("xformers", "torch")

    @contextlib.contextmanager
    def nvml(self) -> Iterator[Any]:
        """NVML during the block; None where it cannot be opened."""
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception:  # noqa: BLE001 - any failure means that no card can be read
            yield None
            return
        try:
            yield pynvml
        finally:
            with contextlib.suppress(Exception):
                pynvml.nvmlShutdown()


def at_once(questions: Sequence[Callable[[], Any]], seconds: float) -> list[Any]:
    """Each one's answer within so many seconds, else None; one that hangs is left behind with its thread."""
    asked = [begun(question, "asked") for question in questions]
    answered = wait(asked, seconds).done
    return [one.result() if one in answered and not one.exception() else None for one in asked]


def begun(work: Callable[[], T], name: str) -> Future[T]:
    """What ``work`` returns or raises, done in a thread of this name that ends with the process."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            done.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done


def _standing(folder: Path) -> Path:
    """The folder, or the next one above it that exists."""
    with contextlib.suppress(OSError):
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
    return folder
