"""Which words of two answers differ, in a time bounded by their length."""

import re
from typing import Any

import numpy as np

_WORD = re.compile(r"\w+|[^\w\s]")
_MOST_WORDS = 2_000
"""So many words of each answer are compared; what follows is shown without a comparison."""
_LEAST_SHARE = 0.2
_SHORTEST_RUN = 3
"""Fewer common words between two differences are chance, and count as part of them."""
Ranges = list[tuple[int, int]]


def differing(one: str, other: str) -> tuple[Ranges, Ranges]:
    """The character ranges of each text that the other has not, ascending: what a longest common subsequence of words
    leaves over, neighbouring words joined. Case and blanks do not count. Of answers that share less than a fifth of the
    shorter one's words nothing is given: there, all differs.

    Takes O(N · M) steps of one numpy operation each for N and M words, at most 2,000 of each.
    """
    sides = [list(_WORD.finditer(text))[:_MOST_WORDS] for text in (one, other)]
    common = _common(*([word[0].casefold() for word in side] for side in sides))
    kept: list[list[bool]] = [[False] * len(side) for side in sides]
    for run in _runs(common):
        edge = run[0] == (0, 0) or run[-1] == (len(sides[0]) - 1, len(sides[1]) - 1)
        if edge or len(run) >= _SHORTEST_RUN:
            for places in run:
                for side, place in zip(kept, places, strict=True):
                    side[place] = True
    if sum(kept[0]) < _LEAST_SHARE * min(map(len, sides)):
        return [], []
    return _ranges(sides[0], kept[0]), _ranges(sides[1], kept[1])


def _common(one: list[str], other: list[str]) -> list[tuple[int, int]]:
    """Pairs of places of a longest common subsequence, ascending."""
    numbers: dict[str, int] = {}
    left, right = (np.array([numbers.setdefault(word, len(numbers)) for word in words], int) for words in (one, other))
    # best[i, j]: the longest of the first i and j words; at most 2,000, so that 16 bits hold it.
    best = np.zeros((len(left) + 1, len(right) + 1), np.uint16)
    for row, word in enumerate(left):
        longer = np.maximum(best[row, 1:], best[row, :-1] + (right == word))
        best[row + 1, 1:] = np.maximum.accumulate(longer)
    places: list[tuple[int, int]] = []
    i, j = len(left), len(right)
    while i and j:
        if left[i - 1] == right[j - 1]:
            i, j = i - 1, j - 1
            places.append((i, j))
        elif best[i - 1, j] >= best[i, j - 1]:
            i -= 1
        else:
            j -= 1
    return places[::-1]


def _runs(places: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Places that follow each other on both sides."""
    runs: list[list[tuple[int, int]]] = []
    for place in places:
        if runs and runs[-1][-1] == (place[0] - 1, place[1] - 1):
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _ranges(words: list[re.Match[str]], kept: list[bool]) -> Ranges:
    ranges: Ranges = []
    before: Any = None
    for number, (word, common) in enumerate(zip(words, kept, strict=True)):
        if common:
            continue
        if ranges and before == number - 1:
            ranges[-1] = (ranges[-1][0], word.end())
        else:
            ranges.append(word.span())
        before = number
    return ranges
