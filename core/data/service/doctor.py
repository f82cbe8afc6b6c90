"""The doctor as the window asks it: a child of its own that stays warm, so that a preview never waits behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice
from core.contract.data import DataReport
from core.contract.errors import DataError
from core.contract.findings import Checkup
from core.data.doctor.kept_groups import KeptGroups, groups_file, kept_groups
from core.data.files.keep import KeptFile
from core.data.tokens.cache import Entry, settled
from core.machine.children.pipe import Child, Limits, stopped
from core.machine.locations import Locations

__all__ = ["Doctor"]

DOCTOR = Limits(seconds=60, start_seconds=60, memory_bytes=500 << 20, walled=True)
"""``seconds`` of silence: it tells how far it is all the time."""


class Doctor:
    """Thread-safe; every method may raise DataError."""

    def __init__(self, locations: Locations, limits: Limits = DOCTOR) -> None:
        self._locations = locations
        self.child = Child("core.data.service.doctor_child", "doctor", limits)

    def warm(self) -> None:
        """Starts the child without waiting for it."""
        self.child.warm()

    def close(self) -> None:
        """Ends the child."""
        self.child.close()

    def checkup(
        self,
        found: tuple[DataReport, str],
        choice: DataChoice,
        seed: int,
        tokens: tuple[Entry | None, int, bool],
        on_progress: Callable[[int, int], None],
        cancelled: Callable[[], bool],
    ) -> Checkup:
        """Examines a file that was read: ``found`` is its report and where its Examples lie.

        ``tokens``: where its tokens are kept (None: nowhere), the length limit, and whether they are pairs.

        Raises:
            DataError: ``data.stopped`` when cancelled; the child breaks a limit.
        """
        report, examples = found
        entry, max_length, pairs = tokens
        if cancelled():
            raise stopped(Path(report.path).name)
        request = {
            "do": "examine",
            "examples": examples,
            "usable": report.usable,
            "choice": choice.model_dump(mode="json"),
            "seed": seed,
            "max_length": max_length,
            "tokens": [str(entry.part(start)) for start in entry.starts()] if entry else [],
            "pairs": pairs,
            "kinship": str(self._kinship_file(report, choice)),
        }
        about = Path(report.path).name
        return Checkup.model_validate(self.child.ask(request, about, cancelled, lambda told: on_progress(*told)))

    def kinship(
        self,
        found: tuple[DataReport, str],
        choice: DataChoice,
        told: Callable[[int], None] = lambda _rows: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> KeptGroups:
        """Which rows of a file that was read belong together; found now where it was not examined before, with the rows
        ``told`` that were looked at so far. Raises DataError ``data.stopped`` when cancelled."""
        report, examples = found
        place = self._kinship_file(report, choice)
        known = kept_groups(place)
        if known is None:
            asked = {"do": "groups", "examples": examples, "kinship": str(place)}
            self.child.ask(asked, Path(report.path).name, cancelled, lambda said: told(said[0]))
            known = kept_groups(place)
        if known is None:
            raise DataError("data.cache", "Expected the groups of rows just found, found none.", "Try once more.")
        return known

    def mend(self, found: tuple[DataReport, str], fixes: Sequence[tuple[str, Sequence[int]]]) -> KeptFile:
        """A new data set in which these findings are mended; see ``core.data.doctor.fixes``."""
        report, examples = found
        name = Path(report.path).name
        request: dict[str, Any] = {
            "do": "mend",
            "examples": examples,
            "fixes": [[code, list(rows)] for code, rows in fixes],
            "name": f"{Path(name).stem.removesuffix('-mended')}-mended.jsonl",
            "source": {"name": name, "sha256": report.sha256, "rows": report.rows, "usable": report.usable},
            "home": str(self._locations.home),
        }
        return KeptFile.from_json(self.child.ask(request, name))

    def _kinship_file(self, report: DataReport, choice: DataChoice) -> Path:
        chosen = settled(choice, report.layout, report.mapping)
        return groups_file(self._locations, report.sha256, Path(report.path).name, chosen)
