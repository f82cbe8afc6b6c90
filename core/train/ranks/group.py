"""The ranks of this training as a process group: sums over all, and what rank 0 tells.

Gradients are summed once a step, after every rank's last micro-batch, and never by hooks in the backward (torch's
DistributedDataParallel, which accelerate would wrap around the model): a rank whose memory ran out computes its share
again, in smaller passes, and a hook would leave the others in the middle of theirs. So between two sums a rank is as
alone as a single process is. To accelerate and transformers' Trainer each rank is one process.

Sums wait for days: rank 0 may be waiting for room on its disk. That a rank has died is noticed by others
(``core.train.ranks.leader``, ``member``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")
PATIENCE = timedelta(days=14)
"""In milliseconds it fits 32 bits."""
JOIN_SECONDS = 300.0


@dataclass(frozen=True)
class Ranks:
    """This process among the ranks; one alone by default."""

    rank: int = 0
    count: int = 1

    @classmethod
    def present(cls) -> Ranks:
        """Those of this process's group, where it has joined one."""
        return cls(dist.get_rank(), dist.get_world_size()) if dist.is_available() and dist.is_initialized() else cls()

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which has log, commands and checkpoints."""
        return self.rank == 0

    def sum(self, tensor: T) -> T:
        """A tensor's sum over all ranks, in place; None stays None."""
        if self.count > 1 and isinstance(tensor, torch.Tensor):
            dist.all_reduce(tensor)
        return tensor

    def heard(self, mine: Sequence[float]) -> list[list[float]]:
        """What each rank says of itself, in their order. All call it at once, with as many numbers."""
        told = torch.zeros(self.count, len(mine), dtype=torch.float64)
        told[self.rank] = torch.tensor(mine, dtype=torch.float64)
        said: list[list[float]] = self.sum(told).tolist()
        return said

    def from_first(self, tensors: Iterable[torch.Tensor]) -> None:
        """Gives every rank the numbers that rank 0 has."""
        if self.count > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def told(self, value: Any = None) -> Any:
        """What rank 0 says: its ``value``, plain data; those of others do not count."""
        if self.count == 1:
            return value
        text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        length = torch.tensor([len(text)])
        dist.broadcast(length, 0)
        if not self.first:
            text = torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(text, 0)
        return json.loads(bytes(text.tolist()))


@dataclass(frozen=True)
class Told:
    """What rank 0 tells the others before the weights are loaded; ``bad`` and ``overflows`` are its guard's."""

    config: dict[str, Any]
    """Without automatic values."""
    held_out: list[int]
    rows_sha256: str
    bad: list[int]
    overflows: int


def host_store(host: str) -> dist.TCPStore:
    """Rank 0's end of the rendezvous, on a free port (``store.port``)."""
    return dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=JOIN_SECONDS))


def join(store: dist.Store, rank: int, count: int, device: torch.device) -> Ranks:
    """Makes the process group and has it add something up once: what a library takes for that is taken before memory
    is planned, and one that cannot start says so here.

    Raises:
        RuntimeError: the backend cannot start, or a rank does not come.
    """
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    store.set_timeout(PATIENCE)
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=PATIENCE)
    ranks = Ranks(rank, count)
    for place in dict.fromkeys((torch.device("cpu"), device)):
        together = int(ranks.sum(torch.ones(1, device=place)))
        if together != count:
            raise RuntimeError(f"{together} of {count} processes answered")
    return ranks
