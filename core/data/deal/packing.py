"""Which rows make one optimizer batch, and how it is cut into micro-batches.

Batches follow from (seed, epoch) alone, so that a resumed run sees the same rows again. How a batch is cut changes
memory and speed, never the result of the step.
"""

import random


def epoch_batches(n_rows: int, rows_per_step: int, epoch: int, seed: int) -> list[list[int]]:
    """One epoch in optimizer batches, every row once, shuffled by (seed, epoch); the last batch may be smaller."""
    order = list(range(n_rows))
    random.Random(f"epoch:{seed}:{epoch}").shuffle(order)  # noqa: S311 - no secret
    return [order[start : start + rows_per_step] for start in range(0, n_rows, rows_per_step)]


def cut(lengths: list[int], tokens_per_pass: int) -> list[list[int]]:
    """Micro-batches of one optimizer batch, as positions in ``lengths``: best-fit decreasing.

    A micro-batch holds at most ``tokens_per_pass`` tokens; a longer row is alone. Ties go to the earlier row and
    micro-batch.
    """
    batches: list[list[int]] = []
    room: list[int] = []
    for position in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        length = lengths[position]
        fitting = [number for number, free in enumerate(room) if free >= length]
        if fitting:
            best = min(fitting, key=lambda number: (room[number], number))
            batches[best].append(position)
            room[best] -= length
        else:
            batches.append([position])
            room.append(tokens_per_pass - length)
    return [sorted(members) for members in batches]


def text_pieces(length: int, max_length: int, bos: int) -> list[tuple[int, int]]:
    """The token ranges ``[start, stop)`` of rows of at most ``max_length`` tokens that a raw text of ``length`` tokens
    becomes. ``bos``: 1 where the text begins with a BOS, for which every later row leaves room, else 0."""
    first = min(length, max_length)
    body = max(1, max_length - bos)
    later = [(start, min(length, start + body)) for start in range(first, length, body)]
    return [(0, first), *later]
