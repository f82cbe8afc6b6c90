"""The safe fixes: a data set made of another, and a record of what was done to which rows.

Always in this order: texts are cleaned, labels written in one way, rows left out (empty answers, equal pairs, labels
seen once), then repeated rows but for the first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.contract.data import Example
from core.contract.errors import DataError
from core.data.doctor.findings.answers import has_empty_answer
from core.data.doctor.findings.marks import cleaned
from core.data.doctor.findings.preferences import spellings
from core.data.doctor.findings.repeats import digest_of

FIXES = {
    "non_printing": "cleaned of characters that nobody sees",
    "label_spellings": "given the usual spelling of their label",
    "empty_answers": "left out: empty answer",
    "equal_pairs": "left out: both answers are the same",
    "rare_labels": "left out: label seen once",
    "exact_duplicates": "left out: repeats an earlier row",
}


OF_LABELS = frozenset({"label_spellings", "rare_labels"})
"""Fixes that must know how often each label stands in the file."""


@dataclass
class Fixing:
    """``fixes``: findings with the row numbers to fix, none meaning all; ``labels``: rows of each label, for findings
    on labels. When ``rows`` is exhausted, ``done`` holds the row numbers of each fix.

    Raises:
        DataError: a finding has no safe fix.
    """

    fixes: Sequence[tuple[str, Sequence[int]]]
    labels: Mapping[str, int] = field(default_factory=dict)
    read: int = 0
    written: int = 0
    done: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = [code for code, _ in self.fixes if code not in FIXES]
        if unknown or not self.fixes:
            raise DataError("data.no_fix", named=", ".join(unknown) or "none")
        self._among = {code: frozenset(rows) for code, rows in self.fixes}
        self._spelled = {label: group[0] for group in spellings(self.labels) for label in group[1:]}

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
        if self._asked("label_spellings", example) and not self._spelled.keys().isdisjoint(example.labels):
            self._note("label_spellings", example)
            labels = tuple(dict.fromkeys(self._spelled.get(label, label) for label in example.labels))
            answer = example.messages[-1].model_copy(update={"content": ", ".join(labels)})
            messages = (*example.messages[:-1], answer)
            example = example.model_copy(update={"labels": labels, "label": answer.content, "messages": messages})
        wrong: dict[str, Callable[[Example], bool]] = {
            "empty_answers": has_empty_answer,
            "equal_pairs": lambda one: one.equal,
            "rare_labels": lambda one: any(self.labels.get(label) == 1 for label in one.labels),
        }
        for code, has in wrong.items():
            if self._asked(code, example) and has(example):
                self._note(code, example)
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
