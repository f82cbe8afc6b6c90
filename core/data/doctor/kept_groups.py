"""Which rows belong together, so that a split keeps them on one side: found once for a file's content, kept in the
cache, and read there by preview, run and window (``core.data.service.doctor``).

Light: what compares rows is loaded only where there is something to compare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from core.contract.config import DataChoice
from core.contract.data import Example
from core.machine.disk import name_of, read_sealed, write_sealed
from core.machine.locations import Locations

__all__ = ["KeptGroups", "find_groups", "groups_file", "kept_groups"]

_VERSION = 3
"""Counts up when other rows would be found: what older code left is then not used."""
MOST_ROWS = 1_000_000
"""Rows compared with each other; those behind them are alone."""
_ROWS_A_SEAM = 64


@dataclass(frozen=True)
class KeptGroups:
    """Groups of rows that belong together: by their place among the usable rows from 0, and by their number in the
    file. Each row stands in one group at most."""

    places: tuple[tuple[int, ...], ...] = ()
    rows: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(cls, places: Iterable[Sequence[int]], numbers: Sequence[int]) -> KeptGroups:
        """Groups of places, with each place's row number."""
        found = tuple(tuple(group) for group in places)
        return cls(found, tuple(tuple(numbers[place] for place in group) for group in found))

    def save(self, target: Path) -> None:
        """Writes them, whole or not at all. Raises OSError where nothing can be written."""
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_sealed(target, {"places": self.places, "rows": self.rows})


def groups_file(locations: Locations, sha256: str, name: str, choice: DataChoice) -> Path:
    """Where the groups of a file's content are kept; ``choice`` is settled: its layout and columns are those used."""
    parts = [_VERSION, sha256, Path(name).suffix.lower(), choice.layout, sorted(choice.columns.items())]
    return locations.cache / "data" / f"groups-{name_of(parts)}.json"


def kept_groups(place: Path) -> KeptGroups | None:
    """What was kept there; None where nothing was, or something that is not as it was written."""
    try:
        found = read_sealed(place)
        made = KeptGroups(*(tuple(tuple(map(int, group)) for group in found[name]) for name in ("places", "rows")))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    whole = [len(group) for group in made.places] == [len(group) for group in made.rows]
    return made if whole else None


def find_groups(
    examples: Iterable[Example], folder: Path | None = None, seam: Callable[[int], None] = lambda _rows: None
) -> KeptGroups:
    """Compares rows with each other. ``seam`` is called now and then with the rows so far, and may raise."""
    from core.data.doctor.findings.words import said_in, words_of
    from core.data.doctor.split_groups import SplitGroups

    kin = SplitGroups(folder)
    for number, example in enumerate(islice(examples, MOST_ROWS), start=1):
        kin.add(example, words_of(said_in(example)))
        if number % _ROWS_A_SEAM == 0:
            seam(number)
    for _ in kin.steps():
        seam(len(kin.rows))
    return KeptGroups.of(kin.groups(), kin.rows)
