"""The data room for the studio: warm child processes that can be killed, and nothing heavy here.

The reader (pyarrow) turns a person's file into Examples in the cache, and a second one shows the rows of large files
meanwhile; the renderer (transformers) shows and measures
them under a template. A hostile file or template ends its child and gives an error of one line.
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice
from core.contract.data import Checkup, DataFacts, DataReport, Example, Preview
from core.contract.errors import DataError
from core.contract.methods import METHODS, Method
from core.contract.rows import RoleGuess, RowChange, RowTable, RowWish
from core.data.deal.split import places_of
from core.data.files.disk_room import sweep
from core.data.files.example_file import ExampleFile
from core.data.files.keep import KeptFile
from core.data.files.made import source_of
from core.data.files.mix import PARTS, parts_of
from core.data.service.doctor import Doctor, Maker
from core.data.service.reader import READER, Cancelled, Progress, Reader, ReadFile, never, no_progress
from core.data.service.rows import Rows
from core.data.service.tokenising import Tokenising, Work
from core.data.tokens.cache import Source, entry_of, settled
from core.data.tokens.facts import facts_of
from core.machine.children.pipe import Child, Limits
from core.machine.locations import Locations

_RENDERER = Limits(seconds=60, start_seconds=60, memory_bytes=4 << 30)
"""A row of four million emoji takes 3 GB to tokenise; ``template_limits`` limits templates further."""


class DataService:
    """What the studio asks of data files. Thread-safe; every method may raise DataError."""

    def __init__(self, locations: Locations, guarded: bool = False) -> None:
        """``guarded``: paths may come from a browser, so a refusal must not tell whether a file exists."""
        self._locations = locations
        self.reader, self.rows = (Child("core.data.service.reader_child", "reader", READER) for _ in range(2))
        self.renderer = Child("core.data.service.renderer_child", "renderer", _RENDERER)
        self._files = Reader(self.reader, locations, guarded)
        self._maker = Maker(locations)
        self._tokens = Tokenising(self.renderer, locations)
        self._doctor = Doctor(locations)
        self._rows = Rows(self._files, Reader(self.rows, locations, guarded), locations)

    def warm(self) -> None:
        """Starts the children that every file needs, without waiting for them."""
        self.reader.warm()
        self.renderer.warm()

    def close(self) -> None:
        """Ends all children for good and removes their unfinished files."""
        self._maker.close()
        self.reader.close()
        self.rows.close()
        self.renderer.close()
        self._doctor.child.close()
        sweep((self._locations.cache / "data").glob("*.part"))

    def columns(self, path: Path) -> tuple[str, ...]:
        """The columns of a file, for mapping by hand where its layout is not recognised."""
        return self._files.columns(path)

    def roles(self, path: Path, choice: DataChoice) -> RoleGuess:
        """What the columns of any readable file are taken for, from their names and the first rows."""
        return self._rows.roles(path, choice)

    def table(
        self,
        path: Path,
        choice: DataChoice,
        wish: RowWish,
        tokenizer_folder: Path | None = None,
        method: Method | None = None,
        checkup: Checkup | None = None,
    ) -> RowTable:
        """A window of the rows of any readable file, with the changes made to them; a large file is read further with
        each call until the table is ``complete``. Lengths are of tokens where the file was tokenised for this
        tokenizer."""
        source, examples, tokens = self.source_of(path), "", list[Path]()
        with contextlib.suppress(DataError):  # it has no layout yet
            if file := self._files.known(path, choice):
                examples = file.examples if source == path else ""
                if tokenizer_folder:
                    entry = entry_of(self._locations, self._work(file, choice, tokenizer_folder, method).source)
                    tokens = [entry.part(start) for start in entry.starts()]
        return self._rows.table(source, choice, wish, method, checkup, (examples, tokens))

    def row(self, path: Path, choice: DataChoice, number: int) -> dict[str, str]:
        """All cells of one row, whole."""
        return self._rows.row(self.source_of(path), choice, number)

    def change(self, path: Path, change: RowChange) -> None:
        """Changes rows of a file, which itself stays as it is: a cell's text, or whether rows are left out."""
        self._rows.change(self.source_of(path), change)

    def undo(self, path: Path) -> None:
        """Takes the last change back that is in force; nothing where there is none."""
        self._rows.step(self.source_of(path), "undo")

    def redo(self, path: Path) -> None:
        """Makes the change again that was undone last; nothing where there is none."""
        self._rows.step(self.source_of(path), "redo")

    def changed(
        self, path: Path, choice: DataChoice, on_progress: Progress = no_progress, cancelled: Cancelled = never
    ) -> KeptFile:
        """The data set with the changes made to a file, whose rows keep their numbers; without any the kept file."""
        return self._rows.changed(self.source_of(path), choice, self._maker, on_progress, cancelled)

    def source_of(self, path: Path) -> Path:
        """The untouched file that an edited data set was made from; any other file itself."""
        return source_of(path, self._locations.data)

    def report(self, path: Path, choice: DataChoice, method: Method | None = None) -> DataReport:
        """The report of the whole file for a method (None: the one that suits its rows)."""
        return self._files.check(path, choice).under(method).report

    def know(self, kept: KeptFile) -> None:
        """Tells the reader the hash of a file that was just kept, which it then need not compute."""
        self._files.know(kept)

    def first_look(self, path: Path, choice: DataChoice, seconds: float = 0.0) -> DataReport:
        """The report of the first rows, within a second (``complete`` is False then), or of the whole file where it is
        read within ``seconds``."""
        return self._files.look(path, choice, seconds).report

    def check(self, path: Path, choice: DataChoice, on_progress: Progress, cancelled: Cancelled) -> DataReport:
        """The report of the whole file, with progress (bytes read, bytes in all, rows so far); ``data.stopped`` when
        cancelled."""
        return self._files.check(path, choice, on_progress, cancelled).report

    def mix(
        self,
        parts: Sequence[tuple[Path, DataChoice, float]],
        name: str,
        seed: int,
        on_progress: Progress = no_progress,
        cancelled: Cancelled = never,
    ) -> KeptFile:
        """Files mixed by weight into a made data set, each read under its own choice (see ``core.data.files.mix``)."""
        read = [(*self._files.check(path, choice, no_progress, cancelled), weight) for path, choice, weight in parts]
        request = {"do": "mix", "parts": PARTS.dump_python(parts_of(read), mode="json"), "name": name, "seed": seed}
        return self._maker.made(request, on_progress, cancelled)

    def from_hub(
        self,
        name: str,
        subset: str,
        split: str,
        rows_at_most: int,
        on_progress: Progress = no_progress,
        cancelled: Cancelled = never,
    ) -> KeptFile:
        """A data set of the hub as a made one; ``rows_at_most`` 0 takes all, progress is (rows, rows at most, rows).

        Raises:
            DataError: missing, gated, offline, no such subset or split, a full disk; ``data.stopped``.
        """
        asked = {"do": "hub", "name": name, "subset": subset, "split": split, "rows_at_most": rows_at_most}
        return self._maker.made(asked, on_progress, cancelled)

    def preview(
        self,
        path: Path,
        choice: DataChoice,
        tokenizer_folder: Path,
        max_length: int,
        *,
        offset: int = 0,
        limit: int = 20,
        search: str = "",
        rows: Sequence[int] = (),
        method: Method | None = None,
    ) -> Preview:
        """A page of rows as the model will see them; of a large file that is not checked yet, of its first rows.

        ``offset`` and ``limit`` count the rows that match. ``rows``: only those with these row numbers; empty means
        all, and these also where the method leaves them out. ``method``: instead of the one that suits the rows.
        """
        work = self._work(self._files.look(path, choice), choice, tokenizer_folder, method)
        request = work.request("preview") | {"max_length": max_length, "offset": offset, "limit": limit}
        request |= {"search": search, "numbers": list(rows)}
        request["entry"] = str(entry_of(self._locations, work.source).folder)
        return Preview.model_validate(self.renderer.ask(request))

    def facts(
        self,
        path: Path,
        choice: DataChoice,
        tokenizer_folder: Path,
        max_length: int,
        *,
        method: Method | None = None,
    ) -> DataFacts:
        """Lengths of all rows, or of a sample above 20,000 rows that are not all tokenised yet."""
        work = self._work(self._files.check(path, choice).under(method), choice, tokenizer_folder, method)
        return facts_of(self._tokens.measures(work), max_length, work.usable)

    def tokenise(
        self,
        path: Path,
        choice: DataChoice,
        tokenizer_folder: Path,
        on_progress: Callable[[int, int], None],
        cancelled: Callable[[], bool],
        *,
        method: Method | None = None,
    ) -> bool:
        """Tokenises every row for facts and run, with progress (rows done, rows in all); False when cancelled."""
        work = self._work(self._files.check(path, choice).under(method), choice, tokenizer_folder, method)
        return self._tokens.whole(work, on_progress, cancelled)

    def checkup(
        self,
        path: Path,
        choice: DataChoice,
        tokenizer_folder: Path | None,
        max_length: int,
        held_out: tuple[float, int, int],
        *,
        method: Method | None = None,
        on_progress: Callable[[int, int], None],
        cancelled: Cancelled,
    ) -> Checkup:
        """Problems of the rows, with progress (rows done, rows in all); lengths only where a tokenizer is given that
        takes the rows. ``held_out``: share, most rows and seed."""
        self._doctor.child.warm()  # it starts while the others read and tokenise
        file = self._files.check(path, choice, no_progress, cancelled)
        file = file._replace(report=file.report.under(method))
        share, most, seed = held_out
        tokens: dict[str, Any] = {"tokens": [], "max_length": max_length, "pairs": False}
        if tokenizer_folder is not None:
            with contextlib.suppress(DataError):
                work = self._work(file, choice, tokenizer_folder, method)
                entry = self._tokens.kept(work)
                parts = [str(entry.part(start)) for start in entry.starts()]
                tokens |= {"tokens": parts, "pairs": work.source.pairs}
        dealt = choice.model_copy(update={"eval_fraction": share, "eval_rows_max": most})
        return self._doctor.checkup(file, dealt, seed, tokens, on_progress, cancelled)

    def fix(self, path: Path, choice: DataChoice, fixes: Sequence[tuple[str, Sequence[int]]]) -> KeptFile:
        """A new data set with these findings (code and row numbers, none meaning all) fixed."""
        return self._doctor.fix(self._files.check(path, choice), fixes)

    def split_groups(self, path: Path, choice: DataChoice, method: Method | None = None) -> tuple[tuple[int, ...], ...]:
        """Groups of usable rows (counted from 0) that ``split_rows`` keeps on one side."""
        if not choice.eval_fraction:
            return ()
        file = self._files.check(path, choice).under(method)
        numbers = ExampleFile(Path(file.examples), file.report.left_out).numbers
        return tuple(map(tuple, places_of(numbers, self._doctor.groups(file, choice).rows)))

    def examples(
        self, path: Path, choice: DataChoice, indices: Sequence[int], method: Method | None = None
    ) -> list[Example]:
        """The usable rows with these indices, counted from 0, in the order given."""
        file = self._files.check(path, choice).under(method)
        kept = ExampleFile(Path(file.examples), file.report.left_out)
        return list(kept.at(index for index in indices if index < len(kept)))

    def numbered(self, path: Path, choice: DataChoice, numbers: Sequence[int]) -> list[Example]:
        """The rows with these row numbers, ascending, of those that any method can learn from."""
        kept = ExampleFile(Path(self._files.check(path, choice).examples))
        return list(kept.at(kept.matching("", numbers))) if numbers else []

    def _work(self, file: ReadFile, choice: DataChoice, tokenizer_folder: Path, method: Method | None) -> Work:
        report = file.report.under(method)
        reads = METHODS[method or report.method].reads(report.layout)
        folder = tokenizer_folder.resolve()
        # The first rows of a large file must never be taken for the whole file.
        content = report.sha256 if report.complete else f"{report.sha256} first {report.rows}"
        settled_choice = settled(choice, report.layout, report.mapping, reads)
        source = Source(content, file.name, settled_choice, folder, reads, report.left_out)
        return Work(source, file.examples, report.usable)
