"""Malformed files through the real reader: each one is answered in time and in one line, and the reader stays small.

A draw by default; 7,000 of them with ``-m slow``. ``-s`` shows the counts, the worst time and the worst memory.
"""

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from malformed import corpus, mutated
from whole_rows import peak_bytes

from core.contract.config import DataChoice, Layout
from core.contract.data import DataReport
from core.contract.errors import DataError
from core.contract.rows import RowTable, RowWish
from core.data.files.example_file import ExampleFile
from core.data.service.data_service import DataService

LAYOUTS = get_args(Layout)


class Trial:
    """One service asked about file after file, and what is counted on the way."""

    def __init__(self, service: DataService, folder: Path) -> None:
        self.service = service
        self.folder = folder
        self.counts: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.bytes: list[int] = []

    def put(self, suffix: str, content: bytes, layout: Any = "auto", columns: dict[str, str] | None = None) -> None:
        """Asks about one file and holds the answer to the rules."""
        path = self.folder / f"file-{self.counts.total()}{suffix}"
        path.write_bytes(content)
        choice = DataChoice(layout=layout, columns=columns or {})
        begun = time.monotonic()
        found = self._ask(self.service.report, path, choice)
        self.seconds.append(time.monotonic() - begun)
        if getattr(found, "code", "") == "data.labels":  # no classes: then its labels are answers
            found = self._ask(lambda path, choice: self.service.report(path, choice, "sft"), path, choice)
        # Answers of one mark only are known when the whole file was read.
        if not self.counts.total() % 4 and getattr(found, "code", "") != "data.marks_one_sided":
            assert str(self._ask(self.service.first_look, path, choice)) == str(found)
        self._judge_table(found, path, choice)
        if isinstance(found, DataError):
            self._judge_error(found, path)
        else:
            self._judge_report(found, path, choice)
        if self.service.reader.pid:
            self.bytes.append(peak_bytes(self.service))
        path.unlink()

    def _ask(self, ask: Callable[[Path, DataChoice], Any], path: Path, choice: DataChoice) -> Any:
        try:
            return ask(path, choice)
        except DataError as error:
            return error

    def _judge_error(self, error: DataError, path: Path) -> None:
        self.counts[error.code] += 1
        said = str(error)
        assert error.code != "data.unexpected", said
        assert path.name in said
        assert said.isprintable()
        assert "Traceback" not in said
        assert len(said) < 1500

    def _judge_report(self, report: DataReport, path: Path, choice: DataChoice) -> None:
        self.counts["read"] += 1
        assert 0 <= report.usable <= report.rows
        assert report.usable or report.left_out
        assert len(report.problems) == min(200, report.rows - report.usable)
        for problem in report.problems:
            assert problem.row >= 1
            assert problem.text.isprintable()
            assert 0 < len(problem.text) <= 300
        assert report.reason.isprintable()
        kept = ExampleFile(Path(self.service._files.check(path, choice)[1]), report.left_out)
        rows = [example.row for example in kept.at(range(len(kept)))]
        assert len(rows) == report.usable
        assert rows == sorted(set(rows))
        assert not set(rows) & {problem.row for problem in report.problems}

    def _judge_table(self, found: Any, path: Path, choice: DataChoice) -> None:
        """The raw rows are those of the report, and those without a reason are those that it uses."""
        self._ask(self.service.roles, path, choice)
        table = self._ask(self._whole, path, choice)
        if isinstance(table, DataError):
            assert isinstance(found, DataError)
            self._judge_error(table, path)
            return
        assert sum(len(text) for row in table.rows for text in row.cells.values()) < 8 << 20
        if not isinstance(found, DataError):
            assert table.rows_in_file == found.rows
            without = [row.row for row in table.rows if row.problem]
            assert without[: len(found.problems)] == [one.row for one in found.problems][: len(without)]

    def _whole(self, path: Path, choice: DataChoice) -> RowTable:
        while not (table := self.service.table(path, choice, RowWish(count=500))).complete:
            pass
        return table

    def close(self) -> None:
        """Holds all of the trial to the limits."""
        told = ", ".join(f"{code} {count:,}" for code, count in self.counts.most_common())
        worst, most = max(self.seconds[1:]), max(self.bytes) >> 20  # the first waits for the reader's start
        print(f"\n{self.counts.total():,} files: {told}; worst {worst:.2f} s, {most} MB above idle")
        assert worst < 5
        assert most < 500


@pytest.fixture
def trial(warm_service: DataService, tmp_path: Path) -> Trial:
    return Trial(warm_service, tmp_path)


def test_the_seeds_are_well_formed(trial: Trial) -> None:
    for suffix, content in corpus():
        trial.put(suffix, content)
    trial.close()
    assert len(corpus()) >= 55
    assert trial.counts["read"] >= 50


@pytest.mark.parametrize("count", [70, pytest.param(7_000, marks=pytest.mark.slow)])
def test_mutated_files(trial: Trial, count: int) -> None:
    for number in range(count):
        drawn = random.Random(f"malformed {number}")
        suffix, content = mutated(drawn)
        layout = drawn.choice(LAYOUTS) if drawn.random() < 0.3 else "auto"
        columns = {"text": drawn.choice(["text", "a", "column 1"])} if drawn.random() < 0.1 else {}
        trial.put(suffix, content, layout, columns)
    trial.close()
    assert trial.counts["read"] > count // 10
    assert len(trial.counts) >= 5
