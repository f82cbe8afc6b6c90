"""The rows of a file as the studio asks for them: windows of the table, whole rows, and changes over the file."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice
from core.contract.data import Checkup
from core.contract.errors import DataError
from core.contract.methods import Method
from core.contract.rows import RoleGuess, RowChange, RowTable, RowWish
from core.data.files.keep import KeptFile, keep_file, promised_sha256
from core.data.service.doctor import Maker
from core.data.service.reader import Cancelled, Progress, Reader
from core.data.table.changes import Step, add_change, changes_in, step
from core.machine.disk import file_sha256
from core.machine.locations import Locations

_LARGE_BYTES = 1 << 20
"""Reading a file of this size through takes a second."""


class Rows:
    """Thread-safe; every method may raise DataError."""

    def __init__(self, files: Reader, large: Reader, locations: Locations) -> None:
        """``large``: for the rows of large files, which do not wait while such a file is checked."""
        self._files, self._large, self._locations = files, large, locations
        self._hashes: dict[tuple[str, int, int], str] = {}

    def roles(self, path: Path, choice: DataChoice) -> RoleGuess:
        """What the columns of a file are taken for."""
        return RoleGuess.model_validate(self._files.ask({"do": "roles", "choice": _columns_of(choice)}, path))

    def table(
        self,
        path: Path,
        choice: DataChoice,
        wish: RowWish,
        method: Method | None,
        checkup: Checkup | None,
        known: tuple[str, Sequence[Path]],
    ) -> RowTable:
        """A window of the rows; ``known``: the file of its Examples, where it was read, and those of its tokens."""
        findings = {one.code: (one.level, one.rows, one.kept) for one in checkup.findings} if checkup else {}
        request = self._request("table", path, choice=_columns_of(choice), wish=wish.model_dump(mode="json"))
        request |= {"method": method, "findings": findings}
        request |= {"examples": known[0], "tokens": list(map(str, known[1]))}
        return RowTable.model_validate(self._ask(request, path))

    def row(self, path: Path, choice: DataChoice, number: int) -> dict[str, str]:
        """All cells of a row, whole."""
        request = self._request("row", path, choice=_columns_of(choice), number=number)
        cells: dict[str, str] = self._ask(request, path)
        return cells

    def change(self, path: Path, change: RowChange) -> None:
        """Adds a change to those of the file."""
        self._ask(self._request("row", path, choice={"columns": {}}, number=change.rows[0]), path)
        with _said():
            add_change(self._list_of(path, wanted=True), change)

    def step(self, path: Path, do: Step) -> None:
        """Undoes the last change of the file, or makes it again."""
        with _said():
            step(self._list_of(path), do)

    def changed(
        self, path: Path, choice: DataChoice, maker: Maker, on_progress: Progress, cancelled: Cancelled
    ) -> KeptFile:
        """The made data set with the file's changes; the kept file itself where there are none."""
        kept = keep_file(path, self._locations)
        listed = self._list_of(kept.path)
        changes = changes_in(listed)
        if not changes.edits and not changes.excluded:
            return kept
        source = {"name": kept.name, "sha256": kept.sha256, "layout": choice.layout}
        name = f"{kept.path.stem.removesuffix('-edited')}-edited.jsonl"
        asked = {"do": "edit", "path": str(kept.path), "changes": str(listed), "name": name, "source": source}
        return maker.made(asked, on_progress, cancelled)

    def _ask(self, request: dict[str, Any], path: Path) -> Any:
        reader = self._files
        with suppress(OSError, DataError):  # which the reader says in its words
            reader = self._large if reader.place(path).stat().st_size > _LARGE_BYTES else reader
        return reader.ask(request, path)

    def _request(self, do: str, path: Path, **asked: Any) -> dict[str, Any]:
        return {"do": do, "cache": str(self._locations.cache / "data"), "changes": str(self._list_of(path)), **asked}

    def _list_of(self, path: Path, wanted: bool = False) -> Path:
        """Where the changes of a file are listed; a file that is not kept is hashed once there are lists."""
        folder = self._locations.changes
        known = promised_sha256(path, self._locations.data)
        if not (known or wanted or folder.is_dir()):
            return folder / "none"
        return folder / f"{known or self._sha256(self._files.place(path))}.jsonl"

    def _sha256(self, path: Path) -> str:
        try:
            status = path.stat()
        except OSError as error:
            raise DataError("data.changed", name=path.name) from error
        key = (str(path), status.st_size, status.st_mtime_ns)
        if key not in self._hashes:
            self._hashes[key] = file_sha256(path)
        return self._hashes[key]


@contextmanager
def _said() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError("data.change", reason=error.strerror or error) from error


def _columns_of(choice: DataChoice) -> dict[str, Any]:
    return {"layout": choice.layout, "columns": choice.columns}
