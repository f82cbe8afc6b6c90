"""Memory that a process shares with processes that it starts, and lines that tell them what lies where in it.

Two memfds, inherited: they have no name and no place in a file system. So they are gone with the last process that has
them, however that ended; there is nothing to sweep, and a container's small /dev/shm is no limit. One process writes.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from contextlib import suppress
from typing import Any

NAME = "luthier-shared"
"""As /proc/PID/maps shows it."""
LOOK_SECONDS, MANY_FILES = 0.02, 65536
_READ_BYTES = 1 << 20


class SharedMemory:
    """One process's hold on it.

    Args:
        memory, lines: descriptors.
        writes: whether this is the one that writes.
    """

    def __init__(self, memory: int, lines: int, writes: bool) -> None:
        self._memory, self._lines, self.writes = memory, lines, writes
        self._known: list[dict[str, Any]] = []
        self._read, self._rest = 0, b""

    @classmethod
    def made(cls) -> SharedMemory | None:
        """New and empty, this process's to write and its children's to inherit; None where the system has no such
        memory."""
        _allow_many_files()
        try:
            return cls(os.memfd_create(NAME, 0), os.memfd_create(NAME, 0), writes=True)
        except (AttributeError, OSError):
            return None

    @classmethod
    def inherited(cls, words: str, writes: bool) -> SharedMemory | None:
        """As its parent's ``words`` name it; None where they are empty."""
        if not words:
            return None
        _allow_many_files()
        memory, lines = map(int, words.split(","))
        for descriptor in (memory, lines):
            os.set_inheritable(descriptor, False)
        return cls(memory, lines, writes)

    @property
    def words(self) -> str:
        """For the environment of a child that inherits it."""
        return f"{self._memory},{self._lines}"

    def part(self, start: int, size: int) -> mmap.mmap:
        """These bytes, the same for all who ask for them; ``start`` is a multiple of ``mmap.ALLOCATIONGRANULARITY``.

        Raises:
            MemoryError: the system has no more.
        """
        try:
            if self.writes:  # taken now: what cannot be had later would end the process without a word
                os.posix_fallocate(self._memory, start, size)
            return mmap.mmap(self._memory, size, offset=start)
        except OSError as error:
            raise MemoryError(f"{size} bytes of shared memory: {error.strerror or error}") from error

    def tell(self, number: int, **line: Any) -> None:
        """Says the line of this number, counted from 0; one that was said stays as it is."""
        if number == len(self._known):
            self._known.append(line)
            text = json.dumps(line).encode() + b"\n"
            while text:
                text = text[os.write(self._lines, text) :]

    def told(self, number: int, seconds: float) -> dict[str, Any]:
        """The line of this number, once it was said.

        Raises:
            TimeoutError: none came for so long.
        """
        late = time.monotonic() + seconds
        while len(self._known) <= number:
            if read := os.pread(self._lines, _READ_BYTES, self._read):  # the place in the file is the writer's
                self._read, late = self._read + len(read), time.monotonic() + seconds
                *lines, self._rest = (self._rest + read).split(b"\n")
                self._known += map(json.loads, lines)
            elif time.monotonic() > late:
                raise TimeoutError
            else:
                time.sleep(LOOK_SECONDS)
        return self._known[number]

    def close(self) -> None:
        """Lets go of it here; parts that are mapped stay."""
        os.close(self._memory)
        os.close(self._lines)


def _allow_many_files() -> None:
    """Each mapped part keeps a descriptor: a 70B in 16 bits has two thousand, and a process may usually have 1,024."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = MANY_FILES if hard == resource.RLIM_INFINITY else min(MANY_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
