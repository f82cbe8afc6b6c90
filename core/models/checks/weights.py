"""Weights on disk: which files make up a model, and whether they are whole, without reading a tensor.

A safetensors file starts with eight bytes, the length N of its header (little endian), then N bytes of JSON that name
every tensor with dtype, shape and place, then the tensors (https://huggingface.co/docs/safetensors, "Format").
"""

import hashlib
import json
import re
import struct
from math import prod
from pathlib import Path
from typing import Any

from core.contract.errors import ModelError
from core.models.checks.files import check_place, is_plain_name, parse_object, read_json

INDEX_NAME = "model.safetensors.index.json"
HEADER_LIMIT_BYTES = 8 << 20
HEADERS_LIMIT_BYTES = 64 << 20
"""Of one file, and of all files of a model; a thousand tensors take a tenth of a megabyte."""
BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
"""The format's dtypes and their widths."""
SHARD_NAME = re.compile(r".*-(\d{5,})-of-(\d{5,})\.safetensors")
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".gguf", ".onnx")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model: those of its index, else all in the folder.

    Raises:
        ModelError: there are none, the index names one that is missing or lies outside the folder, or there are
            parts of a model without the index that joins them (a download that was stopped).
    """
    index = folder / INDEX_NAME
    if not index.is_file():
        paths = sorted(path for path in folder.glob("*.safetensors") if not path.name.startswith("adapter"))
        parts = [named for path in paths if (named := SHARD_NAME.fullmatch(path.name))]
        if len(parts) < len(paths):
            return [path for path in paths if not SHARD_NAME.fullmatch(path.name)]
        if parts:  # nothing can join them without an index: alone they are no model
            raise ModelError(
                "model.missing_shard/no_index",
                expected=int(parts[0][2]),
                index=INDEX_NAME,
                folder=folder,
                count=len(parts),
            )
        refuse_other_weights(folder)
        raise ModelError("model.no_weights", folder=folder)
    names = sorted(set(_weight_map(index).values()))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ModelError(
            "model.missing_shard/listed",
            count=len(names),
            folder=folder,
            there=len(names) - len(missing),
            missing=", ".join(missing[:3]),
            more=" …" if len(missing) > 3 else "",
        )
    return [folder / name for name in names]


def weights_bytes(folder: Path) -> int:
    """What ``weight_files`` take. Raises as it does."""
    return sum(path.stat().st_size for path in weight_files(folder))


def _weight_map(index: Path) -> dict[str, str]:
    """An index's tensor names to file names."""
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ModelError("model.bad_index/no_map", index=index)
    for name in names.values():
        if not is_plain_name(name) or not name.endswith(".safetensors"):
            raise ModelError("model.outside/index", index=index, name=str(name)[-80:])
    return names


def read_tensors(folder: Path) -> dict[str, Any]:
    """Every tensor of a model by name, from the headers of all its files, checked against each other and the index.

    Raises:
        ModelError: a file is damaged, a tensor stands in two files, or the index names one that its file lacks.
    """
    tensors_of: dict[str, Any] = {}
    places: dict[str, str] = {}
    room = HEADERS_LIMIT_BYTES
    for path in weight_files(folder):
        check_place(folder, path)
        tensors = read_header(path)
        room -= _header_length(path)
        if room < 0:
            raise ModelError("model.bad_weights/headers", folder=folder)
        if twice := sorted(tensors_of.keys() & tensors):
            raise ModelError("model.bad_index/twice", folder=folder, twice=twice[0][:80])
        tensors_of |= tensors
        places |= dict.fromkeys(tensors, path.name)
    index = folder / INDEX_NAME
    for name, file in _weight_map(index).items() if index.is_file() else ():
        if places.get(name) != file:
            raise ModelError("model.bad_index/elsewhere", name=name[:80], file=file[:80], index=index)
    return tensors_of


def linear_names(folder: Path) -> set[str]:
    """Last parts of the names of the model's linear layers: what can get an adapter.

    Raises:
        ModelError: as ``read_tensors``.
    """
    matrices = (name.split(".") for name, entry in read_tensors(folder).items() if len(entry["shape"]) == 2)
    return {parts[-2] for parts in matrices if len(parts) > 1 and parts[-1] == "weight"}


def read_header(path: Path) -> dict[str, Any]:
    """The tensors of a safetensors file by name, each with dtype, shape and data_offsets, all of it checked.

    The tensors must fill the file from the header to the end: no hole, no overlap, each as large as its shape.

    Raises:
        ModelError: the file is no safetensors, its header contradicts itself, or it is longer or shorter.
    """
    try:
        size, length = path.stat().st_size, _header_length(path)
        with path.open("rb") as file:
            file.seek(8)
            header = parse_object(file.read(length))
        header.pop("__metadata__", None)
        expected = 8 + length + _filled(header)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, struct.error) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error) or type(error).__name__
        reason = reason.splitlines()[0][:160]
        raise ModelError("model.bad_weights/not_safetensors", path=path, reason=reason) from error
    if size != expected:
        word = "cut short" if size < expected else "longer than its header says"
        raise ModelError("model.truncated/size", expected=expected, path=path, size=size, word=word)
    return header


def _header_length(path: Path) -> int:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
    if not 2 <= length <= min(path.stat().st_size, HEADER_LIMIT_BYTES):
        raise ValueError(f"a header of {length:,} bytes")
    return int(length)


def _filled(tensors: dict[str, Any]) -> int:
    """The bytes that the tensors fill, end to end from 0.

    Raises:
        ValueError, KeyError, TypeError: an entry is none, is not as large as its shape, or leaves a hole.
    """
    spans = []
    for name, entry in tensors.items():
        begin, end = entry["data_offsets"]
        numbers = (*entry["shape"], begin, end)
        if len(numbers) > 10 or not all(type(number) is int and 0 <= number < 1 << 62 for number in numbers):
            raise ValueError(f"no sizes at {name[:60]!r}")
        bits = BITS[entry["dtype"]] * prod(entry["shape"])
        if bits != 8 * (end - begin):
            raise ValueError(f"{end - begin:,} bytes for {bits:,} bits at {name[:60]!r}")
        spans.append((begin, end))
    place = 0
    for begin, end in sorted(spans):
        if begin != place:
            raise ValueError(f"tensors that {'leave a hole' if begin > place else 'overlap'} at byte {place:,}")
        place = end
    return place


def fingerprint(folder: Path) -> str:
    """SHA-256 over config.json and every weight file's name, size and header: cheap, and changes with the model."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in weight_files(folder):
        digest.update(f"{path.name} {path.stat().st_size}".encode())
        digest.update(json.dumps(read_header(path), sort_keys=True).encode())
    return digest.hexdigest()


def refuse_other_weights(folder: Path) -> None:
    """Refuses a folder with weights in another format.

    Raises:
        ModelError: names the first of them.
    """
    others = sorted(path.name for path in folder.iterdir() if path.suffix in OTHER_WEIGHTS)
    if others:
        raise ModelError("model.not_safetensors", folder=folder, found=others[0])
