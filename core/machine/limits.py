"""Limits of memory: one for this process while it reads untrusted files (Linux; elsewhere nothing is limited), and
those that a container or a cluster's scheduler holds it to.

with limited_memory(bytes): ...     Python raises MemoryError beyond; a native library ends the process
"""

import contextlib
import resource
from collections.abc import Callable, Iterator
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


def held_to(text: Callable[[str], str]) -> Iterator[tuple[int, int]]:
    """Of each control group above this process that limits memory: the limit, and what is used of it without the page
    cache that can be given back (Linux, cgroup v2 and v1). Beyond it the kernel kills.

    Args:
        text: reads a file; empty where there is none.
    """
    for line in text("/proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        root = "/sys/fs/cgroup/memory" if controllers else "/sys/fs/cgroup"
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        cached = [f"{'total_' if controllers else ''}{which}_file" for which in ("active", "inactive")]
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts), -1, -1):  # in a container the path may be the host's, and only the root there
            place = "/".join((root, *parts[:depth]))
            limit, used = (text(f"{place}/{name}").strip() for name in names)
            if limit.isdecimal() and used.isdecimal():
                stat = dict(one.split(" ", 1) for one in text(f"{place}/memory.stat").splitlines() if " " in one)
                yield int(limit), max(0, int(used) - sum(int(stat.get(name, 0)) for name in cached))
