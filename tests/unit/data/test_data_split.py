"""The split: rows that belong together on one side, as many held out as asked, and without groups as it always was."""

import random

from hypothesis import given
from hypothesis import strategies as st

from core.contract.config import DataChoice
from core.data.deal.split import held_out_rows, places_of, split_rows


def groups_of(n_rows: int, sizes: list[int], seed: int) -> list[list[int]]:
    order = random.Random(seed).sample(range(n_rows), n_rows)
    groups = []
    for size in sizes:
        if len(order) >= size:
            groups.append(sorted(order[:size]))
            del order[:size]
    return groups


@given(st.integers(0, 400), st.floats(0, 0.5), st.lists(st.integers(2, 30), max_size=20), st.integers(0, 50))
def test_no_group_is_parted(n_rows: int, fraction: float, sizes: list[int], seed: int) -> None:
    choice = DataChoice(eval_fraction=fraction)
    groups = groups_of(n_rows, sizes, seed)
    training, held = split_rows(n_rows, choice, seed, groups)
    assert sorted(training + held) == list(range(n_rows))
    assert held == sorted(held)
    assert (training, held) == split_rows(n_rows, choice, seed, groups)
    asked = held_out_rows(n_rows, choice)
    assert len(held) <= asked
    assert bool(held) == bool(asked)
    alone = n_rows - sum(map(len, groups))
    if alone >= asked:
        assert len(held) == asked
    if alone or any(len(group) <= asked for group in groups):
        aside = set(held)
        assert all(aside.isdisjoint(group) or aside.issuperset(group) for group in groups)


@given(st.integers(0, 2000), st.floats(0, 0.5), st.integers(0, 100))
def test_without_groups_rows_are_dealt_as_ever(n_rows: int, fraction: float, seed: int) -> None:
    choice = DataChoice(eval_fraction=fraction)
    held = held_out_rows(n_rows, choice)
    drawn = sorted(random.Random(f"split:{seed}").sample(range(n_rows), held)) if held else []
    assert split_rows(n_rows, choice, seed)[1] == drawn
    assert split_rows(n_rows, choice, seed, [])[1] == drawn


def test_a_large_group_is_trained_on_while_others_are_left() -> None:
    choice = DataChoice(eval_fraction=0.2)
    group = list(range(15))
    for seed in range(30):
        assert not set(split_rows(100, choice, seed, [group])[1]) & set(group)


def test_only_large_groups_are_held_out_whole_and_where_that_is_too_many_singly() -> None:
    choice = DataChoice(eval_fraction=0.3)
    fives = [list(range(start, start + 5)) for start in range(0, 20, 5)]
    held = split_rows(20, choice, 1, fives)[1]
    assert held in fives
    tens = [list(range(10)), list(range(10, 20))]
    assert len(split_rows(20, choice, 1, tens)[1]) == 6


def test_places_of_row_numbers() -> None:
    groups = [(3, 9), (4, 5), (7, 8)]
    assert places_of([3, 3, 4, 7, 9, 8], groups) == [[0, 1, 4], [3, 5]]
    assert places_of([], groups) == []
