"""What was learned by heart: the loss of training rows beside held-out ones, training rows recited from their prompts,
and runs of tokens that answers to held-out prompts share with training answers.

Such runs are found by the hashes of all windows of ``WINDOW`` tokens, a block of training rows at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from core.report.measure.answers import Given, Reply, prompts, replies
from core.report.measure.budget import Slot
from core.report.measure.held_out import groups_of, means, measurer
from core.report.measure.subject import Subject
from core.report.schema import Copied, Figure, Memorising, Recited
from core.report.statistics import apart
from core.train.step.rows import IGNORED, Rows

WINDOW = 8
"""The fewest tokens that count as copied: shorter ones are phrases."""
TRAINED_ROWS = 64
RECITED_ROWS = 8
RECITED_TOKENS = 96
MOST_SCANNED = 30_000_000
"""Tokens of training answers that are looked through."""
_BLOCK_TOKENS = 1 << 20
_LISTED = 8
_SHOWN = 300
_FACTOR = numpy.uint64(0x9E3779B97F4A7C15)
_INVERSE = numpy.uint64(pow(0x9E3779B97F4A7C15, -1, 1 << 64))
Ids = numpy.ndarray[Any, Any]


@dataclass(frozen=True)
class _Run:
    """The longest run of one answer: where it begins in it, its tokens, and the place of a training row."""

    begin: int = 0
    tokens: int = 0
    row: int = -1


def memorising(
    subject: Subject, slot: Slot, held_out: Figure | None, given: Sequence[Reply]
) -> tuple[Memorising | None, int, int]:
    """What was measured, how many training rows of how many.

    Args:
        held_out: the loss of held-out rows after training.
        given: answers to held-out prompts.
    """
    data = subject.data
    if data is None:
        return None, 0, 0
    order = subject.drawn(len(data.train), TRAINED_ROWS)
    measure, found = measurer(subject, data.train), []
    with subject.in_tiles(data.train, order):
        for one in subject.paired(groups_of(subject, data.train, order), measure, slot.share(0.4)):
            found.append(one)
            subject.tell.stage("measuring", "Training rows", len(found), len(order), "rows")
    recited: list[Recited] = []
    if not subject.scores:
        asked = prompts(subject, data.train, RECITED_ROWS, least_right=WINDOW)
        said = replies(subject, asked, RECITED_TOKENS, slot.share(0.6), "Training rows from their prompts")
        recited = [_recited(subject, data.numbers, reply) for reply in said]
    copied = _copied(subject, slot, given)
    if not found:
        return None, 0, len(order)
    good = [one for one in found if data.train.good(one.item)] or found
    trained = means(good)
    part = Memorising(
        trained=trained["after"],
        trained_before=trained.get("before"),
        held_out=held_out,
        gap=apart(held_out, trained["after"]) if held_out else None,
        copied=copied,
        recited=tuple(sorted(recited, key=lambda one: -one.tokens)),
    )
    return part, len(found), len(order)


def _recited(subject: Subject, numbers: Sequence[int], reply: Reply) -> Recited:
    right = reply.asked.right[:RECITED_TOKENS]
    count = _alike(reply.after.ids, right)
    return Recited(
        row=numbers[reply.asked.place],
        tokens=count,
        answer_tokens=len(right),
        before=_alike(reply.before.ids, right) if reply.before else None,
        text=subject.tokenizer.decode(right[:count], skip_special_tokens=True)[:_SHOWN],
    )


def _alike(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens from the beginning in which both agree."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _copied(subject: Subject, slot: Slot, given: Sequence[Reply]) -> tuple[Copied, ...]:
    if not given or subject.scores or subject.data is None:
        return ()
    sides: list[Given | None] = [side for reply in given for side in (reply.after, reply.before)]
    texts = [numpy.asarray(side.ids if side else (), dtype=numpy.int64) for side in sides]
    runs = longest_runs(texts, _blocks(subject, subject.data.train, slot))
    found = []
    for reply, after, before in zip(given, runs[::2], runs[1::2], strict=True):
        if after.tokens:
            words = reply.after.ids[after.begin : after.begin + after.tokens]
            found.append(
                Copied(
                    row=subject.numbers[reply.asked.place],
                    from_row=subject.data.numbers[after.row],
                    tokens=after.tokens,
                    answer_tokens=len(reply.after.ids),
                    before=before.tokens if reply.before else None,
                    text=subject.tokenizer.decode(words, skip_special_tokens=True)[:_SHOWN],
                )
            )
    return tuple(sorted(found, key=lambda one: -one.tokens)[:_LISTED])


def _blocks(subject: Subject, rows: Rows, slot: Slot) -> Iterator[tuple[Ids, Ids]]:
    """Training answers end to end, a block at a time: tokens, and the row of each; what is not trained is -1."""
    parts: list[Ids] = []
    places: list[Ids] = []
    held = scanned = 0
    for place in subject.drawn(len(rows)):
        for sequence in rows.sequences(place):
            parts += [numpy.where(sequence.labels == IGNORED, -1, sequence.ids), numpy.array([-1])]
            places.append(numpy.full(len(sequence) + 1, place))
            held += len(sequence) + 1
        if held >= _BLOCK_TOKENS:
            yield numpy.concatenate(parts).astype(numpy.int64), numpy.concatenate(places)
            scanned += held
            parts, places, held = [], [], 0
            subject.safe_point()
            if scanned >= MOST_SCANNED or not slot.fits():
                return
    if parts:
        yield numpy.concatenate(parts).astype(numpy.int64), numpy.concatenate(places)


def longest_runs(texts: Sequence[Ids], blocks: Iterator[tuple[Ids, Ids]]) -> list[_Run]:
    """Of each text its longest run of at least ``WINDOW`` tokens that stands in a block, none of them -1."""
    asked = [_Windows(text) for text in texts]
    short = numpy.unique(numpy.concatenate([text.hashes(WINDOW) for text in asked])) if asked else ()
    longest = [_Run() for _ in texts]
    for tokens, rows in blocks:
        block = _Windows(tokens)
        places = numpy.flatnonzero(numpy.isin(block.hashes(WINDOW), short))
        for number, text in enumerate(asked if len(places) else ()):
            longest[number] = _longer(text, block, places, longest[number], rows)
    return longest


class _Windows:
    """Hashes of all windows of a text: of that of ``width`` tokens from ``i`` Σ token[i + k] F⁻ᵏ modulo 2⁶⁴."""

    def __init__(self, tokens: Ids) -> None:
        self.tokens = tokens
        powers = numpy.cumprod(numpy.r_[numpy.uint64(1), numpy.full(len(tokens), _INVERSE)])
        self._sums = numpy.r_[numpy.uint64(0), numpy.cumsum(tokens.astype(numpy.uint64) * powers[:-1])]
        self._back = numpy.cumprod(numpy.r_[numpy.uint64(1), numpy.full(len(tokens), _FACTOR)])

    def __len__(self) -> int:
        return len(self.tokens)

    def hashes(self, width: int) -> Ids:
        """Of all windows of this width."""
        return self.at(numpy.arange(max(0, len(self) - width + 1)), width)

    def at(self, places: Ids, width: int) -> Ids:
        """Of those that begin at these places."""
        hashes: Ids = (self._sums[places + width] - self._sums[places]) * self._back[places]
        return hashes


def _longer(text: _Windows, block: _Windows, places: Ids, known: _Run, rows: Ids) -> _Run:
    """The longest run that text and block share from one of these places on, where it is longer than the known one.
    By halving: where a run of some width stands, so do all shorter ones."""
    least = low = max(WINDOW - 1, known.tokens)
    high, width = len(text), least + 1
    while low < high:
        here = places[places + width <= len(block)]
        if len(here := here[numpy.isin(block.at(here, width), text.hashes(width))]):
            low, places = width, here
        else:
            high = width - 1
        width = (low + high + 1) // 2
    if low == least:
        return known
    at = int(places[0])
    begin = int(numpy.flatnonzero(text.hashes(low) == block.at(places[:1], low))[0])
    alike = numpy.array_equal(text.tokens[begin : begin + low], block.tokens[at : at + low])
    return _Run(begin, low, int(rows[at])) if alike else known
