"""Whole weights as transformers reads them: finished tensors written to safetensors block by block.

A shard's header is known before its tensors are (https://huggingface.co/docs/safetensors, "Format"), so it is written
first, and the tensors behind it as they are computed: a file says by its size which tensors stand. Memory is a few
blocks, whatever the model. Who is cut off goes on behind the last whole tensor:

    written.json    what is being made, the machine's boot, and the shards that a power cut cannot take
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from core.export.weights import Entry, FinishedWeights
from core.machine.disk import make_durable, read_object, write_whole
from core.machine.host import Host
from core.model.loading.tensor_stream import header_of
from core.models.checks.weights import INDEX_NAME, read_header
from core.runs.folder.job_folder import WRITTEN

SHARD_BYTES = 2 << 30
_NOTE_BYTES = 1 << 20


@dataclass(frozen=True)
class _Shard:
    """A file and its tensors."""

    name: str
    entries: tuple[Entry, ...]

    @cached_property
    def header(self) -> bytes:
        """Its first bytes."""
        return header_of((entry.name, entry.dtype, entry.shape) for entry in self.entries)

    def standing(self, path: Path) -> int:
        """How many of its tensors stand whole in this file, 0 for another file; what follows them is cut off."""
        with path.open("r+b") as file:
            if file.read(len(self.header)) != self.header:
                return 0
            size, end, count = path.stat().st_size, len(self.header), 0
            while count < len(self.entries) and end + self.entries[count].bytes <= size:
                end += self.entries[count].bytes
                count += 1
            file.truncate(end)
        return count


def write_weights(
    weights: FinishedWeights,
    out: Path,
    on_tensor: Callable[[int, int], None],
    check: Callable[[], None],
    made_of: str = "",
) -> None:
    """Writes the safetensors and their index into ``out``, which is empty or holds what an earlier try left.

    Args:
        on_tensor: told of (tensors done, tensors in all).
        check: a safe point between blocks; may raise.
        made_of: names base, change and options; what stands is used where it was made of the same.

    Raises:
        ModelError: a file of base or change ends before a tensor does.
        OSError: the disk is full.
    """
    shards, done, total = _shards(weights.entries), 0, len(weights.entries)
    stood, synced = read_object(out / WRITTEN, _NOTE_BYTES) if goes_on(out, made_of) else {}, list[str]()
    # What an earlier try wrote is as it was written: all of it, or since the machine started anew what was synced.
    safe = [path.name for path in out.iterdir()] if stood.get("boot") == _boot() else stood.get("synced") or ()
    _note(out, made_of, synced)
    for shard in shards:
        path = out / shard.name
        standing = shard.standing(path) if shard.name in safe else 0
        with path.open("ab" if standing else "wb", buffering=0) as file, ThreadPoolExecutor(1) as pool:
            if not standing:
                _write(file, shard.header)
            for number, entry in enumerate(shard.entries):
                if number >= standing:
                    _write_tensor(weights, entry, pool, file, check)
                done += 1
                on_tensor(done, total)
        read_header(path)  # raises where its size is not what its header says
        make_durable(path)
        synced.append(shard.name)
        _note(out, made_of, synced)
    if len(shards) > 1:
        names = {entry.name: shard.name for shard in shards for entry in shard.entries}
        index = {"metadata": {"total_size": sum(entry.bytes for entry in weights.entries.values())}}
        (out / INDEX_NAME).write_text(json.dumps({**index, "weight_map": names}, indent=1), encoding="utf-8")
    (out / WRITTEN).unlink()


def goes_on(out: Path, made_of: str) -> bool:
    """Whether an earlier try left weights here that are made of the same."""
    return bool(made_of) and read_object(out / WRITTEN, _NOTE_BYTES).get("made_of") == made_of


def _note(out: Path, made_of: str, synced: list[str]) -> None:
    note = {"made_of": made_of, "boot": _boot(), "synced": synced}
    write_whole(out / WRITTEN, json.dumps(note), durable=True)


def _boot() -> str:
    return Host().text("/proc/sys/kernel/random/boot_id").strip()


def _write_tensor(
    weights: FinishedWeights, entry: Entry, pool: ThreadPoolExecutor, file: io.RawIOBase, check: Callable[[], None]
) -> None:
    """A block is written while the next one is computed."""
    before: Future[None] | None = None
    for block in weights.blocks(entry.name):
        check()
        view = block.to(entry.dtype).contiguous().reshape(-1).view(torch.uint8).numpy().data
        if before:
            before.result()
        before = pool.submit(_write, file, view)
    if before:
        before.result()


def _write(file: io.RawIOBase, content: bytes | memoryview) -> None:
    """All of it: an unbuffered file may take less at once."""
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


def _shards(entries: dict[str, Entry]) -> list[_Shard]:
    """The tensors by the file that they go to: at most ``SHARD_BYTES``, or one tensor."""
    shards: list[list[Entry]] = [[]]
    held = 0
    for entry in entries.values():
        if shards[-1] and held + entry.bytes > SHARD_BYTES:
            shards.append([])
            held = 0
        shards[-1].append(entry)
        held += entry.bytes
    many = len(shards)
    names = [f"model-{number:05d}-of-{many:05d}.safetensors" for number in range(1, many + 1)]
    files = names if many > 1 else ["model.safetensors"]
    return [_Shard(name, tuple(shard)) for name, shard in zip(files, shards, strict=True)]
