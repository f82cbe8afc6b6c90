"""The examination of a file: one pass over its rows, then the comparing, then the findings in words.

Between two rows, and between two steps of the comparing, whoever asked may hear how far it is. Memory grows by about
300 bytes a row.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from core.contract.config import DataChoice
from core.contract.data import Example
from core.contract.findings import Checkup, Finding
from core.data.doctor.findings import answers, letters, marks, near, repeats
from core.data.doctor.findings import languages as tongues
from core.data.doctor.findings.lengths import RowLength, length_findings
from core.data.doctor.findings.words import said_in, words_of
from core.data.doctor.kept_groups import KeptGroups
from core.data.doctor.split_groups import SplitGroups

__all__ = ["Examination", "Setting", "examine"]


@dataclass(frozen=True)
class Setting:
    """What the rows are examined for: the run's choice and seed, and its rows' lengths where they are known."""

    choice: DataChoice = field(default_factory=DataChoice)
    seed: int = 0
    max_length: int = 0
    lengths: Iterable[RowLength] = field(default=(), repr=False)
    """Read once, at the end."""


class Examination:
    """Rows are added in their order; ``steps`` then compares them, and ``checkup`` says what was found."""

    def __init__(self, setting: Setting, folder: Path | None = None) -> None:
        self.setting = setting
        self.kin = SplitGroups(folder)
        self._begun = time.perf_counter()
        self._rows: dict[str, array[int]] = {}
        self._answer_sizes = array("Q")
        self._languages: Counter[str] = Counter()

    def add(self, example: Example) -> None:
        """Looks at one row."""
        text = said_in(example)
        words = words_of(text)
        self.kin.add(example, words)
        language = tongues.language_of(text, words)
        self._languages[language] += 1
        self._note(f"language {language}", example)
        for kind in marks.marks_in(example):
            self._note(f"marks {kind}", example)
        self._look_at_letters(example)
        self._look_at_answers(example)

    def steps(self) -> Iterator[float]:
        """Compares the rows; yields the share that is done."""
        yield from self.kin.steps()

    def kinship(self) -> KeptGroups:
        """Which rows belong together."""
        return KeptGroups.of(self.kin.groups(), self.kin.rows)

    def checkup(self) -> Checkup:
        """What was found, the gravest first."""
        order = {"fault": 0, "warning": 1, "note": 2}
        found = sorted((item for item in self._findings() if item), key=lambda item: order[item.level])
        return Checkup(
            rows=len(self.kin.rows),
            findings=tuple(found),
            languages={name: round(part, 4) for name, part in tongues.shares(self._languages).items()},
            seconds=round(time.perf_counter() - self._begun, 2),
        )

    def _findings(self) -> Iterator[Finding | None]:
        kin, whole = self.kin, len(self.kin.rows)
        yield repeats.exact_finding(kin.numbered(kin.repeats.exact()), whole)
        yield near.near_finding(kin.numbered(kin.alike), whole)
        conflicts = kin.repeats.conflicts()
        brief = sum(conflict.brief for conflict in conflicts)
        yield repeats.conflict_finding(kin.numbered(conflict.members for conflict in conflicts), brief)
        yield near.leak_finding(kin.rows, kin.groups(), self.setting.choice, self.setting.seed)
        yield answers.empty_finding(self._noted("empty"), whole)
        yield answers.short_finding(self._noted("one word"), self._answer_sizes)
        having = sorted(self._noted("system first") + self._noted("system late"))
        yield answers.system_finding(self._noted("system none"), having, self.setting.choice.system_prompt)
        yield answers.late_system_finding(self._noted("system late"))
        yield from length_findings(self.setting.lengths, self.setting.max_length, whole)
        yield marks.chat_finding(self._noted("marks chat"), whole)
        yield marks.phrase_finding(self._noted("marks phrase"), whole)
        yield marks.debris_finding(self._noted("marks html"), self._noted("marks markdown"), whole)
        yield letters.unseen_finding(self._noted("unseen"), whole)
        yield letters.damaged_finding(self._noted("damaged"), whole)
        yield tongues.language_finding(
            {name: self._noted(f"language {name}") for name in self._languages}, self._languages
        )

    def _look_at_letters(self, example: Example) -> None:
        texts = [turn.content for turn in example.messages]
        texts += [text for text in (example.text, example.chosen, example.rejected) if text]
        whole = "".join(texts).replace("\n", "")
        if whole.isascii() and whole.isprintable():
            return  # as nearly all are
        if any(map(letters.has_unseen, texts)):
            self._note("unseen", example)
        if any(map(letters.has_damage, texts)):
            self._note("damaged", example)

    def _look_at_answers(self, example: Example) -> None:
        answer = answers.answer_of(example)
        if answer is not None:
            self._answer_sizes.append(len(answer))
        if answers.has_empty_answer(example):
            self._note("empty", example)
        elif answers.is_one_word(example):
            self._note("one word", example)
        if place := answers.system_of(example):
            self._note(f"system {place}", example)

    def _note(self, what: str, example: Example) -> None:
        self._rows.setdefault(what, array("Q")).append(example.row)

    def _noted(self, what: str) -> list[int]:
        return self._rows.get(what, array("Q")).tolist()


def examine(examples: Iterable[Example], setting: Setting = Setting()) -> Checkup:
    """The whole examination at once."""
    examination = Examination(setting)
    for example in examples:
        examination.add(example)
    for _ in examination.steps():
        pass
    return examination.checkup()
