"""Reads tensors of safetensors files onto the device, one at a time.

    file ─ readers, 4 MiB each ─► pinned buffers ─ asynchronous copies ─► one tensor on the card

Several threads read chunks of a tensor (``preadv`` releases the GIL) into pinned buffers; a buffer is reused after the
event of its copy. So the host needs 128 MiB for any model, and the card one tensor beside the model. On the CPU the
threads read directly into the tensor.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any

import torch

from core.contract.errors import ModelError
from core.models.checks.weights import read_header

CHUNK_BYTES = 4 * 2**20
READERS = 8
BUFFERS = 32
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
    "BOOL": torch.bool,
}  # fmt: skip
"""Dtype names of the format (https://huggingface.co/docs/safetensors) that torch has."""
WORDS = {dtype: word for word, dtype in DTYPES.items()}


class NotStreamableError(Exception):
    """These files cannot be streamed; the message says why."""


@dataclass(frozen=True)
class _Buffer:
    """Pinned memory, and the event after which it may be reused."""

    memory: torch.Tensor
    event: Any


@dataclass(frozen=True)
class _Stored:
    """A tensor in a file, read on request, with the interface of safetensors' slices."""

    stream: TensorStream
    file: int
    begin: int
    dtype: str
    shape: tuple[int, ...]

    def __getitem__(self, _index: Any) -> torch.Tensor:
        return self.stream.read(self)

    def get_dtype(self) -> str:
        """The dtype's name in the format."""
        return self.dtype

    def get_shape(self) -> list[int]:
        """The shape as a list."""
        return list(self.shape)

    @property
    def bytes(self) -> int:
        """Its size."""
        return prod(self.shape) * DTYPES[self.dtype].itemsize


class TensorStream:
    """The tensors of some files by name; a context manager that holds the files open.

    Raises:
        NotStreamableError: torch lacks a dtype, or two files hold the same name.
        ModelError: a file is truncated or no safetensors.
    """

    def __init__(self, files: list[Path], device: torch.device) -> None:
        self.device = device
        self.entries: dict[str, _Stored] = {}
        self.done_bytes = 0
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(min(READERS, os.cpu_count() or 1), thread_name_prefix="weights")
        self._free: deque[_Buffer] = deque()
        self._made = 0
        self._files: list[int] = []
        try:
            for path in files:
                self._add(path)
        except BaseException:
            self.close()
            raise
        self.total_bytes = sum(entry.bytes for entry in self.entries.values())

    def __enter__(self) -> TensorStream:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the readers and closes the files."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        while self._files:
            os.close(self._files.pop())
        self._free.clear()

    def read(self, entry: _Stored) -> torch.Tensor:
        """The tensor on the device; on a card its copy may still be pending on the current CUDA stream.

        Raises:
            ModelError: the file ends before the tensor does.
        """
        with self._lock:  # transformers uses several threads where it does not quantise
            flat = torch.empty(entry.bytes, dtype=torch.uint8, device=self.device)
            if self.device.type == "cuda":
                self._fetch(entry, flat)
            else:
                self._fill(entry, flat)
            self.done_bytes += entry.bytes
        return flat.view(DTYPES[entry.dtype]).view(entry.shape)

    def _add(self, path: Path) -> None:
        header = read_header(path)
        file = os.open(path, os.O_RDONLY)
        self._files.append(file)
        data = 8 + int.from_bytes(os.pread(file, 8, 0), "little")
        for name, stored in header.items():
            if stored["dtype"] not in DTYPES:
                raise NotStreamableError(f"{name} is held as {stored['dtype']}")
            if name in self.entries:
                raise NotStreamableError(f"two files hold {name}")
            begin, end = stored["data_offsets"]
            entry = _Stored(self, file, data + begin, stored["dtype"], tuple(stored["shape"]))
            if entry.bytes != end - begin:
                raise ModelError("model.bad_weights/length", expected=entry.bytes, name=name, size=end - begin)
            self.entries[name] = entry

    def _fill(self, entry: _Stored, flat: torch.Tensor) -> None:
        """Reads chunks directly into CPU memory."""
        view = flat.numpy().data
        parts = [
            self._pool.submit(_read, entry.file, view[start : start + CHUNK_BYTES], entry.begin + start)
            for start in range(0, entry.bytes, CHUNK_BYTES)
        ]
        for part in parts:
            part.result()

    def _fetch(self, entry: _Stored, flat: torch.Tensor) -> None:
        """Copies chunks to the card through pinned buffers, in order."""
        waiting: deque[tuple[Future[None], _Buffer, torch.Tensor]] = deque()
        try:
            with torch.cuda.device(self.device):
                for start in range(0, entry.bytes, CHUNK_BYTES):
                    if len(waiting) == BUFFERS:
                        self._send(*waiting.popleft())
                    target = flat[start : start + CHUNK_BYTES]
                    buffer = self._buffer()
                    view = buffer.memory.numpy().data[: len(target)]
                    waiting.append((self._pool.submit(_read, entry.file, view, entry.begin + start), buffer, target))
                while waiting:
                    self._send(*waiting.popleft())
        finally:  # a reader still writing into a buffer must not outlive it
            for part, _buffer, _target in waiting:
                part.cancel() or part.exception()

    def _buffer(self) -> _Buffer:
        """The buffer with the oldest copy; a new one if that copy is pending and fewer than BUFFERS exist."""
        if self._made < BUFFERS and not (self._free and self._free[0].event.query()):
            self._made += 1
            return _pinned()
        buffer = self._free.popleft()
        buffer.event.synchronize()
        return buffer

    def _send(self, part: Future[None], buffer: _Buffer, target: torch.Tensor) -> None:
        part.result()
        target.copy_(buffer.memory[: len(target)], non_blocking=True)
        buffer.event.record()
        self._free.append(buffer)


def _pinned() -> _Buffer:
    return _Buffer(torch.empty(CHUNK_BYTES, dtype=torch.uint8, pin_memory=True), torch.cuda.Event())


def header_of(tensors: Iterable[tuple[str, torch.dtype, Sequence[int]]]) -> bytes:
    """The first bytes of a safetensors file with these tensors (name, dtype, shape), one behind the other."""
    header, end = dict[str, Any](__metadata__={"format": "pt"}), 0
    for name, dtype, shape in tensors:
        begin, end = end, end + prod(shape) * dtype.itemsize
        header[name] = {"dtype": WORDS[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # aligns the tensors, as the format requires
    return len(text).to_bytes(8, "little") + text


def _read(file: int, view: memoryview, begin: int) -> None:
    while view:
        count = os.preadv(file, [view], begin)
        if not count:
            raise ModelError("model.truncated/end")
        view, begin = view[count:], begin + count
