"""What a method asks of a whole file, said before anything is loaded."""

from pathlib import Path

from core.contract.data import DataReport
from core.contract.errors import ConfigError, DataError
from core.contract.methods import DEFAULT_METHOD, EQUAL, METHODS, Method


def report_for(report: DataReport, method: Method | None = None) -> DataReport:
    """The report under a method (None: the one that suits the rows), with at least one row to learn from.

    Raises:
        DataError: nothing in the whole file can be learned so.
    """
    method = method or report.method
    learning, found = METHODS[method], report.under(method)
    if not found.complete or not learning.takes(found.layout):
        return found
    name = Path(found.path).name
    if not found.usable:
        kinds, first, columns = {rows.code for rows in found.skipped}, found.problems[0], ", ".join(found.columns[:20])
        if kinds == {EQUAL}:
            raise DataError("data.pairs_equal", rows=found.rows, name=name)
        raise DataError(
            "data.nothing/rows", rows=found.rows, name=name, row=first.row, text=first.text, columns=columns
        )  # fmt: skip
    if learning.marked and found.marks:
        good, bad = found.marks.rows
        if not (good and bad):
            mark, other = ("good", "bad") if good else ("bad", "good")
            raise DataError("data.marks_one_sided", name=name, rows=good + bad, mark=mark, other=other)
    return found


def unsuited(method: Method, report: DataReport) -> ConfigError:
    """That a method learns from other rows than these."""
    return ConfigError(
        "config.method",
        wants=METHODS[method].wants,
        method=method,
        layout=report.layout,
        name=Path(report.path).name,
        default=DEFAULT_METHOD,
    )
