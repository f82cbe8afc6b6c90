"""A cache of quantised weights on disk: a 7B is then read as 4 GB instead of 14.5.

    CACHE/FORM/KEY/weights.safetensors   the ``state_dict``, as bitsandbytes serialises it
    CACHE/FORM/KEY/manifest.json         size of that file and SHA-256 of its header

FORM is the name of a weight form; KEY hashes everything that the bits depend on: config.json, name, size, time and
header of every weight file, the dtype, the device type, and the libraries' versions. An entry is written to a temporary
folder and renamed; this removes entries of earlier states of the model. An entry that differs from its manifest is
removed, and the model is read from its own files.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from core.kernels.weights.forms import HELD_FORMS
from core.machine.disk import folder_bytes, make_durable, name_of
from core.model.loading.assemble import Target
from core.model.loading.tensor_stream import header_of
from core.model.streaming.layers import bringer
from core.model.streaming.rows import tables_in
from core.models.checks.weights import fingerprint

FORMAT = 1
LEAST_BYTES = 10**9
"""Smaller models are not cached."""
SPARED_BYTES = 10 * 10**9
"""Free disk space that is left for runs."""
WEIGHTS, MANIFEST = "weights.safetensors", "manifest.json"
LIBRARIES = ("bitsandbytes", "transformers")


def key(folder: Path, files: list[Path], target: Target) -> str:
    """FORM/KEY of a folder's weights for this target."""
    states = [path.stat() for path in files]  # follows links
    parts = [
        FORMAT, fingerprint(folder), [(state.st_size, state.st_mtime_ns) for state in states],
        str(target.dtype), target.device.type, [version(library) for library in LIBRARIES],
    ]  # fmt: skip
    # The first half stays when the model's files change.
    model = name_of([str(folder.resolve()), str(target.dtype), target.device.type])[:16]
    return f"{target.quantization}/{model}-{name_of(parts)}"


def find(cache: Path, key: str) -> Path | None:
    """The weight file of an entry; an entry that differs from its manifest is removed."""
    place = cache / key
    try:
        manifest = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
        weights = place / WEIGHTS
        if weights.stat().st_size == manifest["bytes"] and _header_hash(weights) == manifest["header_sha256"]:
            return weights
    except FileNotFoundError:
        if not place.exists():
            return None
    except (OSError, ValueError, KeyError, TypeError):
        pass
    drop(cache, key)
    return None


def drop(cache: Path, key: str) -> None:
    """Removes one entry."""
    shutil.rmtree(cache / key, ignore_errors=True)


def cached_bytes(cache: Path) -> int:
    """Disk space of the cache."""
    return sum(folder_bytes(cache / name) for name, form in HELD_FORMS.items() if form.cached)


def clear(cache: Path) -> int:
    """Empties the cache; returns the bytes freed."""
    freed = cached_bytes(cache)
    for name in HELD_FORMS:
        shutil.rmtree(cache / name, ignore_errors=True)
    return freed


def store(cache: Path, key: str, model: Any, read_bytes: int) -> str:
    """Writes an entry; returns a remark for people, or an empty string.

    Not cached are small models, models whose weights transformers renamed while loading (it would rename them again),
    and those that the disk has no room for.
    """
    if read_bytes < LEAST_BYTES or getattr(model, "_weight_conversions", None):
        return ""
    tensors, bring = _tensors(model), bringer(model)
    size = sum(tensor.nbytes for tensor in tensors.values())
    place = cache / key
    part = place.with_name(f"{place.name}.part-{os.getpid()}")
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Entries of earlier states of this model, and half-written ones of killed processes.
        for other in place.parent.glob(f"{place.name.partition('-')[0]}-*"):
            if other != place:
                shutil.rmtree(other, ignore_errors=True)
        if shutil.disk_usage(place.parent).free < size + SPARED_BYTES:
            return "; not kept quantised, since the disk has too little room"
        part.mkdir(mode=0o700)
        _write(part, tensors, bring)
        part.rename(place)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        return f"; not kept quantised: {error.strerror or error}"
    return f"; kept quantised for the next time ({size / 1e9:.1f} GB)"


def _tensors(model: Any) -> dict[str, torch.Tensor]:
    """The state by name, without tied duplicates, as in a checkpoint."""
    state: dict[str, torch.Tensor] = model.state_dict()
    state |= tables_in(model)
    tied = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    tied -= {name for name, _ in model.named_parameters()}
    return {name: tensor for name, tensor in state.items() if name not in tied}


def _write(folder: Path, tensors: dict[str, torch.Tensor], bring: Callable[[str], None]) -> None:
    """Writes tensor by tensor, each brought to its place first where it is streamed: safetensors' writer would copy the
    whole model to the host before."""
    with (folder / WEIGHTS).open("wb") as file:
        file.write(header_of((name, tensor.dtype, tensor.shape) for name, tensor in tensors.items()))
        for name, tensor in tensors.items():
            bring(name)
            file.write(tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy().data)
    make_durable(folder / WEIGHTS)
    state = {"bytes": (folder / WEIGHTS).stat().st_size, "header_sha256": _header_hash(folder / WEIGHTS)}
    (folder / MANIFEST).write_text(json.dumps({"format": FORMAT, **state}), encoding="utf-8")
    make_durable(folder / MANIFEST)


def _header_hash(path: Path) -> str:
    with path.open("rb") as file:
        length = file.read(8)
        return hashlib.sha256(length + file.read(int.from_bytes(length, "little"))).hexdigest()
