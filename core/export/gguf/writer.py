"""A GGUF file written as a stream: metadata and the list of tensors first, then each tensor's rows, range by range,
quantised on the way. Peak memory is a few ranges of ``sources.MOST_ELEMENTS`` values in float32."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray

from core.contract.errors import ModelError
from core.export.gguf.mixtures import BLOCKS, bytes_of
from core.export.llama.library import opened

Weighing = NDArray[np.float32]
"""How much each input of a matrix matters ``[in]``: the mean of its squares."""
_ALIGNED = 32


@dataclass(frozen=True)
class Tensor:
    """A tensor to write. ``kind``: its type, as in ``mixtures.BLOCKS``; ``rows``: its float32 rows, range by range,
    each ``[some, ...]``; ``weighing``: of its inputs, for quantisers that read it."""

    name: str
    shape: tuple[int, ...]
    kind: str
    rows: Callable[[], Iterator[torch.Tensor]]
    weighing: Weighing | None = None

    @property
    def bytes(self) -> int:
        """Its size in the file."""
        return bytes_of(self.kind, self.shape)


def write_gguf(
    path: Path,
    facts: Mapping[str, Any],
    tensors: Sequence[Tensor],
    on_tensor: Callable[[int, int], None],
    check: Callable[[], None],
) -> None:
    """Writes a file.

    Args:
        facts: metadata by full key; ``general.architecture`` among them. Lists hold one kind of value.
        on_tensor: told of (tensors done, tensors in all).
        check: a safe point between ranges of rows; may raise.

    Raises:
        ModelError: weights that are no numbers, or llama.cpp's library is missing.
    """
    writer = gguf.GGUFWriter(None, str(facts["general.architecture"]))
    for key, value in facts.items():
        if key != "general.architecture":
            _add(writer, key, value)
    for tensor in tensors:
        raw = gguf.GGMLQuantizationType[tensor.kind]
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), tensor.bytes, raw)
    writer.write_header_to_file(path)
    try:
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        assert writer.fout
        out = writer.fout[0]
        out.write(bytes(-out.tell() % _ALIGNED))
        with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as pool:
            for number, tensor in enumerate(tensors, 1):
                for rows in tensor.rows():
                    check()
                    out.write(_encoded(tensor, rows, pool).data)
                out.write(bytes(-tensor.bytes % _ALIGNED))
                on_tensor(number, len(tensors))
    finally:
        writer.close()


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """Metadata by the type of its value: whole numbers are unsigned, token types signed, as llama.cpp expects them."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def _encoded(tensor: Tensor, rows: torch.Tensor, pool: ThreadPoolExecutor) -> NDArray[np.uint8]:
    """Rows as the file has them, a range of them on each thread: ggml lets go of Python's lock."""
    values = np.ascontiguousarray(rows.reshape(-1, rows.shape[-1]).numpy(), dtype=np.float32)
    if not np.isfinite(values.sum(dtype=np.float64)):
        raise ModelError("gguf.numbers", name=tensor.name)
    if tensor.kind == "F32":
        return values.view(np.uint8)
    kind, (block, size) = int(gguf.GGMLQuantizationType[tensor.kind]), BLOCKS[tensor.kind]
    count, width = values.shape
    made = np.empty((count, width // block * size), np.uint8)
    weighing = tensor.weighing.ctypes.data if tensor.weighing is not None else None

    def encode(span: tuple[int, int]) -> None:
        start, stop = span
        source, target = values[start:stop], made[start:stop]
        opened().ggml_quantize_chunk(kind, source.ctypes.data, target.ctypes.data, 0, stop - start, width, weighing)

    step = max(1, -(-count // 16))
    list(pool.map(encode, [(start, min(start + step, count)) for start in range(0, count, step)]))
    return made
