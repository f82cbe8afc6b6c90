"""Optimizer batches, micro-batches, pieces and the split: every row once, none over the limit, the same for the same
seed; rows that belong together stay on one side of the split."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.contract.config import DataChoice
from core.data.deal.packing import cut, epoch_batches, text_pieces
from core.data.deal.split import held_out_rows, places_of, split_rows


@given(st.lists(st.integers(1, 5000), max_size=60), st.integers(1, 8192))
def test_cut_holds_every_row_once_and_no_micro_batch_is_over_the_limit(lengths: list[int], limit: int) -> None:
    batches = cut(lengths, limit)
    assert sorted(row for members in batches for row in members) == list(range(len(lengths)))
    for members in batches:
        assert len(members) == 1 or sum(lengths[row] for row in members) <= limit
    assert batches == cut(lengths, limit)


def test_cut_is_best_fit_longest_first() -> None:
    assert cut([3, 9, 5, 2, 7], 10) == [[1], [0, 4], [2, 3]]
    assert cut([20, 1], 10) == [[0], [1]]


@given(st.integers(0, 300), st.integers(1, 40), st.integers(0, 5), st.integers(0, 2**31 - 1))
def test_every_row_is_dealt_once_an_epoch(n_rows: int, rows_per_step: int, epoch: int, seed: int) -> None:
    dealt = epoch_batches(n_rows, rows_per_step, epoch, seed)
    assert sorted(row for batch in dealt for row in batch) == list(range(n_rows))
    assert all(len(batch) == rows_per_step for batch in dealt[:-1])
    assert dealt == epoch_batches(n_rows, rows_per_step, epoch, seed)
    if n_rows >= 100:
        assert dealt != epoch_batches(n_rows, rows_per_step, epoch + 1, seed)
        assert dealt != epoch_batches(n_rows, rows_per_step, epoch, seed + 1)


@given(st.integers(0, 3000), st.integers(32, 512), st.integers(0, 1))
def test_pieces_cover_a_text_without_gap(length: int, max_length: int, bos: int) -> None:
    pieces = text_pieces(length, max_length, bos)
    assert (pieces[0][0], pieces[-1][1]) == (0, length)
    assert all(before[1] == after[0] for before, after in pairwise(pieces))
    assert all(stop - start + (bos if start else 0) <= max_length for start, stop in pieces)


@given(st.integers(0, 400), st.floats(0, 0.5), st.lists(st.integers(2, 30), max_size=20), st.integers(0, 50))
def test_no_group_is_parted(n_rows: int, fraction: float, sizes: list[int], seed: int) -> None:
    choice, order, groups = DataChoice(eval_fraction=fraction), random.Random(seed).sample(range(n_rows), n_rows), []
    for size in sizes:
        if len(order) >= size:
            groups.append(sorted(order[:size]))
            del order[:size]
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


@given(st.integers(0, 2000), st.floats(0, 0.5), st.integers(1, 500), st.integers(0, 100))
def test_without_groups_rows_are_dealt_as_ever(n_rows: int, fraction: float, most: int, seed: int) -> None:
    choice = DataChoice(eval_fraction=fraction, eval_rows_max=most)
    held = held_out_rows(n_rows, choice)
    drawn = sorted(random.Random(f"split:{seed}").sample(range(n_rows), held)) if held else []
    assert split_rows(n_rows, choice, seed)[1] == split_rows(n_rows, choice, seed, [])[1] == drawn


@pytest.mark.parametrize(("rows", "held"), [(4, 0), (5, 1), (100_000, 200)])
def test_of_few_rows_none_is_held_out_and_of_many_no_more_than_the_most(rows: int, held: int) -> None:
    assert len(split_rows(rows, DataChoice(), 1)[1]) == held


def test_few_rows_are_all_trained_on_and_of_many_no_more_are_held_out_than_asked() -> None:
    assert [held_out_rows(rows, DataChoice()) for rows in (4, 5, 100_000)] == [0, 1, 200]
    assert split_rows(4, DataChoice(), 1, [[0, 1]]) == ([0, 1, 2, 3], [])


def test_a_large_group_is_held_out_only_where_no_others_are_left_and_never_beyond_what_was_asked() -> None:
    group = list(range(15))
    for seed in range(30):
        assert not set(split_rows(100, DataChoice(eval_fraction=0.2), seed, [group])[1]) & set(group)
    choice = DataChoice(eval_fraction=0.3)
    fives = [list(range(start, start + 5)) for start in range(0, 20, 5)]
    assert split_rows(20, choice, 1, fives)[1] in fives
    tens = [list(range(10)), list(range(10, 20))]
    assert len(split_rows(20, choice, 1, tens)[1]) == 6, "singly, where even one group is too many"


def test_places_of_row_numbers() -> None:
    groups = [(3, 9), (4, 5), (7, 8)]
    assert places_of([3, 3, 4, 7, 9, 8], groups) == [[0, 1, 4], [3, 5]]
    assert places_of([], groups) == []
