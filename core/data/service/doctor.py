"""Long work over rows: the doctor has a warm child of its own, and so has each data set while it is made."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice
from core.contract.data import Checkup
from core.contract.errors import DataError
from core.contract.methods import BAD
from core.data.doctor.split_groups import KeptGroups, groups_file, kept_groups
from core.data.files.keep import KEPT_FILE, KeptFile
from core.data.service.reader import Cancelled, Progress, ReadFile, never, no_progress
from core.data.tokens.cache import settled
from core.machine.children.pipe import Child, Limits, stopped
from core.machine.locations import Locations

_CHILD = "core.data.service.work_child"
DOCTOR = Limits(seconds=60, start_seconds=60, memory_bytes=500 << 20, walled=True)
"""``seconds`` without progress."""
MAKER = Limits(seconds=120, start_seconds=60, memory_bytes=2 << 30)
"""``seconds`` without progress."""


class Doctor:
    """Thread-safe; every method may raise DataError: a limit was exceeded, or ``data.stopped`` when cancelled."""

    def __init__(self, locations: Locations) -> None:
        self._locations = locations
        self.child = Child(_CHILD, "doctor", DOCTOR)

    def checkup(
        self,
        file: ReadFile,
        choice: DataChoice,
        seed: int,
        tokens: dict[str, Any],
        on_progress: Callable[[int, int], None],
        cancelled: Cancelled,
    ) -> Checkup:
        """Examines a file that was read; ``tokens``: the cached parts with its tokens, the length limit, and whether
        they are pairs."""
        if cancelled():
            raise stopped(file.name)
        request = {
            "do": "examine",
            "examples": file.examples,
            "usable": file.report.usable,
            "choice": choice.model_dump(mode="json"),
            "seed": seed,
            "groups": str(self._groups_file(file, choice)),
            # Other methods' rows may be repeated or damaged too; only what is marked bad may be bad.
            "left_out": [kind for kind in file.report.left_out if kind == BAD],
            **tokens,
        }
        return Checkup.model_validate(self.child.ask(request, file.name, cancelled, lambda told: on_progress(*told)))

    def groups(
        self,
        file: ReadFile,
        choice: DataChoice,
        on_progress: Callable[[int], None] = lambda _rows: None,
        cancelled: Cancelled = never,
    ) -> KeptGroups:
        """Which rows of a file that was read belong together: kept, or computed now. ``on_progress`` gets the rows so
        far."""
        place = self._groups_file(file, choice)
        known = kept_groups(place)
        if known is None:
            asked = {"do": "groups", "examples": file.examples, "groups": str(place)}
            self.child.ask(asked, file.name, cancelled, lambda told: on_progress(told[0]))
            known = kept_groups(place)
        if known is None:
            raise DataError("data.cache/no_groups")
        return known

    def fix(self, file: ReadFile, fixes: Sequence[tuple[str, Sequence[int]]]) -> KeptFile:
        """A new data set with these findings fixed; see ``core.data.doctor.fixes``."""
        report = file.report
        request: dict[str, Any] = {
            "do": "fix",
            "examples": file.examples,
            "fixes": [[code, list(rows)] for code, rows in fixes],
            "name": f"{Path(file.name).stem.removesuffix('-mended')}-mended.jsonl",
            "source": {"name": file.name, "sha256": report.sha256, "rows": report.rows, "usable": report.usable},
            "home": str(self._locations.home),
        }
        return KEPT_FILE.validate_python(self.child.ask(request, file.name))

    def _groups_file(self, file: ReadFile, choice: DataChoice) -> Path:
        chosen = settled(choice, file.report.layout, file.report.mapping)
        return groups_file(self._locations, file.report.sha256, file.name, chosen)


class Maker:
    """Makes data sets, each in a child of its own."""

    def __init__(self, locations: Locations) -> None:
        self._home = locations.home
        self._lock = threading.Lock()
        self._at_work: set[Child] | None = set()

    def close(self) -> None:
        """Ends what is being made; nothing begins after that."""
        with self._lock:
            at_work, self._at_work = self._at_work or set(), None
        for child in at_work:
            child.close()

    def made(
        self, request: dict[str, Any], on_progress: Progress = no_progress, cancelled: Cancelled = never
    ) -> KeptFile:
        """The data set of a request to ``work_child``. Raises DataError."""
        child = Child(_CHILD, "maker", MAKER)
        with self._lock:
            if self._at_work is None:
                raise stopped(request["name"])
            self._at_work.add(child)
        try:
            asked, about = {**request, "home": str(self._home)}, request["name"]
            return KEPT_FILE.validate_python(child.ask(asked, about, cancelled, lambda told: on_progress(*told)))
        finally:
            child.close()
            with self._lock:
                (self._at_work or set()).discard(child)
