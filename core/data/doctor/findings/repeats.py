"""Findings on repeated rows, conflicting answers, near duplicates, and held-out rows that are nearly trained on.

Rows are compared by 64-bit digests of their texts in NFC with white space joined; case counts. Among a million rows two
different ones have the same digest once in 37 million files.
"""

from __future__ import annotations

import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

import numpy as np

from core.contract.config import DataChoice
from core.contract.data import Example, Finding
from core.data.deal.split import held_out_rows, split_rows
from core.data.doctor.findings.answers import answer_of
from core.data.doctor.findings.wording import finding, how_many, is_often, share

_FEW_WORDS = 3


def normal(text: str) -> str:
    """NFC, white space joined."""
    joined = " ".join(text.split())
    return joined if joined.isascii() else unicodedata.normalize("NFC", joined)


def digest_of(example: Example) -> int:
    """64 bits that are equal for equal rows."""
    return _digest_of(example, [normal(turn.content) for turn in example.messages])


@dataclass(frozen=True)
class Conflict:
    """Positions of rows that answer one question in different ways; ``brief``: in at most three words."""

    members: tuple[int, ...]
    brief: bool


class Repeats:
    """Digests of rows, which are counted from 0 in the order added."""

    def __init__(self) -> None:
        self._first: set[int] = set()
        self._rows, self._questions, self._openings = array("Q"), array("Q"), array("Q")
        self._answers, self._refused = array("Q"), array("Q")
        self._brief, self._marks = bytearray(), bytearray()

    def add(self, example: Example) -> bool:
        """Takes a row; returns whether none like it came before."""
        contents = [normal(turn.content) for turn in example.messages]
        digest = _digest_of(example, contents)
        self._rows.append(digest)
        answer = answer_of(example) or ""
        self._answers.append(_digest(normal(answer)))
        self._refused.append(_digest(normal(example.rejected)) if example.rejected else 0)
        self._questions.append(_question(example, contents) if answer else 0)
        self._openings.append(_opening(example, contents))
        self._marks.append(0 if example.mark is None else 1 + example.mark)
        self._brief.append(len(answer) <= 60 and len(answer.split()) <= _FEW_WORDS)
        if digest in self._first:
            return False
        self._first.add(digest)
        return True

    def exact(self) -> list[list[int]]:
        """Groups of rows that are the same."""
        return sorted(_equal(self._rows))

    def openings(self) -> list[list[int]]:
        """Groups of conversations that begin with the same exchange."""
        most = self._most()
        return [group for group in _equal(self._openings) if len(group) <= most]

    def questions(self) -> list[list[int]]:
        """Groups of rows that ask the same. What very many rows ask is an instruction and no question."""
        most = self._most()
        return sorted(group for group in _equal(self._questions) if len(group) <= most)

    def conflicts(self) -> list[Conflict]:
        """Questions with different answers; of preferences, where one's chosen answer is another's rejected one (but
        for swapped pairs); of marked answers different good ones, or one that is marked good and bad."""
        conflicts = []
        swapped = {row for group in self.swapped() for row in group}
        for group in self.questions():
            chosen, refused = ({column[row] for row in group} for column in (self._answers, self._refused))
            rows = group if len(chosen) > 1 else []
            if any(refused):
                clash = chosen & refused
                rows = [row for row in group if self._answers[row] in clash or self._refused[row] in clash]
                rows = [row for row in rows if row not in swapped]
            elif any(self._marks[row] for row in group):
                bad, good = ({self._answers[row] for row in group if self._marks[row] == mark} for mark in (1, 2))
                clash = bad & good if len(good) < 2 else good
                rows = [row for row in group if self._answers[row] in clash]
            if len(rows) > 1:
                conflicts.append(Conflict(tuple(rows), all(self._brief[row] for row in rows)))
        return conflicts

    def swapped(self) -> list[list[int]]:
        """Groups of pairs with one prompt and the same two answers, better and worse exchanged among them."""
        groups = []
        for group in _equal(self._questions) if any(self._refused) else ():
            ways: dict[tuple[int, int], list[int]] = {}
            for row in group:
                ways.setdefault((self._answers[row], self._refused[row]), []).append(row)
            for (better, worse), rows in ways.items():
                if better < worse and (worse, better) in ways:
                    groups.append(sorted([*rows, *ways[worse, better]]))
        return sorted(groups)

    def _most(self) -> int:
        return max(20, len(self._rows) // 200)


def exact_finding(groups: Sequence[Sequence[int]], whole: int) -> Finding | None:
    """Repeated rows; ``groups`` hold row numbers. Listed are all but each group's first."""
    again = sorted(row for group in groups for row in group[1:])
    if not again:
        return None
    text = (
        f"{how_many(len(again), 'row repeats', 'rows repeat')} an earlier row word for word: what stands twice is "
        "learned twice as strongly, and by heart."
    )
    level: Literal["warning", "note"] = "warning" if is_often(again, whole) else "note"
    leave_out = f"Leave out {how_many(len(again), 'repeated row')}"
    return finding("exact_duplicates", level, text, again, groups, ("keep_first", leave_out))


def conflict_finding(groups: Sequence[Sequence[int]], brief: int) -> Finding | None:
    """Questions with different answers; ``groups`` hold row numbers, ``brief`` of them are answered in few words."""
    if not groups:
        return None
    rows = sorted(row for group in groups for row in group)
    text = (
        f"{how_many(len(groups), 'question is', 'questions are')} asked more than once and answered differently "
        f"({how_many(len(rows), 'row')}). Good where several answers are right; else the model learns none of them."
    )
    if brief:
        text += f" In a word or two, where only one answer can be right: {brief:,} of them."
    return finding("conflicting_answers", "warning" if brief else "note", text, rows, groups)


def near_finding(groups: Sequence[Sequence[int]], rows: int) -> Finding | None:
    """Near duplicates; ``groups`` hold row numbers."""
    if not groups:
        return None
    members = sorted(row for group in groups for row in group)
    text = (
        f"{how_many(len(members), 'row')} ({share(len(members), rows)}) in {how_many(len(groups), 'group')} say nearly "
        "the same (four fifths of their wording): they weigh more than others, and less is learned than the number of "
        "rows promises."
    )
    return finding("near_duplicates", "warning" if 20 * len(members) > rows else "note", text, members, groups)


def leaks(held_out: Sequence[int], groups: Sequence[Sequence[int]]) -> list[tuple[int, tuple[int, ...]]]:
    """Held-out positions with the positions of their group that are trained on."""
    held = set(held_out)
    leaking = []
    for group in groups:
        trained = tuple(row for row in group if row not in held)
        leaking += [(row, trained) for row in group if row in held and trained]
    return sorted(leaking)


def leak_finding(rows: Sequence[int], groups: Sequence[Sequence[int]], choice: DataChoice, seed: int) -> Finding | None:
    """How the split treats rows that belong together; ``groups`` are positions in ``rows`` (row numbers)."""
    if not groups or not held_out_rows(len(rows), choice):
        return None
    held = split_rows(len(rows), choice, seed, groups)[1]
    if leaking := leaks(held, groups):
        shown = [rows[row] for row, _ in leaking]
        pairs = [[rows[row], *(rows[other] for other in others)] for row, others in leaking]
        text = (
            f"{how_many(len(shown), 'held-out row says', 'held-out rows say')} nearly the same as rows that are "
            "trained on, and no other row is left to hold out: the held-out loss will look better than it is."
        )
        return finding("leakage", "warning", text, shown, pairs)
    singly = leaks(split_rows(len(rows), choice, seed)[1], groups)
    if not singly:
        return None
    shown = sorted({rows[row] for row, _ in singly})
    text = (
        f"{how_many(len(groups), 'group')} of rows that say nearly the same, or ask the same, are kept together: "
        f"all trained on, or all held out. Otherwise {how_many(len(shown), 'held-out row')} would have been seen in "
        "training, and the held-out loss would look better than it is."
    )
    pairs = [[rows[row], *(rows[other] for other in others)] for row, others in singly]
    return finding("leakage", "note", text, shown, pairs)


def _digest_of(example: Example, contents: list[str]) -> int:
    turns = zip(example.messages, contents, strict=True)
    parts = [part for turn, content in turns for part in (turn.role, content, turn.reasoning, turn.tool_calls)]
    mark = "" if example.mark is None else str(example.mark)
    return _digest(*parts, example.tools, *map(normal, (example.text, example.chosen, example.rejected)), mark)


def _question(example: Example, contents: list[str]) -> int:
    """A digest of all turns before the last answer; 0 where no user asks."""
    turns = list(zip(example.messages, contents, strict=True))
    if not example.chosen:
        while turns and turns[-1][0].role != "assistant":
            turns.pop()
        turns = turns[:-1]
    if not any(turn.role == "user" and content for turn, content in turns):
        return 0
    return _digest(
        *(part for turn, content in turns for part in (turn.role, content, turn.reasoning, turn.tool_calls)),
        example.tools,
    )


def _opening(example: Example, contents: list[str]) -> int:
    """A digest of the first exchange of a conversation; 0 where it is too short to be distinctive."""
    turns = zip(example.messages, contents, strict=True)
    said = [content for turn, content in turns if turn.role in ("user", "assistant")][:2]
    if len(said) < 2 or sum(map(len, said)) < 200:
        return 0
    return _digest(*said)


def _digest(*parts: str) -> int:
    whole = "\x00".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(whole, digest_size=8).digest(), "little") or 1


def _equal(digests: array[int]) -> Iterator[list[int]]:
    """Groups of positions with equal digests other than 0, ascending."""
    values = np.array(digests, np.uint64)
    order = np.argsort(values, kind="stable")
    edges = np.flatnonzero(np.diff(values[order])) + 1
    starts, stops = np.concatenate(([0], edges)), np.concatenate((edges, [len(order)]))
    for place in np.flatnonzero(stops - starts > 1):
        group: list[int] = order[starts[place] : stops[place]].tolist()
        if values[group[0]]:
            yield group
