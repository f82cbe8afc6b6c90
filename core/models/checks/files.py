"""The files of a model folder, checked before any library opens one: place, kind and size.

A folder may come from anybody. So every file that transformers, tokenizers or peft would open must be a plain file of
a sensible size inside the folder. One kind of link is allowed, the hub cache's to its own copy,

    models--OWNER--NAME/snapshots/COMMIT/config.json ─► models--OWNER--NAME/blobs/HASH

JSON is read with limits: no key twice (readers disagree on which one counts), no depth that ends an interpreter.
"""

import json
import stat
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from core.contract.errors import ModelError

MIB = 1 << 20
LIMITS_BYTES = {
    "config.json": 4 * MIB,
    "adapter_config.json": MIB,
    "model.safetensors.index.json": 32 * MIB,
    "tokenizer.json": 64 * MIB,
    "vocab.json": 64 * MIB,
    "merges.txt": 64 * MIB,
}
"""At least twice the largest known: the index of a model of 671 B has 9 MB, the largest tokenizer 34 MB, the 4,096
names that an adapter may have 250 kB."""
LIMITS_BY_SUFFIX = {".json": 16 * MIB, ".jinja": MIB, ".txt": 64 * MIB, ".model": 64 * MIB, ".safetensors": 1 << 50}
OPENED = (
    "*config.json", "*.index.json", "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*",
    "merges.txt", "chat_template*", "*.jinja", "*.model", "*.safetensors",
)  # fmt: skip
"""What transformers, tokenizers and peft open."""
TEMPLATES = "additional_chat_templates"
FILES_AT_MOST = 20_000
CODE_SIGNS = (b"\x80", b"PK\x03\x04", b"\x1f\x8b")
"""How pickles, zip archives (torch's files too) and gzip begin."""


def check_files(folder: Path) -> None:
    """Checks every file that a loader would open.

    Raises:
        ModelError: the first that is outside the folder, no plain file, or too large.
    """
    for path in _opened_by_loaders(folder):
        check_place(folder, path)
        if not stat.S_ISREG(path.stat().st_mode):
            raise ModelError("model.no_file", path=path)
        _check_size(path)
        if path.suffix == ".safetensors":
            continue  # its header is read whole
        with path.open("rb") as file:
            start = file.read(64)
        if start.startswith(CODE_SIGNS) or (path.suffix == ".json" and start.strip()[:1] not in (b"{", b"[")):
            kind = "JSON" if path.suffix == ".json" else "a plain file"
            raise ModelError("model.bad_file", kind=kind, path=path)


def check_place(folder: Path, path: Path) -> None:
    """Refuses links that lead outside, but for those to the hub cache's own blobs."""
    target = path.resolve()
    whole = folder.resolve()
    if target.is_relative_to(whole):
        return
    if whole.parent.name == "snapshots" and target.parent == whole.parents[1] / "blobs":
        return
    raise ModelError("model.outside/link", name=path.name, folder=folder, target=target)


def is_plain_name(name: object) -> bool:
    """Whether something is the name of a file, without a path."""
    return isinstance(name, str) and name not in ("", ".", "..") and not set(name) & set("/\\\0")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of a sensible size.

    Raises:
        ModelError: it is too large, cannot be read, or holds something else.
    """
    try:
        _check_size(path)
        return parse_object(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ModelError("model.bad_json", path=path, reason=reason) from error


def parse_object(text: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ValueError: no JSON, no object, or a key twice.
        RecursionError: nested too deeply.
    """
    value = json.loads(text.decode("utf-8"), object_pairs_hook=_once)
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, found {type(value).__name__}")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value_of = dict(pairs)
    if len(value_of) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice[:40]!r} twice")
    return value_of


def _opened_by_loaders(folder: Path) -> Iterator[Path]:
    templates = folder / TEMPLATES
    if templates.is_symlink():
        check_place(folder, templates)
    for place in (folder, templates):
        if not place.is_dir():
            continue
        for number, path in enumerate(place.iterdir()):
            if number > FILES_AT_MOST:
                raise ModelError("model.files", folder=folder, most=FILES_AT_MOST)
            if any(fnmatch(path.name, pattern) for pattern in OPENED):
                yield path


def _check_size(path: Path) -> None:
    size = path.stat().st_size
    limit = LIMITS_BYTES.get(path.name) or LIMITS_BY_SUFFIX.get(path.suffix, 16 * MIB)
    if size > limit:
        raise ModelError("model.large_file", limit=limit // MIB, path=path, size=size / MIB)
