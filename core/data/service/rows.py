"""The rows of a file as the studio asks for them: windows of the table, whole rows, and changes over the file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice
from core.contract.data import Checkup
from core.contract.methods import Method
from core.contract.rows import RoleGuess, RowTable, RowWish
from core.data.files.keep import promised_sha256
from core.data.service.reader import Reader
from core.machine.disk import file_sha256
from core.machine.locations import Locations


class Rows:
    """Thread-safe; every method may raise DataError."""

    def __init__(self, files: Reader, locations: Locations) -> None:
        self._files, self._locations = files, locations
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
        tokens: Sequence[Path],
        checkup: Checkup | None,
    ) -> RowTable:
        """A window of the rows; ``tokens``: files of the table of all rows' tokens."""
        findings = {one.code: (one.level, one.rows) for one in checkup.findings} if checkup else {}
        request = self._request("table", path, choice=_columns_of(choice), wish=wish.model_dump(mode="json"))
        request |= {"method": method, "tokens": list(map(str, tokens)), "findings": findings}
        return RowTable.model_validate(self._files.ask(request, path))

    def row(self, path: Path, choice: DataChoice, number: int) -> dict[str, str]:
        """All cells of a row, whole."""
        cells: dict[str, str] = self._files.ask(
            self._request("row", path, choice=_columns_of(choice), number=number), path
        )
        return cells

    def _request(self, do: str, path: Path, **asked: Any) -> dict[str, Any]:
        return {"do": do, "cache": str(self._locations.cache / "data"), "changes": str(self._list_of(path)), **asked}

    def _list_of(self, path: Path) -> Path:
        """Where the changes of a file are listed; a file that is not kept is hashed once there are lists."""
        folder = self._locations.changes
        known = promised_sha256(path, self._locations.data)
        if not known and not folder.is_dir():
            return folder / "none"
        return folder / f"{known or self._sha256(path)}.jsonl"

    def _sha256(self, path: Path) -> str:
        status = path.stat()
        key = (str(path), status.st_size, status.st_mtime_ns)
        if key not in self._hashes:
            self._hashes[key] = file_sha256(path)
        return self._hashes[key]


def _columns_of(choice: DataChoice) -> dict[str, Any]:
    return {"layout": choice.layout, "columns": choice.columns}
