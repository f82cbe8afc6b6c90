"""A memory limit for this process while it reads untrusted files (Linux; elsewhere nothing is limited).

with limited_memory(bytes): ...     Python raises MemoryError beyond; a native library ends the process
"""

import contextlib
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from core.contract.errors import ModelError

READING_BYTES = 2 << 30
"""For a model's config and tokenizer: four times what the largest known take."""


@contextmanager
def reading_model(name: object) -> Iterator[None]:
    """The limit for reading a model's config and tokenizer.

    Raises:
        ModelError: they need more.
    """
    try:
        with limited_memory(READING_BYTES):
            yield
    except MemoryError as error:
        raise ModelError("model.absurd/memory", name=name, megabytes=READING_BYTES >> 20) from error


@contextmanager
def limited_memory(more_bytes: int) -> Iterator[None]:
    """Lets this process grow by at most so much during the block, in private writable pages (RLIMIT_DATA): mapped files
    and a card's memory do not count."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = int(getattr(psutil.Process().memory_info(), "data", 0)) + more_bytes
    if before[0] != resource.RLIM_INFINITY:
        most = min(most, before[0])
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, before)
