"""Which rows of an optimizer batch each rank computes."""

from collections.abc import Sequence


def shares(lengths: Sequence[int], ranks: int) -> list[list[int]]:
    """Places in ``lengths`` for each rank, ascending, so that their tokens are even: from the longest row on, each goes
    to the rank that has the fewest tokens (Graham 1969: at most 4/3 of the best largest share).

    A function of its arguments alone, so every rank knows all shares. With fewer rows than ranks some have none.
    """
    dealt: list[list[int]] = [[] for _ in range(ranks)]
    tokens = [0] * ranks
    for place in sorted(range(len(lengths)), key=lambda place: (-lengths[place], place)):
        rank = min(range(ranks), key=lambda rank: (tokens[rank], len(dealt[rank]), rank))
        dealt[rank].append(place)
        tokens[rank] += lengths[place]
    return [sorted(places) for places in dealt]
