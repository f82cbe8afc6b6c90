"""Whole weights as transformers reads them: finished tensors written to safetensors block by block.

A shard's header is known before its tensors are (https://huggingface.co/docs/safetensors, "Format"), so it is written
first, and the tensors behind it as they are computed. Memory is a block, whatever the model.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import torch

from core.export.weights import Entry, FinishedWeights
from core.model.loading.tensor_stream import header_of
from core.models.checks.weights import INDEX_NAME

SHARD_BYTES = 2 << 30


def write_weights(
    weights: FinishedWeights, out: Path, on_tensor: Callable[[int, int], None], check: Callable[[], None]
) -> None:
    """Writes the safetensors and their index into ``out``.

    Args:
        out: an empty folder.
        on_tensor: told of (tensors done, tensors in all).
        check: a safe point between blocks; may raise.

    Raises:
        ModelError: a file of base or change ends before a tensor does.
        OSError: the disk is full.
    """
    shards, done, total = _shards(weights.entries), 0, len(weights.entries)
    names: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        several = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        file = several if len(shards) > 1 else "model.safetensors"
        names |= dict.fromkeys((entry.name for entry in shard), file)
        with (out / file).open("wb", buffering=0) as opened:
            opened.write(header_of((entry.name, entry.dtype, entry.shape) for entry in shard))
            for entry in shard:
                for block in weights.blocks(entry.name):
                    check()
                    write_bytes(opened, block.to(entry.dtype))
                done += 1
                on_tensor(done, total)
    if len(shards) > 1:
        index = {"metadata": {"total_size": sum(entry.bytes for entry in weights.entries.values())}}
        (out / INDEX_NAME).write_text(json.dumps({**index, "weight_map": names}, indent=1), encoding="utf-8")


def write_bytes(file: io.RawIOBase, tensor: torch.Tensor) -> None:
    """All of a tensor's bytes; an unbuffered file may take fewer at once."""
    view = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
    while view:
        view = view[file.write(view) :]


def _shards(entries: dict[str, Entry]) -> list[list[Entry]]:
    """The tensors by the file that they go to: at most ``SHARD_BYTES``, or one tensor."""
    shards: list[list[Entry]] = [[]]
    held = 0
    for entry in entries.values():
        if shards[-1] and held + entry.bytes > SHARD_BYTES:
            shards.append([])
            held = 0
        shards[-1].append(entry)
        held += entry.bytes
    return shards
