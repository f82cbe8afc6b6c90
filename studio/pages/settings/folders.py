"""The folders of the studio on this machine: what lies where, how large it is, and which caches may be cleared."""

import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.contract.weight_forms import WEIGHT_FORMS
from core.data.tokens.cache import clear_cached
from core.machine.disk import folder_bytes, read_plain
from core.machine.locations import Locations
from core.models.hub.cache import cache_root

CacheName = Literal["tokens", "findings", "weights", "unused"]
CACHES: Mapping[str, tuple[str, ...]] = {
    "tokens": ("tokens",),
    "findings": ("data",),
    "weights": tuple(WEIGHT_FORMS),
}
"""What lies in the home's ``cache``, by the names of its folders there: all of it can be made again."""
_HASH = re.compile(rb"[0-9a-f]{64}")
_NAMING_BYTES = 4 << 20
_LEFT_ALONE_SECONDS = 86_400.0


@dataclass(frozen=True)
class Folder:
    """A line of the list; ``cache``: the name of the cache that it is."""

    name: str
    path: Path
    cache: CacheName | None = None


def folders_of(locations: Locations) -> tuple[Folder, ...]:
    """All of them: the home, what lies in it, and the hub's."""
    return (
        Folder("home", locations.home),
        Folder("runs", locations.runs),
        Folder("data", locations.data),
        Folder("unused", locations.data, "unused"),
        Folder("tokens", locations.cache / "tokens", "tokens"),
        Folder("findings", locations.cache / "data", "findings"),
        Folder("weights", locations.cache / next(iter(WEIGHT_FORMS)), "weights"),
        Folder("hub", cache_root()),
    )


def sizes_of(locations: Locations) -> dict[str, int]:
    """Bytes of each folder by its name; walks all of them."""
    return {
        folder.name: cache_bytes(locations, folder.cache) if folder.cache else folder_bytes(folder.path)
        for folder in folders_of(locations)
    }


def cache_bytes(locations: Locations, name: CacheName) -> int:
    """Bytes of one cache."""
    return sum(folder_bytes(folder) for folder in _inner(locations, name))


def clear_cache(locations: Locations, name: CacheName) -> int:
    """Clears one cache and no other folder; returns the bytes freed. A run that reads it just then makes it again."""
    before = cache_bytes(locations, name)
    if name == "tokens":
        clear_cached(locations)
    else:
        for folder in _inner(locations, name):
            shutil.rmtree(folder, ignore_errors=True)
    return before - cache_bytes(locations, name)


def unused_data(locations: Locations) -> list[Path]:
    """Kept data files that no run and no draft names, and that are older than a day: each change of a file's rows makes
    one, and so does each choice that came to nothing. None where a run cannot be read: it may need any of them."""
    named: set[bytes] = set()
    naming = (locations.runs.glob("*/run.yaml"), locations.runs.glob("*/asked.json"), locations.home.glob("draft*"))
    try:
        for file in (file for files in naming for file in files):
            named.update(_HASH.findall(read_plain(file, _NAMING_BYTES)))
    except OSError:
        return []
    late = time.time() - _LEFT_ALONE_SECONDS
    folders = [one for one in locations.data.glob("*") if _HASH.fullmatch(one.name.encode()) and one.is_dir()]
    return [one for one in folders if one.name.encode() not in named and one.lstat().st_mtime < late]


def _inner(locations: Locations, name: CacheName) -> list[Path]:
    if name == "unused":
        return [folder for folder in unused_data(locations) if not folder.is_symlink()]
    folders = (locations.cache / inner for inner in CACHES[name])
    return [folder for folder in folders if folder.is_dir() and not folder.is_symlink()]
