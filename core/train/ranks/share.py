"""Which rows of an optimizer batch each rank computes."""

from collections.abc import Sequence


def shares(lengths: Sequence[int], paces: Sequence[float]) -> list[list[int]]:
    """Places in ``lengths`` for each rank, ascending, so that all are done at about the same time: from the longest row
    on, each goes to the rank that would be done with it first (Graham 1969: of equal paces at most 4/3 of the best
    largest share; of others at most twice, Gonzalez, Ibarra and Sahni 1977).

    A function of its arguments alone, so every rank knows all shares. With fewer rows than ranks some have none.
    """
    dealt: list[list[int]] = [[] for _ in paces]
    tokens = [0] * len(paces)
    for place in sorted(range(len(lengths)), key=lambda place: (-lengths[place], place)):
        length = lengths[place]
        rank = min(range(len(paces)), key=lambda rank: ((tokens[rank] + length) / paces[rank], len(dealt[rank]), rank))
        dealt[rank].append(place)
        tokens[rank] += length
    return [sorted(places) for places in dealt]
