"""Windows, micro-batches, pieces and the split: every row once, none over the limit, the same for the same seed."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from core.contract.config import DataChoice
from core.data.deal.packing import cut, text_pieces, windows
from core.data.deal.split import split_rows


@given(st.lists(st.integers(1, 5000), max_size=60), st.integers(1, 8192))
def test_cut_holds_every_row_once_and_no_pass_is_over_the_limit(lengths: list[int], limit: int) -> None:
    passes = cut(lengths, limit)
    assert sorted(row for members in passes for row in members) == list(range(len(lengths)))
    for members in passes:
        assert len(members) == 1 or sum(lengths[row] for row in members) <= limit
    assert passes == cut(lengths, limit)


def test_cut_is_best_fit_longest_first() -> None:
    assert cut([3, 9, 5, 2, 7], 10) == [[1], [0, 4], [2, 3]]
    assert cut([20, 1], 10) == [[0], [1]]


@given(st.integers(0, 300), st.integers(1, 40), st.integers(0, 5), st.integers(0, 2**31 - 1))
def test_windows_deal_every_row_once_an_epoch(n_rows: int, rows_per_step: int, epoch: int, seed: int) -> None:
    dealt = windows(n_rows, rows_per_step, epoch, seed)
    assert sorted(row for window in dealt for row in window) == list(range(n_rows))
    assert all(len(window) == rows_per_step for window in dealt[:-1])
    assert dealt == windows(n_rows, rows_per_step, epoch, seed)
    if n_rows >= 100:
        assert dealt != windows(n_rows, rows_per_step, epoch + 1, seed)
        assert dealt != windows(n_rows, rows_per_step, epoch, seed + 1)


@given(st.integers(0, 3000), st.integers(32, 512), st.integers(0, 1))
def test_pieces_cover_a_text_without_gap(length: int, max_length: int, bos: int) -> None:
    pieces = text_pieces(length, max_length, bos)
    assert pieces[0][0] == 0
    assert pieces[-1][1] == length
    assert all(before[1] == after[0] for before, after in pairwise(pieces))
    assert all(stop - start + (bos if start else 0) <= max_length for start, stop in pieces)


def test_split_of_few_rows() -> None:
    assert split_rows(4, DataChoice(), 1) == ([0, 1, 2, 3], [])
    assert len(split_rows(5, DataChoice(), 1)[1]) == 1
    assert len(split_rows(100_000, DataChoice(), 1)[1]) == 200
