"""The safe fixes: a data set made of another, and a record of what was done to which rows.

Always in this order: texts are cleaned, rows with empty answers left out, then repeated rows but for the first.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.contract.data import Example
from core.contract.errors import DataError
from core.data.doctor.findings.answers import has_empty_answer
from core.data.doctor.findings.marks import cleaned
from core.data.doctor.findings.repeats import digest_of

FIXES = {
    "non_printing": "cleaned of characters that nobody sees",
    "empty_answers": "left out: empty answer",
    "exact_duplicates": "left out: repeats an earlier row",
}


@dataclass
class Fixing:
    """``fixes``: findings with the row numbers to fix, none meaning all. When ``rows`` is exhausted, ``done`` holds the
    row numbers of each fix.

    Raises:
        DataError: a finding has no safe fix.
    """

    fixes: Sequence[tuple[str, Sequence[int]]]
    read: int = 0
    written: int = 0
    done: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = [code for code, _ in self.fixes if code not in FIXES]
        if unknown or not self.fixes:
            raise DataError("data.no_fix", named=", ".join(unknown) or "none")
        self._among = {code: frozenset(rows) for code, rows in self.fixes}

    def rows(self, examples: Iterable[Example]) -> Iterator[Example]:
        """The fixed rows, numbered as they were."""
        seen: set[int] = set()
        for example in examples:
            self.read += 1
            fixed = self._fixed(example, seen)
            if fixed is not None:
                self.written += 1
                yield fixed

    def origin(self, source: dict[str, Any]) -> dict[str, Any]:
        """What was done, for ORIGIN.json; ``source`` says to what."""
        done = [
            {"finding": code, "what": FIXES[code], "count": len(rows), "rows": rows} for code, rows in self.done.items()
        ]
        return {"made": "mended", "from": source, "rows_read": self.read, "rows": self.written, "done": done}

    def _fixed(self, example: Example, seen: set[int]) -> Example | None:
        if self._asked("non_printing", example):
            clean = cleaned(example)
            if clean != example:
                self._note("non_printing", example)
                if not _is_learned_from(clean):
                    return None  # all that it said was invisible
                example = clean
        if self._asked("empty_answers", example) and has_empty_answer(example):
            self._note("empty_answers", example)
            return None
        if "exact_duplicates" in self._among:
            digest = digest_of(example)
            if digest in seen and self._asked("exact_duplicates", example):
                self._note("exact_duplicates", example)
                return None
            seen.add(digest)
        return example

    def _asked(self, code: str, example: Example) -> bool:
        return code in self._among and (not self._among[code] or example.row in self._among[code])

    def _note(self, code: str, example: Example) -> None:
        self.done.setdefault(code, []).append(example.row)


def _is_learned_from(example: Example) -> bool:
    """Whether the reader would still take a cleaned row."""
    if example.text or not example.messages:
        return bool(example.text.strip())
    if example.chosen or example.rejected:
        return "" not in (example.chosen.strip(), example.rejected.strip()) and example.chosen != example.rejected
    return any(turn.role == "assistant" and (turn.content.strip() or turn.tool_calls) for turn in example.messages)
