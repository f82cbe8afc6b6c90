"""Rows under the length limit: which are cut, and of which no trained token is left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from core.contract.findings import Finding
from core.data.doctor.findings.wording import finding, how_many, rows_are, share

__all__ = ["RowLength", "length_findings"]


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
    return [
        *_long(long_rows, max_length, (lost, tokens, longest, measured), of),
        *_gone(gone, max_length, measured, of),
    ]


def _long(rows: list[int], max_length: int, counts: tuple[int, int, int, int], of: str) -> Iterable[Finding]:
    if not rows:
        return
    lost, tokens, longest, measured = counts
    text = (
        f"{rows_are(len(rows))} longer than {max_length:,} tokens and cut there ({share(len(rows), measured)}{of}): "
        f"{lost:,} tokens ({share(lost, tokens)}) are not learned from. The longest has {longest:,}."
    )
    yield finding("long_rows", "warning" if 20 * len(rows) > measured else "note", text, rows)


def _gone(rows: list[int], max_length: int, measured: int, of: str) -> Iterable[Finding]:
    if not rows:
        return
    text = (
        f"{rows_are(len(rows), 'has', 'have')} no answer left within {max_length:,} tokens "
        f"({share(len(rows), measured)}{of}): nothing is learned there. Allow longer examples, or shorten the "
        "questions."
    )
    yield finding("answer_cut", "fault" if 20 * len(rows) > measured else "warning", text, rows)
