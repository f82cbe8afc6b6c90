"""Which rows each rank has, and when that changes: pure arithmetic, known to all of them."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.train.ranks.group import Ranks
from core.train.ranks.pace import EVERY, Paces
from core.train.ranks.share import shares
from core.train.step.trainer import StepTrainer

CPU = torch.device("cpu")


@given(st.lists(st.integers(1, 5000), max_size=60), st.integers(1, 8))
def test_each_row_has_one_rank_and_tokens_are_even(lengths: list[int], ranks: int) -> None:
    """Two ranks never differ by more than a row; with as many rows as ranks each has one."""
    dealt = shares(lengths, [1.0] * ranks)
    assert sorted(place for places in dealt for place in places) == list(range(len(lengths)))
    assert all(list(places) == sorted(places) for places in dealt)
    sums = [sum(lengths[place] for place in places) for places in dealt]
    assert max(sums) - min(sums) <= max(lengths, default=0)
    assert min(map(len, dealt)) >= min(1, len(lengths) // ranks)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=60), st.lists(st.integers(1, 64), min_size=1, max_size=5))
def test_unlike_ranks_are_done_at_about_the_same_time(lengths: list[int], parts: list[int]) -> None:
    """At most twice what nobody could beat: the tokens by all speeds, or the longest row on the quickest."""
    paces = [part / max(parts) for part in parts]
    dealt = shares(lengths, paces)
    assert sorted(place for places in dealt for place in places) == list(range(len(lengths)))
    took = max(sum(lengths[place] for place in places) / pace for places, pace in zip(dealt, paces, strict=True))
    assert took <= 2 * max(sum(lengths) / sum(paces), max(lengths)) + 1e-6


def test_paces_are_medians_of_what_all_said_and_hold_from_the_step_after_next(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = SimpleNamespace(rank=0, count=2, heard=lambda mine: [mine, [0, 0]])
    alike, paces = Paces(Ranks()), Paces(cast("Ranks", ranks))
    alike.meet(("cpu", 0))
    paces.meet(("a card", 24 * 2**30))  # beside one that said 0
    spent = iter(range(100))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(spent)))
    for step in range(EVERY):
        paces.begin(CPU)
        paces.end(CPU, 300)
        assert paces.mine == (300 if step else 0), "of the step before"
        assert not paces.turn()
        paces.hear([0, 100])
        paces.hear([900 if step == 2 else 300, 100])
        assert paces.values == (1.0, 1.0)
    assert paces.turn()
    assert paces.values == (1.0, round(64 / 3) / 64)
    assert paces.words == "75% and 25%"
    assert not paces.turn(), "said once"
    for _ in range(EVERY):
        paces.hear([150, 0])
    paces.turn()
    assert paces.values == (1.0, round(128 / 3) / 64), "what has no row counts as it did"
    alike.begin(CPU)
    alike.end(CPU, 300)
    alike.hear([300])
    assert (alike.mine, alike.turn(), alike.values) == (0, False, (1.0,))
    twins = Paces(cast("Ranks", SimpleNamespace(rank=0, count=2, heard=lambda mine: [mine, [mine[0], 1.02 * mine[1]]])))
    twins.meet(("a card", 24 * 2**30))
    for _ in range(2 * EVERY):
        twins.begin(CPU)
        twins.end(CPU, 300)
        twins.hear([300, 100])
    assert (twins.mine, twins.turn(), twins.values) == (0, False, (1.0, 1.0)), "even, whichever of them is busy"


def test_held_out_rows_stay_with_their_ranks_when_shares_of_steps_change() -> None:
    rows = SimpleNamespace(length=lambda row, _packed: 10 + row)
    held_out, paces = SimpleNamespace(length=rows.length), (1.0, 0.25)
    of = [
        SimpleNamespace(ranks=Ranks(rank, 2), paces=SimpleNamespace(values=paces), rows=rows, packed=True)
        for rank in (0, 1)
    ]
    steps, measured = ([StepTrainer.own(cast("Any", one), which, range(8)) for one in of] for which in (rows, held_out))
    assert len(steps[0]) > len(measured[0]) == len(measured[1])
    assert all(sorted(both[0] + both[1]) == list(range(8)) for both in (steps, measured))
