"""Host memory for weights: pages of one size, pinned as far as the machine allows, one span behind the other in them.

torch rounds a pinned buffer up to a power of two, which for a layer of 357 MiB would waste 155: pages are one already,
and a span lies across as many as it needs. Where the system refuses to pin more (WSL pins about half), the pages after
that are plain memory.

Where several processes stream the same layers, pages are parts of memory that they share: each asks for the same spans
in the same order, so that all have the same bytes, and pins them for its own card.
"""

import mmap
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from core.machine.children.shared_memory import SharedMemory

PAGE_BYTES = 64 * 2**20
ALIGNED = 512
"""What a tensor's place is a multiple of, as torch's allocator has it."""


@dataclass(frozen=True)
class Span:
    """Consecutive bytes: parts of pages, in order."""

    parts: tuple[torch.Tensor, ...]
    pinned: bool

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(map(len, self.parts))

    def write(self, start: int, values: torch.Tensor) -> None:
        """Copies a tensor's bytes to this place."""
        flat = values.contiguous().reshape(-1).view(torch.uint8)
        for place, first, last in self._pieces(start, len(flat)):
            place.copy_(flat[first:last])

    def _pieces(self, start: int, size: int) -> Iterator[tuple[torch.Tensor, int, int]]:
        """``(place, first, last)`` of each part that these bytes reach into."""
        before = 0
        for part in self.parts:
            first, last = max(0, before - start), min(size, before + len(part) - start)
            if first < last:
                yield part[start + first - before : start + last - before], first, last
            before += len(part)


@dataclass
class HostPages:
    """Pages, taken as they are needed. ``pin``: whether to ask for pinned ones (beside a card); ``shared``: what they
    are parts of, in place of memory of this process alone."""

    pin: bool
    shared: SharedMemory | None = None
    pages: list[torch.Tensor] = field(default_factory=list)
    refused: bool = False
    """Whether the system pins no more."""
    left: int = 0
    """Bytes of the last page that nobody has."""

    def span(self, size: int) -> Span:
        """The next bytes, in a whole number of ``ALIGNED``."""
        size = aligned(size)
        parts: list[torch.Tensor] = []
        while size:
            if not self.left:
                self._page()
            taken = min(size, self.left)
            page = self.pages[-1]
            first = len(page) - self.left
            parts.append(page[first : first + taken])
            self.left, size = self.left - taken, size - taken
        return Span(tuple(parts), all(part.is_pinned() for part in parts) if self.pin else True)

    def piece(self, size: int) -> torch.Tensor:
        """So many bytes of shared memory behind all others, in one piece, not pinned here."""
        self.left = 0
        page = self._shared(size, pinned=False)
        self.pages.append(page)
        return page[:size]

    def _page(self) -> None:
        pinned = self.pin and not self.refused
        try:
            page = memory(PAGE_BYTES, pinned) if self.shared is None else self._shared(PAGE_BYTES, pinned)
        except RuntimeError:
            if not pinned:
                raise
            self.refused = True
            page = memory(PAGE_BYTES, pinned=False) if self.shared is None else self._shared(PAGE_BYTES, pinned=False)
        self.pages.append(page)
        self.left = len(page)

    def _shared(self, size: int, pinned: bool) -> torch.Tensor:
        assert self.shared is not None
        whole = -(-size // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        part = memoryview(self.shared.part(sum(map(len, self.pages)), whole))
        page = torch.frombuffer(part, dtype=torch.uint8)
        if pinned:
            pin_part(page, part, part.obj)
        return page

    @property
    def plain_bytes(self) -> int:
        """Bytes of pages that should be pinned and are not."""
        return sum(len(page) for page in self.pages if self.pin and not page.is_pinned())


def memory(size: int, pinned: bool) -> torch.Tensor:
    """So many bytes. Raises RuntimeError."""
    return torch.empty(size, dtype=torch.uint8, pin_memory=pinned)


def pin_part(page: torch.Tensor, part: object, held: object) -> None:
    """Pins bytes that are there for this process's card, for as long as ``part`` lives; ``held`` owns them. Raises
    RuntimeError.

    An mmap is unmapped before those that wait for its end are told, and CUDA would be asked about memory that is gone.
    So it is the page's view of it that is waited for, and the mmap is kept until CUDA has let go.
    """
    runtime, address = torch.cuda.cudart(), page.data_ptr()
    if refused := int(runtime.cudaHostRegister(address, len(page), 0)):
        with suppress(RuntimeError):  # the refusal stays CUDA's last error until the start of a kernel finds it
            torch.zeros(1, device="cuda")
        raise RuntimeError(f"cudaHostRegister says {refused}")
    weakref.finalize(part, _let_go, runtime, address, held).atexit = False


def _let_go(runtime: Any, address: int, _held: object) -> None:
    runtime.cudaHostUnregister(address)


def aligned(size: int) -> int:
    """Rounded up to where the next tensor may begin."""
    return -(-size // ALIGNED) * ALIGNED
