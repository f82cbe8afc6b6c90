"""A seam under a process's writing: counts system calls and bytes, and strikes at a drawn one.

    Strike("call", 17)    SIGKILL instead of the 17th call (open for writing, write, fsync, rename, unlink, mkdir …)
    Strike("byte", 4096)  SIGKILL once 4,096 bytes have been written: the write that holds that byte is cut in two there
    Strike("half", 5)     SIGKILL in the middle of the 5th write: half a line of a log, half a manifest
    Strike("power", 17)   the same as "call", and whatever was not made durable by then is gone from its file
    Strike("full", 4096)  the disk is full from that byte on: the write is short, and every later one fails with ENOSPC
    Strike("stuffed", n)  the same, and nothing can be made or made durable any more either (mkdir, open, fsync)
    Strike("brief", n)    the same, until somebody has been refused a few times: then there is room again

It stands in the struck process alone, put under ``os`` and ``open`` by ``install``; what is tested knows nothing of it.
What happens is told to a ledger, a file that many processes append to, past the seam.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_CHANGING = ("mkdir", "rename", "replace", "unlink", "remove", "rmdir", "ftruncate", "truncate", "fsync", "link")
_MAKING = ("mkdir", "fsync", "open")
_NO_BYTE = ("call", "half", "power")
_BRIEF = 4
"""So often somebody is refused before there is room again."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


Kind = Literal["call", "byte", "half", "power", "full", "stuffed", "brief"]


@dataclass(frozen=True)
class Strike:
    """What happens, and at which call or byte of the process, counted from 1 (0: never)."""

    kind: Kind = "call"
    at: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.at}"

    @classmethod
    def parse(cls, text: str) -> Strike:
        """The inverse of ``str``; an empty text is no strike."""
        kind, _, at = text.partition(":")
        return cls(kind, int(at)) if at else cls()  # type: ignore[arg-type]


class Ledger:
    """Lines told by struck processes; each is one write in append mode, past the seam."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._write, self._open, self._close = os.write, os.open, os.close

    def tell(self, *words: object) -> None:
        """Appends one line."""
        descriptor = self._open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._write(descriptor, (" ".join(str(word) for word in words) + "\n").encode())
        finally:
            self._close(descriptor)

    def lines(self, first: str = "") -> list[list[str]]:
        """All lines as words, or those that begin with this word."""
        if not self.path.exists():
            return []
        told = [line.split(" ") for line in self.path.read_text(encoding="utf-8").splitlines()]
        return [words for words in told if not first or words[0] == first]


class Seam:
    """The counts of one process, and its strike."""

    def __init__(self, strike: Strike, ledger: Ledger, who: str) -> None:
        self.strike, self.ledger, self.who = strike, ledger, who
        self.calls = self.bytes = self.writes = self._refusals = 0
        self._durable: dict[str, int] = {}
        """Files with writes that are not durable, and how many bytes of each are."""
        self._kill, self._pid, self._cut = os.kill, os.getpid, os.truncate

    def install(self) -> Seam:
        """Stands under this process's writing from now on."""
        for name in _CHANGING:
            setattr(os, name, self._counted(name, getattr(os, name)))
        write, open_ = os.write, os.open

        def written(descriptor: int, data: Any) -> int:
            self.writes_to(_path_of(descriptor))
            return self.write(lambda part: write(descriptor, part), data)

        os.write = written  # type: ignore[assignment]

        def opened(path: Any, flags: int, *rest: Any, **named: Any) -> int:
            if flags & _WRITING:
                self.call("open", path)
            return open_(path, flags, *rest, **named)

        os.open = opened
        io.open = builtins.open = self._file  # type: ignore[assignment]
        return self

    def call(self, name: str, what: object = "") -> None:
        """Counts one call; the struck one does not return."""
        self.calls += 1
        if self.strike.kind in ("call", "power") and self.calls == self.strike.at:
            self._die(f"before {name} {what}")
        if self.strike.kind in ("stuffed", "brief") and name in _MAKING and self.bytes >= self.strike.at:
            self._refuse(name)

    def write(self, write: Callable[[Any], int | None], data: Any) -> int:
        """One write; the struck one is cut at its byte."""
        self.call("write")
        data = memoryview(data).cast("B")
        self.writes += 1
        if self.strike.kind == "half" and self.writes == self.strike.at:
            write(data[: len(data) // 2])
            self._die(f"after {len(data) // 2} of {len(data)} bytes of a write")
        room = self.strike.at - self.bytes
        if self.strike.kind in _NO_BYTE or room >= len(data):
            written = write(data) or 0
            self.bytes += written
            return written
        self.bytes += write(data[:room]) or 0 if room > 0 else 0
        if self.strike.kind == "byte":
            self._die(f"after {max(room, 0)} of {len(data)} bytes of a write")
        if room <= 0:
            self._refuse("write")
        return room

    def writes_to(self, path: str, durable: int | None = None) -> None:
        """From now on this file has bytes that only a sync makes durable."""
        if path not in self._durable or durable is not None:
            self._durable[path] = Path(path).stat().st_size if durable is None else durable

    def tell_counts(self) -> None:
        """How far this process came, for those who draw."""
        self.ledger.tell("counted", self.who, self.calls, self.bytes)

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            self.call(name, arguments[0] if arguments else "")
            result = function(*arguments, **named)
            if name == "fsync":
                self._durable.pop(_path_of(arguments[0]), None)
            elif name in ("rename", "replace"):
                self._renamed(*(str(Path(path).absolute()) for path in arguments[:2]))
            return result

        return counted

    def _file(self, file: Any, mode: str = "r", buffering: int = -1, *text: Any, **named: Any) -> Any:
        if not set(mode) & set("wax+"):
            return _OPEN(file, mode, buffering, *text, **named)
        raw = _CountedFile(self, file, mode)
        plain = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return plain if "b" in mode else io.TextIOWrapper(plain, *text, **named)

    def _refuse(self, name: str) -> None:
        self.ledger.tell("refused", name)
        self._refusals += 1
        if self.strike.kind == "brief" and self._refusals >= _BRIEF:
            self.strike = Strike()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _renamed(self, old: str, new: str) -> None:
        for path in [path for path in self._durable if path == old or path.startswith(old + os.sep)]:
            self._durable[new + path[len(old) :]] = self._durable.pop(path)

    def _die(self, where: str) -> None:
        if self.strike.kind == "power":
            for path, size in self._durable.items():
                if Path(path).exists() and Path(path).stat().st_size > size:
                    self._cut(path, size)
        self.ledger.tell("killed", self.who, self.strike, where)
        self._kill(self._pid(), signal.SIGKILL)


_OPEN = io.open


def _path_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


class _CountedFile(io.FileIO):
    """A file whose opening, writes and truncations pass the seam."""

    def __init__(self, seam: Seam, file: Any, mode: str) -> None:
        seam.call("open", file)
        self._seam = seam
        super().__init__(file, mode.replace("b", "").replace("t", ""))
        if not isinstance(file, int):
            seam.writes_to(str(Path(file).absolute()), 0 if set(mode) & set("wx") else None)

    def write(self, data: Any) -> int:
        return self._seam.write(super().write, data)

    def truncate(self, size: int | None = None) -> int:
        self._seam.call("ftruncate", self.name)
        return super().truncate(size)
