"""A wall around what this process may take while it reads what came from outside (Linux; elsewhere nothing is limited).

with limited_memory(bytes): ...     Python raises MemoryError beyond; a library of another language ends the process
"""

import contextlib
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from core.contract.errors import ModelError

READING_BYTES = 2 << 30
"""For a model's config and tokenizer: the largest known take a quarter of it."""


@contextmanager
def reading_model(name: object) -> Iterator[None]:
    """The wall for reading a model's config and tokenizer.

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
    """Lets this process grow by so much while the block runs, and by no more.

    What is limited are its own writable pages (RLIMIT_DATA): neither files that are mapped nor a card's memory.
    """
    before = resource.getrlimit(resource.RLIMIT_DATA)
    wall = int(getattr(psutil.Process().memory_info(), "data", 0)) + more_bytes
    if before[0] != resource.RLIM_INFINITY:
        wall = min(wall, before[0])
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (wall, before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, before)
