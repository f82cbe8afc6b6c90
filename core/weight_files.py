"""Weights on disk: which files make up a model, and whether they are whole, without reading a tensor.

A safetensors file starts with eight bytes, the length N of its header (little endian), then N bytes of JSON that name
every tensor with dtype, shape and place, then the tensors. So its true size, and what lies inside, are known from its
first kilobytes (https://huggingface.co/docs/safetensors, "Format").
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from pathlib import Path
from typing import Any

from core.contract.errors import ModelError

__all__ = [
    "INDEX_NAME",
    "check_place",
    "fingerprint",
    "read_header",
    "read_json",
    "refuse_other_weights",
    "weight_files",
]

INDEX_NAME = "model.safetensors.index.json"
HEADER_LIMIT_BYTES = 100_000_000
SHARD_NAME = re.compile(r".*-(\d{5,})-of-(\d{5,})\.safetensors")
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".gguf", ".onnx")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model, as its index names them, else those that lie there.

    Raises:
        ModelError: there are none, the index names one that is missing or lies outside the folder, or there are
            parts of a model without the index that joins them (a download that was stopped).
    """
    index = folder / INDEX_NAME
    if not index.is_file():
        found = sorted(path for path in folder.glob("*.safetensors") if not path.name.startswith("adapter"))
        if not found:
            refuse_other_weights(folder)
            raise ModelError("model.no_weights", f"Expected safetensors files in {folder}, found no weights.")
        return _whole(folder, found)
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ModelError("model.bad_index", f"Expected weight_map in {index}, found none.", "Fetch the file again.")
    shards = [folder / str(name) for name in sorted({str(name) for name in names.values()})]
    for path in shards:
        if path.parent != folder or path.suffix != ".safetensors":
            raise ModelError("model.outside", f"Expected file names in {index}, found {path.name!r} elsewhere.")
    missing = [path.name for path in shards if not path.is_file()]
    if missing:
        raise ModelError(
            "model.missing_shard",
            f"Expected {len(shards)} weight files in {folder}, found {len(shards) - len(missing)}; "
            f"missing: {', '.join(missing[:3])}{' …' if len(missing) > 3 else ''}.",
            "Finish the download or copy the missing files.",
        )
    return shards


def _whole(folder: Path, found: list[Path]) -> list[Path]:
    """The files without parts of a split model, which nothing can join without an index: alone they are no model."""
    whole = [path for path in found if not SHARD_NAME.fullmatch(path.name)]
    if whole:
        return whole
    named = SHARD_NAME.fullmatch(found[0].name)
    expected = int(named[2]) if named else len(found)
    raise ModelError(
        "model.missing_shard",
        f"Expected {expected} weight files and {INDEX_NAME} in {folder}, found {len(found)} and no index.",
        "Finish the download or copy the missing files.",
    )


def read_header(path: Path) -> dict[str, Any]:
    """The tensors of a safetensors file by name, checked against the file's size.

    Raises:
        ModelError: the file is no safetensors, or is shorter or longer than its header says.
    """
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(size, HEADER_LIMIT_BYTES):
                raise ValueError("header longer than the file")
            header = json.loads(file.read(length))
            tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
            expected = 8 + length + max((int(entry["data_offsets"][1]) for entry in tensors.values()), default=0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error) as error:
        raise ModelError(
            "model.bad_weights", f"Expected safetensors in {path}, found something else.", "Fetch the file again."
        ) from error
    if size != expected:
        word = "cut short" if size < expected else "longer than its header says"
        raise ModelError(
            "model.truncated",
            f"Expected {expected:,} bytes in {path}, found {size:,}: the file is {word}.",
            "Fetch the file again.",
        )
    return tensors


def fingerprint(folder: Path) -> str:
    """SHA-256 over config.json and every weight file's name, size and header: cheap, and changes with the model."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in weight_files(folder):
        digest.update(f"{path.name} {path.stat().st_size}".encode())
        digest.update(json.dumps(read_header(path), sort_keys=True).encode())
    return digest.hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file, or ModelError."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            "model.bad_json", f"Expected JSON in {path}, found something else ({error}).", "Fetch the file again."
        ) from error
    if not isinstance(config, dict):
        raise ModelError("model.bad_json", f"Expected an object in {path}, found {type(config).__name__}.")
    return config


def refuse_other_weights(folder: Path) -> None:
    """Says what lies there instead of safetensors, or nothing.

    Raises:
        ModelError: weights in another format were found.
    """
    found = sorted(path.name for path in folder.iterdir() if path.suffix in OTHER_WEIGHTS)
    if found:
        raise ModelError(
            "model.not_safetensors",
            f"Expected safetensors files in {folder}, found {found[0]}.",
            "Only safetensors are loaded: other formats can run code or are made for other programs.",
        )


def check_place(folder: Path, path: Path) -> None:
    """Links may lead to the hub cache's own blobs (snapshots/HASH/file → ../../blobs) and nowhere else outside."""
    target = path.resolve()
    blobs = folder.resolve().parents[1] / "blobs" if len(folder.resolve().parents) > 1 else folder.resolve()
    if target.is_relative_to(folder.resolve()) or target.is_relative_to(blobs):
        return
    raise ModelError(
        "model.outside", f"Expected {path.name} inside {folder}, found a link to {target}.", "Copy the file there."
    )
