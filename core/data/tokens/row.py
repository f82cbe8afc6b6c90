"""A row as tokens: the ids of its text, and which of them are trained.

The tokenizer gives, for every character, the token that holds it; so a character range becomes a token range. A token
that lies across the edge of an answer is trained, since part of the answer would be lost otherwise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.contract.data import TokenRow
from core.data.deal.packing import text_pieces

UNTRAINED = -100
"""The label of a token that is read and not trained (torch's ``ignore_index``)."""


@dataclass(frozen=True)
class Encoded:
    """One row under a template, uncut.

    Args:
        row: its number in the file.
        text: what was tokenised.
        ids: T token ids, a BOS of the tokenizer's own and an appended end token included.
        trained: token ranges that are trained, ascending and apart.
        encoding: the tokenizer's record of which token holds which character.
        bos: 1 where the tokenizer put its BOS before the text.
        flows: raw text, which goes on in further rows instead of being cut.
        ended: the last id is an end-of-text token that was put there; the text does not show it.
    """

    row: int
    text: str
    ids: tuple[int, ...]
    trained: tuple[tuple[int, int], ...]
    encoding: Any
    bos: int = 0
    flows: bool = False
    ended: bool = False

    def labels(self) -> list[int]:
        """T labels: the id where trained, else -100."""
        labels = [UNTRAINED] * len(self.ids)
        for start, stop in self.trained:
            labels[start:stop] = self.ids[start:stop]
        return labels

    def cut(self, max_length: int) -> list[tuple[TokenRow, int, int]]:
        """The row within the limit, with the range of its tokens; raw text as several rows, each with its one BOS."""
        labels = self.labels()
        if not self.flows:
            stop = min(len(self.ids), max_length)
            return [(TokenRow(self.row, self.ids[:stop], tuple(labels[:stop])), 0, stop)]
        rows = []
        for start, stop in text_pieces(len(self.ids), max_length, self.bos):
            again = self.bos if start else 0
            ids, row_labels = self.ids[:again] + self.ids[start:stop], labels[:again] + labels[start:stop]
            rows.append((TokenRow(self.row, ids, tuple(row_labels)), start, stop))
        return rows

    def starts(self) -> list[int]:
        """For each token the position in ``text`` at which what it shows begins, ascending; T + 1 numbers."""
        body = len(self.ids) - self.ended
        position = 0
        found: list[int] = []
        for number in range(body):
            chars = self.encoding.token_to_chars(number)
            position = max(position, chars[0] if chars else position)
            found.append(position)
        last = self.encoding.token_to_chars(body - 1) if body and body < len(self.encoding.ids) else None
        end = last[1] if last else len(self.text)
        return [*found, *([end] * self.ended), end]


def token_range(encoding: Any, characters: tuple[int, int], size: int) -> tuple[int, int]:
    """The tokens that hold any of the characters ``[start, stop)`` of a text of ``size`` characters."""
    start, stop = characters
    first = next((token for token in _tokens(encoding, range(start, stop))), None)
    last = next((token for token in _tokens(encoding, range(stop - 1, start - 1, -1))), None)
    if first is None or last is None:
        return 0, 0
    # Several tokens may share one character (bytes of an emoji): the range goes up to the next character's first token.
    behind = next((token for token in _tokens(encoding, range(stop, size))), len(encoding.ids))
    return first, max(last + 1, behind)


def _tokens(encoding: Any, places: Sequence[int]) -> Any:
    for place in places:
        token = encoding.char_to_token(place)
        if token is not None:
            yield token
