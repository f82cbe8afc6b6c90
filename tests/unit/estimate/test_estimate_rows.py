"""Rows, steps and padding: every figure that follows the length limit, against counting row by row."""

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.contract.config import DataChoice, RunConfig, TrainChoice
from core.contract.data import DataFacts
from core.data.deal.packing import epoch_batches
from core.data.deal.split import split_rows
from core.estimate import estimate
from core.estimate.inputs.rows import Lengths, rows_of, total_steps, train_rows
from core.models.suited import put
from core.train.step.rows import PairRows
from tests.unit.estimate.conftest import card, model, rows

LENGTHS = st.lists(st.integers(1, 5000), min_size=1, max_size=200)


@settings(max_examples=150, deadline=None)
@given(LENGTHS, st.integers(1, 6000), st.integers(1, 250))
def test_a_limit_is_looked_up_as_it_would_be_counted(lengths: list[int], limit: int, rows: int) -> None:
    table, cut = Lengths(lengths), [min(length, limit) for length in lengths]
    for power in (1, 2, 3):
        assert table.tokens(limit, power) == sum(length**power for length in cut)
    assert table.lost(limit) == sum(lengths) - sum(cut)
    assert table.cut(limit) == sum(length > limit for length in lengths)
    assert table.longest(limit) == max(cut)
    assert table.top(rows, limit) == sum(sorted(cut)[-rows:])


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(1, 6000), st.integers(1, 64), st.integers(1, 500))
def test_the_fullest_step_lies_between_the_mean_and_the_longest_rows(
    lengths: list[int], limit: int, rows: int, steps: int
) -> None:
    table = Lengths(lengths)
    fullest = table.fullest(rows, steps, limit)
    assert min(table.top(rows, limit), int(rows * table.tokens(limit) / len(lengths))) <= fullest
    assert fullest <= table.top(rows, limit)
    assert fullest <= table.fullest(rows, steps + 1, limit)


@pytest.mark.parametrize("shape", ["chat", "even", "few long"])
def test_no_step_of_a_dealt_run_is_fuller(shape: str) -> None:
    """Eighty runs of five epochs each: one in twenty may have a step beyond, which is twice what is aimed at."""
    dice = random.Random(7)
    draw = {
        "chat": lambda: min(2048, int(dice.lognormvariate(5.2, 0.8))),
        "even": lambda: dice.randint(100, 1000),
        "few long": lambda: 4000 if dice.random() < 0.02 else 100,
    }[shape]
    lengths = [draw() for _ in range(1600)]
    bound = Lengths(lengths).fullest(16, 5 * 100, 4096)
    beyond = 0
    for seed in range(80):
        dealt = (window for epoch in range(5) for window in epoch_batches(len(lengths), 16, epoch, seed))
        beyond += any(sum(map(lengths.__getitem__, window)) > bound for window in dealt)
    assert beyond <= 4
    assert bound < 0.8 * 16 * max(lengths), "far below sixteen rows of the longest"


def dealt(config: RunConfig, lengths: tuple[int, ...], split_groups: tuple[tuple[int, ...], ...]) -> list[int]:
    """Tokens of each step, by what a run does: ``core.train.reading`` splits so, and its feed deals windows."""
    train, _ = split_rows(len(lengths), config.data, config.train.seed, split_groups)
    steps = [
        sum(min(config.train.max_length, lengths[train[place]]) for place in window)
        for epoch in range(3)
        for window in epoch_batches(len(train), 16, epoch, config.train.seed)
    ]
    return steps[: total_steps(config, len(train))]


@pytest.mark.parametrize("split_groups", [(), tuple((row, row + 1) for row in range(0, 40, 2))])
@pytest.mark.parametrize("changes", [{}, {"max_steps": 3}, {"num_train_epochs": 0.4}, {"max_length": 700}, {"seed": 1}])
def test_of_few_rows_the_fullest_step_is_the_one_that_the_run_deals(
    changes: dict[str, float], split_groups: tuple[tuple[int, ...], ...]
) -> None:
    """On a card this was 18 % too much for 95 rows whose steps were reckoned and not looked up."""
    config = RunConfig.model_validate({"train": {"max_length": 1024, **changes}})
    facts = rows(tuple(range(200, 1000, 8)), config.train.max_length).model_copy(update={"split_groups": split_groups})
    assert rows_of(config, facts).fullest == max(dealt(config, facts.lengths, split_groups))


@pytest.mark.parametrize("unsure", [{"split_groups": None}, {"sampled": True}, {"max_length": 2048}, {"rows": 120}])
def test_where_the_steps_are_not_certain_more_is_allowed_for(unsure: dict[str, object]) -> None:
    """Which rows are held out decides which rows every step has, and near duplicates stay together."""
    config = RunConfig.model_validate({"train": {"max_length": 1024}})
    facts = rows(tuple(range(200, 1000, 8)), 1024).model_copy(update={"split_groups": ()})
    reckoned = Lengths(facts.lengths).fullest(16, total_steps(config, 95), 1024)
    assert rows_of(config, facts).fullest < reckoned
    assert rows_of(config, facts.model_copy(update=unsure)).fullest >= reckoned
    whole = config.model_copy(update={"data": DataChoice(eval_fraction=0.0)})
    fullest = rows_of(whole, facts.model_copy(update={"split_groups": None})).fullest
    assert fullest == max(dealt(whole, facts.lengths, ())), "nothing is held out, so nothing is left to chance"


@pytest.mark.parametrize("batch", [1, 2, 4, 16])
def test_padding_is_what_random_batches_have(batch: int) -> None:
    dice = random.Random(3)
    lengths = [min(3000, int(dice.lognormvariate(5.2, 0.7))) for _ in range(4800)]
    counted = []
    for _ in range(5):
        dice.shuffle(lengths)
        cut = [min(length, 1024) for length in lengths]
        groups = [cut[start : start + batch] for start in range(0, len(cut), batch)]
        counted.append(sum(batch * max(group) - sum(group) for group in groups))
    assert Lengths(lengths).padding(batch, 1024) == pytest.approx(sum(counted) / 5, rel=0.03)


def test_the_estimate_tells_all_of_it() -> None:
    facts = rows((100,) * 190 + (3000,) * 10, max_length=1000)
    config = RunConfig(data=DataChoice(eval_fraction=0.1), train=TrainChoice(max_length=1000))
    estimated = estimate(config, model("qwen3-4b"), facts, card(11))
    assert train_rows(config, facts) == 180
    assert (estimated.rows_per_step, estimated.steps_per_epoch, estimated.total_steps) == (16, 12, 36)
    assert (estimated.rows_cut, estimated.tokens_lost) == (10, 10 * 2000 * 0.9)
    assert estimated.tokens_per_epoch == round((190 * 100 + 10 * 1000) * 0.9)
    assert estimated.trained_tokens_per_epoch == round((190 * 50 + 10 * 500) * 0.9)
    assert "10 of 200 rows" in estimated.notes[0]
    assert estimated.padding_saved > 0
    assert (estimated.disk_free_bytes, estimated.held_bytes) == (100 * 1024**3, 1024**3)
    assert estimated.disk_bytes == estimated.download_bytes + estimated.checkpoints_bytes
    even = estimate(config, model("qwen3-4b"), rows((100,) * 200), card(11))
    assert (even.padding_saved, even.tokens_lost, even.rows_cut) == (0, 0, 0)


def test_trained_tokens_follow_the_limit_until_they_are_counted_again() -> None:
    facts = rows((1000,) * 100, max_length=2048)
    at = {limit: rows_of(RunConfig(train=TrainChoice(max_length=limit)), facts) for limit in (2048, 500)}
    assert at[2048].trained_per_epoch == 95 * 500
    assert at[500].trained_per_epoch == 95 * 250


def test_rows_that_a_run_leaves_out_make_no_steps() -> None:
    """A run leaves out rows with nothing trained within its limit, and splits what is left."""
    facts = rows((100,) * 120 + (3000,) * 80, max_length=1000, trained=(50,) * 120 + (0,) * 80)
    config = RunConfig(data=DataChoice(eval_fraction=0.1), train=TrainChoice(max_length=1000))
    data = rows_of(config, facts)
    assert (data.train, data.longest, data.cut) == (108, 100, 80)
    assert (data.tokens_per_epoch, data.trained_per_epoch) == (108 * 100, 108 * 50)
    longer = config.model_copy(update={"train": TrainChoice(max_length=4000)})
    until_counted = rows_of(longer, facts)  # under another limit any row may have something to train
    assert (until_counted.train, until_counted.longest) == (180, 3000)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.integers(1, 3000)] * 3), min_size=1, max_size=60), st.integers(32, 3000))
def test_a_pairs_sides_are_counted_with_one_prompt(pairs: list[tuple[int, int, int]], limit: int) -> None:
    """As the run makes them: a prompt that is read once, and its last token for the second answer too."""
    sides = [(prompt + chosen, prompt + rejected) for prompt, chosen, rejected in pairs]
    answers = [[min(side, limit) - prompt for side in both] for (prompt, *_), both in zip(pairs, sides, strict=True)]
    facts = DataFacts(
        rows=len(pairs),
        lengths=tuple(map(max, sides)),
        others=tuple(map(min, sides)),
        trained=tuple(sum(both) if min(both) > 0 else 0 for both in answers),
        max_length=limit,
        longest=max(map(max, sides)),
        mean=1.0,
    )
    made = PairRows()
    for (prompt, *_), both in zip(pairs, answers, strict=True):
        if min(both) > 0:
            made.append([1] * prompt, [1] * both[0], [1] * both[1])
    assume(len(made))
    config = RunConfig(method="dpo", data=DataChoice(eval_fraction=0.0), train=TrainChoice(max_length=limit))
    for packed in (True, False):
        data = rows_of(put(config, "train.packing", packed), facts)
        assert data.tokens_per_epoch == sum(made.tokens(row, packed) for row in range(len(made)))
        assert data.mean == pytest.approx(data.tokens_per_epoch / (2 * len(made)))
        assert data.most == max(made.tokens(row, packed) for row in range(len(made))) <= data.fullest
        whole = sum(side**2 for row in range(len(made)) for side in made.side_lengths(row))
        once = sum(made.shared(row) ** 2 for row in range(len(made))) if packed else 0
        assert data.seen * data.tokens_per_epoch == pytest.approx(whole - once), "what attention computes"
        alone = put(put(config, "train.packing", packed), "train.per_device_train_batch_size", 1)
        saved = sum(made.length(row, packed=False) - made.length(row) for row in range(len(made)))
        assert rows_of(alone, facts).padding == saved, "whether rows are packed or not"
    unmeasured = rows_of(put(config, "train.packing", False), facts.model_copy(update={"others": ()}))
    assert unmeasured.tokens_per_epoch == 2 * sum(max(made.side_lengths(row)) for row in range(len(made)))
