"""Rows as the model will see them, as coloured spans.

The kinds follow the labels of ``Encoded.cut``, which training uses too: a token is ``trained`` (in a rejected answer
or one marked bad ``avoided``) where its label is not -100, ``cut`` beyond the limit, else ``special`` or ``read``.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal

from core.contract.data import Example, PreviewRow, Span
from core.contract.methods import ReadAs
from core.data.render.differences import differing
from core.data.render.labelled import encode_labelled, shown_labelled
from core.data.render.renderer import Renderer
from core.data.tokens.table import UNTRAINED, Encoded

Kind = Literal["read", "trained", "avoided", "special", "cut"]
SHOWN_CHARACTERS = 20_000
"""Only so much of a row is shown; its counts are of the whole."""
_PIECES_SHOWN = 4


def encoded_sides(renderer: Renderer, example: Example, reads: ReadAs) -> tuple[Encoded, ...]:
    """A row as it is trained, uncut: two sides of a preference, else one. Raises DataError as ``Renderer`` does."""
    if reads == "labels":
        return tuple(encode_labelled(renderer.tokenizer, [example]))
    if reads == "pairs" and example.chosen:
        return renderer.pair(example)
    return ((renderer.of_last_answer() if reads == "marks" else renderer).encoded(example),)


def shown_rows(renderer: Renderer, sides: tuple[Encoded, ...], max_length: int) -> list[PreviewRow]:
    """An encoded row as it is shown; of a pair both answers, each through its end of turn."""
    if len(sides) == 1:
        if sides[0].classed:
            return [shown_labelled(renderer.tokenizer, sides[0], max_length)]
        return _shown(renderer, sides[0], max_length)
    chosen, rejected = (replace(side, ids=side.ids[: side.trained[-1][1]]) for side in sides)
    better, worse = _differing(chosen, rejected, renderer.special_ids)
    return [
        *_shown(renderer, chosen, max_length, Side("chosen", better)),
        *_shown(renderer, rejected, max_length, Side("rejected", worse)),
    ]


@dataclass(frozen=True)
class Side:
    """One answer of a pair, and which tokens of its row are not in the other one."""

    name: Literal["", "chosen", "rejected"] = ""
    differs: tuple[bool, ...] = ()


def _differing(
    chosen: Encoded, rejected: Encoded, special_ids: Container[int]
) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """For each token of both rows whether it holds words that the other answer has not."""
    starts, begins, texts = [], [], []
    for side in (chosen, rejected):
        places, (first, stop) = side.starts(), side.trained[0]
        while stop > first and side.ids[stop - 1] in special_ids:
            stop -= 1
        starts.append(places)
        begins.append(places[first])
        texts.append(side.text[places[first] : places[stop]])
    found = []
    for ranges, begin, places in zip(differing(*texts), begins, starts, strict=True):
        flags = [False] * (len(places) - 1)
        for start, stop in ranges:
            first = max(0, bisect_right(places, begin + start) - 1)
            for token in range(first, bisect_left(places, begin + stop, hi=len(flags))):
                flags[token] = True
        found.append(tuple(flags))
    return found[0], found[1]


def _shown(renderer: Renderer, encoded: Encoded, max_length: int, side: Side = Side()) -> list[PreviewRow]:
    shown = []
    flags = side.differs or (False,) * len(encoded.ids)
    for row, start, stop in encoded.cut(max_length)[:_PIECES_SHOWN]:
        behind = stop if encoded.flows else len(encoded.ids)
        again = len(row.input_ids) - (stop - start)
        learned: Kind = "avoided" if side.name == "rejected" or encoded.mark is False else "trained"
        kinds: list[Kind] = [
            learned if label != UNTRAINED else "special" if token in renderer.special_ids else "read"
            for token, label in zip(row.input_ids[again:], row.labels[again:], strict=True)
        ]
        kinds += ["cut"] * (behind - stop)
        shown.append(
            PreviewRow(
                row=row.row,
                side=side.name,
                mark=encoded.mark,
                labels=encoded.labels,
                spans=_spans(renderer.tokenizer, encoded, start, list(zip(kinds, flags[start:behind], strict=True))),
                tokens=behind - start + again,
                trained_tokens=row.trained_tokens,
                cut_tokens=behind - stop,
            )
        )
    return shown


def _spans(tokenizer: Any, encoded: Encoded, first: int, kinds: list[tuple[Kind, bool]]) -> tuple[Span, ...]:
    room, spans = SHOWN_CHARACTERS, []
    for span in _runs(tokenizer, encoded, first, kinds):
        spans.append(span if len(span.text) <= room else span.model_copy(update={"text": span.text[:room] + "…"}))
        room = max(0, room - len(span.text))
    return tuple(spans)


def _runs(tokenizer: Any, encoded: Encoded, first: int, kinds: list[tuple[Kind, bool]]) -> Iterator[Span]:
    """Neighbouring tokens of one kind with their text, in order and without a gap."""
    starts = encoded.starts()
    position = first
    for (kind, differs), group in groupby(kinds):
        stop = position + len(list(group))
        text = encoded.text[starts[position] : starts[stop]]
        if encoded.bos and position == 0:
            text = tokenizer.decode(encoded.ids[:1]) + text
        if encoded.ended and stop == len(encoded.ids):
            text += tokenizer.decode(encoded.ids[-1:])
        yield Span(text=text, kind=kind, tokens=stop - position, differs=differs)
        position = stop
