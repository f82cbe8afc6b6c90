"""The cache of tokenised rows, by content.

An entry's name is a hash over all that decides its content: the file's bytes and how its columns are read, the
tokenizer's files, the template, what is trained, and the source of the code. Rows are kept uncut, so that one entry
serves every length limit.

    cache/tokens/KEY/part-00000000.npz ...     the rows from that one on (a ``TokenTable``)
                     MANIFEST.json             written last: without it the entry is not complete

Parts depend on the rows alone (``slices``), so that an interrupted writer can go on. A damaged entry is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice, Layout
from core.contract.data import Example
from core.contract.methods import ReadAs, RowKind
from core.data.files.code_digest import code_digest
from core.data.files.example_file import in_groups
from core.data.tokens.table import TokenTable
from core.machine.disk import folder_bytes, name_of, write_whole
from core.machine.locations import Locations

ROWS, CHARACTERS = 1_000, 4_000_000
"""A part holds at most so many rows, and is closed by the row that reaches so many characters."""
LIMIT_BYTES = 8 << 30
"""Above this the entries used longest ago are removed for a new one."""
_MANIFEST = "MANIFEST.json"
_TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json", "tokenizer.model",
    "added_tokens.json", "config.json", "vocab.json", "merges.txt", "vocab.txt", "spiece.model",
)  # fmt: skip
_PACKAGES = ("transformers", "tokenizers", "jinja2")


@dataclass(frozen=True)
class Source:
    """What rows are tokenised from: a file's content hash and name, how it is read, and under which tokenizer.

    ``choice`` names the layout and columns that were recognised; ``reads`` what a row is to the method, and
    ``left_out`` the kinds of rows that it leaves out.
    """

    sha256: str
    name: str
    choice: DataChoice
    tokenizer_folder: Path
    reads: ReadAs = "turns"
    left_out: tuple[RowKind, ...] = ()

    @property
    def pairs(self) -> bool:
        """Whether each row is two of the table, chosen and rejected."""
        return self.reads == "pairs"

    def key(self) -> str:
        """The entry's name."""
        choice = self.choice
        parts = [
            self.sha256, Path(self.name).suffix.lower(), choice.layout, sorted(choice.columns.items()),
            choice.template, choice.train_on, choice.system_prompt, self.reads, self.left_out,
            tokenizer_digest(self.tokenizer_folder),
            code_digest("read", "render", "tokens", "deal", packages=_PACKAGES),
        ]  # fmt: skip
        return name_of(parts)

    def about(self) -> dict[str, str]:
        """Names of the file and the tokenizer, for the list of the cache."""
        model = self.tokenizer_folder
        if model.parent.name == "snapshots":
            model = model.parents[1]  # of the hub's MODEL/snapshots/COMMIT
        named = model.name.removeprefix("models--").replace("--", "/")
        return {"file": self.name, "tokenizer": named, "train_on": self.choice.train_on}


@dataclass(frozen=True)
class Entry:
    """One folder of the cache, complete or not."""

    folder: Path

    def part(self, start: int) -> Path:
        """The file of the rows from this usable row on, counted from 0."""
        return self.folder / f"part-{start:08d}.npz"

    def open(self) -> Entry:
        """Makes the folder; returns the entry."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self

    def finish(self, starts: Iterable[int], about: dict[str, Any]) -> None:
        """Writes the manifest of the parts at these starts; removes older entries above the limit. Raises OSError."""
        parts = [self.part(start) for start in starts]
        said = {"key": self.folder.name, "parts": {part.name: part.stat().st_size for part in parts}, **about}
        write_whole(self.folder / _MANIFEST, json.dumps(said).encode())
        _make_room(self.folder)

    def manifest(self) -> dict[str, Any] | None:
        """What ``finish`` wrote; None where the entry is not complete, or not ours."""
        try:
            manifest = json.loads((self.folder / _MANIFEST).read_bytes())
            parts = manifest["parts"].items()
            whole = manifest["key"] == self.folder.name and all(
                (self.folder / Path(name).name).stat().st_size == size for name, size in parts
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return manifest if whole else None

    def starts(self) -> list[int]:
        """Where its parts begin, ascending; empty where it is not complete."""
        manifest = self.manifest()
        return sorted(int(Path(name).stem.removeprefix("part-")) for name in manifest["parts"]) if manifest else []

    def tables(self) -> list[TokenTable] | None:
        """All rows in order; None where the entry is not complete. A damaged one is removed."""
        manifest = self.manifest()
        if manifest is None:
            return None
        tables = [table for name in manifest["parts"] if (table := TokenTable.load(self.folder / Path(name).name))]
        if len(tables) != len(manifest["parts"]):
            self.clear()
            return None
        with suppress(OSError):  # read-only, or just removed
            os.utime(self.folder)
        return tables

    def clear(self) -> int:
        """Removes it; returns the bytes freed."""
        freed = folder_bytes(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        return freed - folder_bytes(self.folder)


@dataclass(frozen=True)
class Cached:
    """An entry for the list. ``used``: seconds since the epoch."""

    key: str
    file: str
    tokenizer: str
    train_on: str
    rows: int
    tokens: int
    bytes: int
    used: float
    whole: bool


def settled(choice: DataChoice, layout: Layout, mapping: dict[str, str], reads: ReadAs = "turns") -> DataChoice:
    """The choice with the layout and columns that were recognised; without a template where only labels are learned."""
    changes: dict[str, Any] = {"layout": layout, "columns": mapping}
    return choice.model_copy(update=changes | ({"template": "none"} if reads == "labels" else {}))


def entry_of(locations: Locations, source: Source, sample: int = 0) -> Entry:
    """The entry of a source; ``sample``: the entry of every so-many-th row only."""
    return Entry(_root(locations) / (f"{source.key()}-{sample}" if sample else source.key()))


def list_cached(locations: Locations) -> tuple[Cached, ...]:
    """All entries, the one used last first."""
    entries = []
    for folder in _folders(_root(locations)):
        said = Entry(folder).manifest() or {}
        file, tokenizer, train_on = (str(said.get(name, "")) for name in ("file", "tokenizer", "train_on"))
        rows, tokens = (int(said.get(name, 0)) for name in ("rows", "tokens"))
        size, used = folder_bytes(folder), _used(folder)
        entries.append(Cached(folder.name, file, tokenizer, train_on, rows, tokens, size, used, bool(said)))
    return tuple(sorted(entries, key=lambda one: -one.used))


def clear_cached(locations: Locations) -> int:
    """Removes all entries; returns the bytes freed. A run that reads one just then tokenises again."""
    return sum(Entry(folder).clear() for folder in _folders(_root(locations)))


def slices(examples: Iterable[Example]) -> Iterator[list[Example]]:
    """Examples in the parts of an entry."""
    return in_groups(examples, ROWS, CHARACTERS)


def _root(locations: Locations) -> Path:
    return locations.cache / "tokens"


def _folders(root: Path) -> list[Path]:
    return [folder for folder in root.glob("*") if folder.is_dir() and not folder.is_symlink()]


def _make_room(kept: Path) -> None:
    others = sorted((folder for folder in _folders(kept.parent) if folder != kept), key=_used, reverse=True)
    room = LIMIT_BYTES - folder_bytes(kept)
    for folder in others:
        room -= folder_bytes(folder)
        if room < 0:
            Entry(folder).clear()


def _used(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def tokenizer_digest(folder: Path) -> str:
    """A hash of a tokenizer's files."""
    extra = sorted((folder / "additional_chat_templates").glob("*.jinja"))
    files = [file for file in (*(folder / name for name in _TOKENIZER_FILES), *extra) if file.is_file()]
    stamps = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return _files_digest(tuple(stamps))


@cache
def _files_digest(stamps: tuple[tuple[str, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for name, size, _ in stamps:
        digest.update(f"{Path(name).name}\0{size}\0".encode() + Path(name).read_bytes())
    return digest.hexdigest()
