"""Groups of rows that a split keeps on one side: repeated, nearly the same, beginning with the same exchange, or asking
the same. Computed once for a file's content and kept in the cache."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from core.contract.config import DataChoice
from core.contract.data import Example
from core.data.doctor.findings.repeats import Repeats
from core.data.doctor.findings.text_words import WordNumbers, said_in, words_of
from core.data.doctor.minhash import MinHash, UnionFind
from core.data.files.code_digest import code_digest
from core.machine.disk import name_of, read_sealed, write_sealed
from core.machine.locations import Locations

MOST_ROWS = 1_000_000
"""Rows compared with each other; later ones are in no group."""
_ROWS_BETWEEN_REPORTS = 64
Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class KeptGroups:
    """Groups as row numbers of the file; no row is in two groups."""

    rows: Groups = ()

    def save(self, target: Path) -> None:
        """Writes them atomically. Raises OSError."""
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_sealed(target, {"rows": self.rows})


def groups_file(locations: Locations, sha256: str, name: str, choice: DataChoice) -> Path:
    """Where the groups of a file's content are kept; ``choice`` names the layout and columns that were recognised."""
    parts = [code_digest("read", "doctor"), sha256, Path(name).suffix.lower(), choice.layout]
    return locations.cache / "data" / f"groups-{name_of([*parts, sorted(choice.columns.items())])}.json"


def kept_groups(place: Path) -> KeptGroups | None:
    """The groups kept there; None where there are none, or the file is damaged."""
    try:
        kept = read_sealed(place)
        return KeptGroups(tuple(tuple(map(int, group)) for group in kept["rows"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def find_groups(
    examples: Iterable[Example], folder: Path | None = None, on_progress: Callable[[int], None] = lambda _rows: None
) -> KeptGroups:
    """Compares rows with each other. ``on_progress`` gets the rows so far now and then, and may raise."""
    groups = SplitGroups(folder)
    for number, example in enumerate(islice(examples, MOST_ROWS), start=1):
        groups.add(example, words_of(said_in(example)))
        if number % _ROWS_BETWEEN_REPORTS == 0:
            on_progress(number)
    for _ in groups.steps():
        on_progress(len(groups.rows))
    return groups.kept()


class SplitGroups:
    """Takes rows in their order and counts them from 0; ``steps`` then compares them."""

    def __init__(self, folder: Path | None = None) -> None:
        self.rows = array("Q")
        self.repeats = Repeats()
        self.alike: list[list[int]] = []
        self._minhash = MinHash(folder)
        self._hashed = array("Q")
        self._numbers = WordNumbers()

    def add(self, example: Example, words: list[str]) -> None:
        """One row and its words."""
        place = len(self.rows)
        self.rows.append(example.row)
        if self.repeats.add(example):
            self._hashed.append(place)
            self._minhash.add(list(map(self._numbers.__getitem__, words)))

    def steps(self) -> Iterator[float]:
        """Compares; yields the share that is done."""
        if self._hashed:
            yield from self._minhash.steps()
            self.alike = [[self._hashed[place] for place in group] for group in self._minhash.groups()]

    def groups(self) -> list[list[int]]:
        """Places of rows that must stay on one side of a split."""
        together = UnionFind(len(self.rows))
        for groups in (self.repeats.exact(), self.alike, self.repeats.openings(), self.repeats.questions()):
            together.join_all(groups)
        return together.groups()

    def kept(self) -> KeptGroups:
        """The groups, to be saved."""
        return KeptGroups(tuple(map(tuple, self.numbered(self.groups()))))

    def numbered(self, groups: Iterable[Sequence[int]]) -> list[list[int]]:
        """Groups of places as groups of row numbers."""
        return [[self.rows[place] for place in group] for group in groups]
