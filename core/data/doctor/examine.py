"""The examination of a file: its rows are read once, then compared; then the findings are worded.

Memory grows by about 300 bytes a row.
"""

import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from core.contract.config import DataChoice
from core.contract.data import Checkup, Example, Finding
from core.data.doctor.findings import answers, languages, marks, repeats
from core.data.doctor.findings.answers import RowLength, length_findings
from core.data.doctor.findings.preferences import LabelRows, label_findings, marks_finding, swapped_finding
from core.data.doctor.findings.text_words import said_in, words_of
from core.data.doctor.findings.wording import LISTS
from core.data.doctor.found_rows import LISTED, keep_rows
from core.data.doctor.split_groups import KeptGroups, SplitGroups

_GRAVEST = ("fault", "warning", "note")


class Examination:
    """Takes rows in their order; ``steps`` then compares them, ``checkup`` returns the findings."""

    def __init__(self, folder: Path | None = None) -> None:
        """``folder``: for what is compared on disk, and for the rows of findings that have many."""
        self._groups, self._folder = SplitGroups(folder), folder
        self._begun = time.perf_counter()
        self._rows: dict[str, array[int]] = {}
        self._answer_sizes = array("Q")
        self._languages: Counter[str] = Counter()
        self._labels = LabelRows()

    def add(self, example: Example) -> None:
        """Looks at one row."""
        text = said_in(example)
        words = words_of(text)
        self._groups.add(example, words)
        language = languages.language_of(text, words)
        self._languages[language] += 1
        answer = answers.answer_of(example)
        self._labels.add(example)
        if answer is not None:
            self._answer_sizes.append(len(answer))
        noted = [f"language {language}", answers.system_of(example), *marks.marks_in(example)]
        if example.equal:
            noted.append("equal_pairs")
        if example.mark is not None:
            noted.append("marked good" if example.mark else "marked bad")
        if answers.has_empty_answer(example):
            noted.append("empty_answers")
        elif answers.is_one_word(example):
            noted.append("short_answers")
        texts = [turn.content for turn in example.messages] + [example.text, example.chosen, example.rejected]
        whole = "".join(texts).replace("\n", "")
        if not (whole.isascii() and whole.isprintable()):  # nearly all rows are both
            noted += ["non_printing"] if any(map(marks.has_unseen, texts)) else []
            noted += ["lost_letters"] if any(map(marks.has_damage, texts)) else []
        for what in noted:
            self._rows.setdefault(what, array("Q")).append(example.row)

    def steps(self) -> Iterator[float]:
        """Compares the rows; yields the share that is done."""
        yield from self._groups.steps()

    def kept_groups(self) -> KeptGroups:
        """Which rows belong together."""
        return self._groups.kept()

    def checkup(
        self, choice: DataChoice, seed: int = 0, max_length: int = 0, lengths: Iterable[RowLength] = ()
    ) -> Checkup:
        """The findings for a run of this choice and seed, gravest first; ``lengths``: of its rows, where known."""
        cut = length_findings(lengths, max_length, len(self._groups.rows))
        findings = map(self._listed, filter(None, self._findings(choice, seed, cut)))
        return Checkup(
            rows=len(self._groups.rows),
            findings=tuple(sorted(findings, key=lambda one: _GRAVEST.index(one.level))),
            languages={name: round(part, 4) for name, part in languages.shares(self._languages).items()},
            seconds=round(time.perf_counter() - self._begun, 2),
        )

    def _findings(self, choice: DataChoice, seed: int, lengths: list[Finding]) -> Iterator[Finding | None]:
        groups, whole = self._groups, len(self._groups.rows)
        yield repeats.exact_finding(groups.numbered(groups.repeats.exact()), whole)
        yield repeats.near_finding(groups.numbered(groups.alike), whole)
        conflicts = groups.repeats.conflicts()
        brief = sum(conflict.brief for conflict in conflicts)
        yield repeats.conflict_finding(groups.numbered([conflict.members for conflict in conflicts]), brief)
        yield swapped_finding(groups.numbered(groups.repeats.swapped()))
        yield marks_finding(len(self._noted("marked good")), len(self._noted("marked bad")))
        yield from label_findings(self._labels.rows())
        yield repeats.leak_finding(groups.rows, groups.groups(), choice, seed)
        yield from lengths
        for code in LISTS:
            yield LISTS[code].finding(code, self._noted(code), whole)
        yield marks.debris_finding(self._noted("html"), self._noted("markdown"), whole)
        yield answers.short_finding(self._noted("short_answers"), self._answer_sizes)
        having = sorted(self._noted("system") + self._noted("late_system"))
        yield answers.system_finding(self._noted("no_system"), having, choice.system_prompt)
        rows_of = {name: self._noted(f"language {name}") for name in self._languages}
        yield languages.language_finding(rows_of, self._languages)

    def _listed(self, one: Finding) -> Finding:
        """The finding with as many rows as it lists, and all others in a file."""
        if len(one.rows) <= LISTED:
            return one
        kept = keep_rows(self._folder, one.rows) if self._folder else ""
        return one.model_copy(update={"rows": one.rows[:LISTED], "kept": kept})

    def _noted(self, what: str) -> list[int]:
        return self._rows.get(what, array("Q")).tolist()
