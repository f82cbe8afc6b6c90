"""What a worker prints goes to a file on a disk that may be full; nobody who prints is stopped by that.

Progress bars, warnings and tracebacks are worth less than the run: what ``worker.log`` does not take is dropped.
Light: nothing of torch is imported here.
"""

import contextlib
import io
import sys
from typing import Any


class _Dropping(io.FileIO):
    """Says that all was written, whatever became of it."""

    def write(self, data: Any) -> int:
        with contextlib.suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes


def print_or_drop() -> None:
    """From here on ``print`` and its like drop what their file does not take. For a process of its own."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        raw = _Dropping(descriptor, "w", closefd=False)
        setattr(sys, name, io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True))
