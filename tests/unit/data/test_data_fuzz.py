"""Malformed files through the real reader: each one is answered in time and in one line, and the reader stays small.

A draw by default; all 10,000 with ``-m slow``. ``-s`` shows the counts, the worst time and the worst memory.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from malformed import corpus, mutated

from core.contract.config import DataChoice, Layout
from core.contract.data import DataReport, Example
from core.contract.errors import DataError
from core.data.service.data_service import DataService
from core.machine.locations import Locations

SECONDS = 5.0
MEMORY_BYTES = 500 << 20
MUTATED, MADE = 7_000, 3_000
LAYOUTS = get_args(Layout)


class Trial:
    """One service asked about file after file, and what is counted on the way."""

    def __init__(self, service: DataService, folder: Path) -> None:
        self.service = service
        self.folder = folder
        self.counts: Counter[str] = Counter()
        self.worst_seconds = 0.0
        self.worst_bytes = 0
        self.replaced = 0

    def put(self, suffix: str, content: bytes, layout: str = "auto", text: str = "") -> None:
        """Asks about one file and holds the answer to the rules."""
        number = sum(self.counts.values())
        path = self.folder / f"file-{number}{suffix}"
        path.write_bytes(content)
        choice = DataChoice(layout=layout, columns={"text": text} if text else {})  # type: ignore[arg-type]
        before = self.service.reader.pid
        start = time.monotonic()
        found = self._ask(self.service.report, path, choice)
        if before is not None:
            self.worst_seconds = max(self.worst_seconds, time.monotonic() - start)
            self.replaced += self.service.reader.pid != before
        if not number % 4:
            assert str(self._ask(self.service.first_look, path, choice)) == str(found)
        if isinstance(found, DataError):
            self._judge_error(found, path)
        else:
            self._judge_report(found, path, choice)
        self._weigh()
        path.unlink()

    def _ask(self, method: Any, path: Path, choice: DataChoice) -> DataReport | DataError:
        try:
            found: DataReport = method(path, choice)
        except DataError as error:
            return error
        return found

    def _judge_error(self, error: DataError, path: Path) -> None:
        self.counts[error.code] += 1
        said = str(error)
        assert error.code != "data.unexpected", said
        assert path.name in said
        assert "\n" not in said
        assert said.isprintable()
        assert "Traceback" not in said
        assert len(said) < 1500

    def _judge_report(self, report: DataReport, path: Path, choice: DataChoice) -> None:
        self.counts["read"] += 1
        assert 0 < report.usable <= report.rows
        assert len(report.problems) == min(200, report.rows - report.usable)
        for problem in report.problems:
            assert problem.row >= 1
            assert "\n" not in problem.text
            assert problem.text.isprintable()
            assert 0 < len(problem.text) <= 300
        assert report.reason.isprintable()
        lines = Path(self.service._files.check(path, choice)[1]).read_bytes().splitlines(keepends=False)
        examples = [Example.model_validate_json(line) for line in lines]
        assert len(examples) == report.usable
        rows = [example.row for example in examples]
        assert rows == sorted(set(rows))
        assert not set(rows) & {problem.row for problem in report.problems}

    def _weigh(self) -> None:
        pid = self.service.reader.pid
        if pid is not None:
            status = Path(f"/proc/{pid}/status").read_text().splitlines()
            peak = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
            self.worst_bytes = max(self.worst_bytes, peak - self.service.reader._idle_bytes)

    def close(self) -> None:
        """Holds all of the trial to the limits."""
        told = ", ".join(f"{code} {count:,}" for code, count in self.counts.most_common())
        print(
            f"\n{sum(self.counts.values()):,} files: {told}; worst {self.worst_seconds:.2f} s, "
            f"{self.worst_bytes >> 20} MB above idle; reader replaced {self.replaced} times"
        )
        assert self.worst_seconds < SECONDS
        assert self.worst_bytes < MEMORY_BYTES


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataService]:
    home = tmp_path_factory.mktemp("fuzz home")
    made = DataService(Locations(home).make())
    with contextlib.suppress(DataError):
        made.columns(home / "absent, so that the reader is there when its time is taken")
    yield made
    made.close()


@pytest.fixture
def trial(service: DataService, tmp_path: Path) -> Iterator[Trial]:
    made = Trial(service, tmp_path)
    yield made
    made.close()


def test_the_seeds_are_well_formed(trial: Trial) -> None:
    for suffix, content in corpus():
        trial.put(suffix, content)
    assert len(corpus()) >= 55
    assert trial.counts["read"] >= 50


@pytest.mark.parametrize("count", [110, pytest.param(MUTATED, marks=pytest.mark.slow)])
def test_mutated_files(trial: Trial, count: int) -> None:
    for number in range(count):
        drawn = random.Random(f"malformed {number}")
        suffix, content = mutated(drawn)
        layout = drawn.choice(LAYOUTS) if drawn.random() < 0.3 else "auto"
        trial.put(suffix, content, layout, drawn.choice(["text", "a", "column 1"]) if drawn.random() < 0.1 else "")
    assert trial.counts["read"] > count // 10
    assert len(trial.counts) >= 5
