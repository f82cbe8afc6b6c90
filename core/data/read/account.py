"""What reading a file came to, in lines for the command line: layout and why (with what is not read), and
rows left out."""

from collections.abc import Iterator

from core.contract.data import DataFacts, DataReport, SkippedRows
from core.data.read.layouts import LAYOUT_NAMES


def account_lines(report: DataReport) -> tuple[str, ...]:
    """All that a person should know of how a file was read, most important first."""
    return tuple(_lines(report))


def skipped_line(skipped: SkippedRows) -> str:
    """Rows left out for one reason: how many, and the first of them."""
    rows = "1 row is" if skipped.rows == 1 else f"{skipped.rows:,} rows are"
    first = f"row {skipped.first_row:,}" if skipped.rows == 1 else f"first row {skipped.first_row:,}"
    return f"{rows} left out: {skipped.text} ({first})."


def refused_lines(facts: DataFacts) -> tuple[str, ...]:
    """What the model's chat template refuses of rows that were read."""
    if not facts.refused:
        return ()
    rows = "1 row" if facts.refused == 1 else f"{facts.refused:,} rows"
    looked = f", of the {len(facts.lengths) + facts.refused:,} looked at," if facts.sampled else ""
    return (f"The chat template refuses {rows}{looked} and they are left out: {facts.why.rstrip('.')}.",)


def _lines(report: DataReport) -> Iterator[str]:
    yield f"Read as {LAYOUT_NAMES[report.layout]}: {report.reason.rstrip('.')}."
    seen = "rows" if report.complete else "rows looked at so far"
    yield f"{report.usable:,} of {report.rows:,} {seen} can be trained on."
    yield from (skipped_line(skipped) for skipped in report.skipped)
