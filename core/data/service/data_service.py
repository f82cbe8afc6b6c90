"""The data room for the window: warm children that can be killed, and nothing heavy here.

The reader (pyarrow) turns a person's file into Examples in the cache; the renderer (transformers) shows and measures
them under a template. A hostile file or template ends its child and gives one line.
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice
from core.contract.data import Checkup, DataFacts, DataReport, Example, Preview
from core.contract.errors import DataError
from core.contract.methods import METHODS, Method
from core.data.files.disk_room import sweep
from core.data.files.example_file import ExampleFile
from core.data.files.keep import KeptFile
from core.data.files.mix import PARTS, parts_of
from core.data.service.doctor import Doctor, Maker
from core.data.service.reader import READER, Cancelled, Progress, Reader, ReadFile, never, no_progress
from core.data.service.tokenising import Tokenising, Work
from core.data.tokens.cache import Source, entry_of, settled
from core.data.tokens.facts import facts_of
from core.machine.children.pipe import Child, Limits
from core.machine.locations import Locations

_RENDERER = Limits(seconds=60, start_seconds=60, memory_bytes=4 << 30)
"""One row may be of four million emoji, which take 3 GB to tokenise; what a template may take is limited in there."""


class DataService:
    """What the window asks of a data file. Thread-safe; every method may raise DataError."""

    def __init__(self, locations: Locations, guarded: bool = False) -> None:
        """``guarded``: paths may come from a browser, and a refusal does not tell whether anything lies there."""
        self._locations = locations
        self.reader = Child("core.data.service.reader_child", "reader", READER)
        self.renderer = Child("core.data.service.renderer_child", "renderer", _RENDERER)
        self._files = Reader(self.reader, locations, guarded)
        self._maker = Maker(locations)
        self._tokens = Tokenising(self.renderer, locations)
        self._doctor = Doctor(locations)

    def warm(self) -> None:
        """Starts both children without waiting for them."""
        self.reader.warm()
        self.renderer.warm()

    def close(self) -> None:
        """Ends all children for good; what they left half written goes."""
        self._maker.close()
        self.reader.close()
        self.renderer.close()
        self._doctor.child.close()
        sweep((self._locations.cache / "data").glob("*.part"))

    def columns(self, path: Path) -> tuple[str, ...]:
        """The columns of a file, for mapping by hand where its layout is not recognised."""
        return self._files.columns(path)

    def report(self, path: Path, choice: DataChoice) -> DataReport:
        """What is in a file: rows, usable rows, layout and why, and the first 200 problems."""
        return self._files.check(path, choice).report

    def know(self, kept: KeptFile) -> None:
        """Tells the reader what it would find out by hashing: what it knows by content it need not read again."""
        self._files.know(kept)

    def first_look(self, path: Path, choice: DataChoice, seconds: float = 0.0) -> DataReport:
        """The same of a large file's first rows, within a second (``complete`` is False then), or of the whole where
        it is read within ``seconds``."""
        return self._files.look(path, choice, seconds).report

    def check(self, path: Path, choice: DataChoice, on_progress: Progress, cancelled: Cancelled) -> DataReport:
        """The whole file, with (bytes read, bytes in all, rows so far); DataError ``data.stopped`` when cancelled."""
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
        """A page of rows as the model will see them; ``offset`` and ``limit`` count the rows that match.

        Of a large file that is not checked yet, the first rows. ``rows``: only those with these numbers in the file
        (what the doctor found); empty means all. ``method``: how preference rows are trained, where that is not as the
        report says.
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
        """Lengths of all rows (above 20,000, until they are tokenised whole: of a sample), for any length at once."""
        work = self._work(self._files.check(path, choice), choice, tokenizer_folder, method)
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
        """Has every row tokenised and kept for facts and run; (rows done, rows in all); False when cancelled."""
        work = self._work(self._files.check(path, choice), choice, tokenizer_folder, method)
        return self._tokens.whole(work, on_progress, cancelled)

    def checkup(
        self,
        path: Path,
        choice: DataChoice,
        tokenizer_folder: Path | None,
        max_length: int,
        held_out: tuple[float, int, int],
        *,
        on_progress: Callable[[int, int], None],
        cancelled: Cancelled,
    ) -> Checkup:
        """What is wrong with the rows; ``held_out``: share, rows at most and seed; (rows done, rows in all).

        Lengths are looked at where a tokenizer is given that takes the rows: of all rows that are tokenised by then.
        """
        self._doctor.child.warm()  # it starts while the others read and tokenise
        file = self._files.check(path, choice, no_progress, cancelled)
        share, most, seed = held_out
        tokens: dict[str, Any] = {"tokens": [], "max_length": max_length, "pairs": False}
        if tokenizer_folder is not None:
            with contextlib.suppress(DataError):
                work = self._work(file, choice, tokenizer_folder, None)
                entry = self._tokens.kept(work)
                parts = [str(entry.part(start)) for start in entry.starts()]
                tokens |= {"tokens": parts, "pairs": work.source.pairs}
        dealt = choice.model_copy(update={"eval_fraction": share, "eval_rows_max": most})
        return self._doctor.checkup(file, dealt, seed, tokens, on_progress, cancelled)

    def fix(self, path: Path, choice: DataChoice, fixes: Sequence[tuple[str, Sequence[int]]]) -> KeptFile:
        """A new made data set with these findings (code, rows; no rows: all that it names) fixed."""
        return self._doctor.fix(self._files.check(path, choice), fixes)

    def split_groups(self, path: Path, choice: DataChoice) -> tuple[tuple[int, ...], ...]:
        """Groups of usable rows (counted from 0) that ``split_rows`` keeps on one side."""
        if not choice.eval_fraction:
            return ()
        return self._doctor.groups(self._files.check(path, choice), choice).places

    def examples(self, path: Path, choice: DataChoice, indices: Sequence[int]) -> list[Example]:
        """The usable rows with these numbers (counted from 0, as ``split_rows`` counts), in the order asked."""
        kept = ExampleFile(Path(self._files.check(path, choice).examples))
        return list(kept.at(index for index in indices if index < len(kept)))

    def numbered(self, path: Path, choice: DataChoice, numbers: Sequence[int]) -> list[Example]:
        """The usable rows that have these numbers in the file, ascending."""
        kept = ExampleFile(Path(self._files.check(path, choice).examples))
        return list(kept.at(kept.matching("", numbers))) if numbers else []

    def _work(self, file: ReadFile, choice: DataChoice, tokenizer_folder: Path, method: Method | None) -> Work:
        report = file.report
        learning = METHODS[method or report.method]
        pairs = learning.answers > 1 and learning.takes(report.layout)
        folder = tokenizer_folder.resolve()
        # The first look at a large file is no whole file: its rows are never taken for those of one.
        content = report.sha256 if report.complete else f"{report.sha256} first {report.rows}"
        settled_choice = settled(choice, report.layout, report.mapping)
        source = Source(content, file.name, settled_choice, folder, pairs)
        return Work(source, file.examples, report.usable)
