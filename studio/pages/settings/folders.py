"""The folders of the studio on this machine: what lies where, how large it is, and which caches may be cleared."""

import re
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.contract.weight_forms import WEIGHT_FORMS
from core.machine.disk import folder_bytes, read_plain
from core.machine.locations import Locations
from core.models.hub.cache import cache_root

CacheName = Literal["unused", "tokens", "findings", "weights"]
_HASH = re.compile(rb"[0-9a-f]{64}")
_NAMING_BYTES = 4 << 20
_LEFT_ALONE_SECONDS = 86_400.0


@dataclass(frozen=True)
class Folder:
    """A line of the list; ``cleared``: what clearing it removes, where all of it can be made again."""

    name: str
    path: Path
    cleared: Callable[[], Iterable[Path]] | None = None

    def inner(self) -> list[Path]:
        """What counts as it, and is cleared with it."""
        if not self.cleared:
            return [self.path]
        return [folder for folder in self.cleared() if folder.is_dir() and not folder.is_symlink()]


def folders_of(locations: Locations) -> tuple[Folder, ...]:
    """All of them: the home, what lies in it, and the hub's."""
    tokens, findings, *weights = (locations.cache / name for name in ("tokens", "data", *WEIGHT_FORMS))
    return (
        Folder("home", locations.home),
        Folder("runs", locations.runs),
        Folder("data", locations.data),
        Folder("unused", locations.data, lambda: unused_data(locations)),
        Folder("tokens", tokens, lambda: [tokens]),
        Folder("findings", findings, lambda: [findings]),
        Folder("weights", weights[0], lambda: weights),
        Folder("hub", cache_root()),
    )


def sizes_of(locations: Locations) -> dict[str, int]:
    """Bytes of each folder by its name; walks all of them."""
    return {folder.name: sum(map(folder_bytes, folder.inner())) for folder in folders_of(locations)}


def clear_cache(locations: Locations, name: CacheName) -> int:
    """Clears one cache and no other folder; returns the bytes freed. A run that reads it just then makes it again."""
    freed = 0
    for folder in next(one for one in folders_of(locations) if one.name == name).inner():
        freed += folder_bytes(folder)
        shutil.rmtree(folder, ignore_errors=True)
        freed -= folder_bytes(folder)
    return freed


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
