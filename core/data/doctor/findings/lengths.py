"""Rows under the length limit: which are cut, and of which no trained token is left."""

from collections.abc import Iterable
from dataclasses import dataclass

from core.contract.findings import Finding
from core.data.doctor.findings.wording import finding, how_many, share


@dataclass(frozen=True)
class RowLength:
    """A row's uncut tokens, and its trained tokens within the limit. Raw text is never cut: it goes on in rows."""

    row: int
    tokens: int
    trained: int


def length_findings(lengths: Iterable[RowLength], max_length: int, whole: int) -> list[Finding]:
    """What the limit does to the rows. ``whole``: all rows of the file, where these are a sample of it."""
    long_rows: list[int] = []
    gone: list[int] = []
    measured = lost = longest = tokens = 0
    for item in lengths:
        measured += 1
        tokens += item.tokens
        longest = max(longest, item.tokens)
        if item.tokens > max_length:
            long_rows.append(item.row)
            lost += item.tokens - max_length
            if not item.trained:
                gone.append(item.row)
    of = f" of {how_many(measured, 'row')} looked at" if measured < whole else ""
    findings = []
    if long_rows:
        text = (
            f"{how_many(len(long_rows), 'row is', 'rows are')} longer than {max_length:,} tokens and cut there "
            f"({share(len(long_rows), measured)}{of}): {lost:,} tokens ({share(lost, tokens)}) are not learned from. "
            f"The longest has {longest:,}."
        )
        findings.append(finding("long_rows", "warning" if 20 * len(long_rows) > measured else "note", text, long_rows))
    if gone:
        text = (
            f"{how_many(len(gone), 'row has', 'rows have')} no answer left within {max_length:,} tokens "
            f"({share(len(gone), measured)}{of}): nothing is learned there. Allow longer examples, or shorten the "
            "questions."
        )
        findings.append(finding("answer_cut", "fault" if 20 * len(gone) > measured else "warning", text, gone))
    return findings
