"""Which step is rehearsed, in which order rows come, what counts as spilled, and what the planner is taught."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.contract.estimate import Probe
from core.data.deal.packing import cut, epoch_batches
from core.data.deal.split import split_rows
from core.estimate import estimate, resolve
from core.estimate.inputs.rows import rows_of
from core.estimate.learned import Learned
from core.machine.hardware import Gpu, Machine
from core.models.catalog import find_model
from core.proof.probe.longest import lesson, longest_step
from core.proof.probe.measure import InTurn, Measured, made_rows
from core.train.safety.memory import Taken
from core.train.step.batches import BatchLoader
from core.train.step.rows import PairRows, TextRows

GIB = 2**30


def facts_of(lengths: tuple[int, ...], **more: object) -> DataFacts:
    mean = sum(lengths) / len(lengths)
    given = {"rows": len(lengths), "lengths": lengths, "trained": lengths, "max_length": 2048, "longest": max(lengths)}
    return DataFacts.model_validate({**given, "mean": mean, **more})


def config_of(**train: object) -> RunConfig:
    given = {
        "max_length": 512,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "tokens_per_pass": 600,
    }
    return RunConfig.model_validate({"train": {**given, **train}})


def test_the_longest_step_is_one_that_the_run_will_have() -> None:
    lengths = tuple(31 + (number * 7919) % 700 for number in range(101))
    config = config_of(num_train_epochs=2)
    longest = longest_step(config, facts_of(lengths))
    train, _ = split_rows(len(lengths), config.data, config.train.seed)
    steps = [
        [min(512, lengths[train[place]]) for place in window]
        for epoch in range(2)
        for window in epoch_batches(len(train), 4, epoch, config.train.seed)
    ]
    fullest = max(max(sum(step[place] for place in part) for part in cut(step, 600)) for step in steps)
    assert longest in steps
    assert max(sum(longest[place] for place in part) for part in cut(longest, 600)) == fullest
    assert sum(longest) == max(sum(step) for step in steps if _height(step) == fullest)


def _height(step: list[int]) -> int:
    return max(sum(step[place] for place in part) for part in cut(step, 600))


def test_a_step_that_never_comes_is_not_rehearsed() -> None:
    lengths = tuple(range(32, 132))
    config = config_of(max_steps=1)
    train, _ = split_rows(len(lengths), config.data, config.train.seed)
    first = epoch_batches(len(train), 4, 0, config.train.seed)[0]
    assert longest_step(config, facts_of(lengths)) == [lengths[train[place]] for place in first]


def test_without_whole_data_the_longest_rows_are_taken_together() -> None:
    assert longest_step(config_of(), None) == [512] * 4
    sampled = facts_of((40, 900, 50, 60, 70), rows=5000, sampled=True)
    assert longest_step(config_of(), sampled) == [512, 70, 60, 50]
    assert sorted(longest_step(config_of(), facts_of((40, 50)))) == [40, 50]


def test_rows_are_a_short_step_and_a_long_one_all_trained() -> None:
    rows = made_rows(config_of(), [100, 41], vocabulary=500)
    assert isinstance(rows, TextRows)
    assert [rows.tokens(row) for row in range(4)] == [25, 10, 100, 41]
    assert [rows.trained(row) for row in range(4)] == [24, 9, 99, 40]
    assert all(int(rows.ids[row].min()) >= 0 and int(rows.ids[row].max()) < 500 for row in range(4))
    pairs = made_rows(config_of().model_copy(update={"method": "dpo"}), [100, 41], vocabulary=500)
    assert isinstance(pairs, PairRows)
    assert [pairs.length(row) for row in range(4)] == [25, 10, 100, 41]


def test_a_pairs_sides_count_together_as_in_the_run() -> None:
    """Not as two of the longer side: such a step may not fit where the run's does."""
    lengths, others = (100, 90, 700, 80), (10, 90, 20, 30)
    dpo = config_of(per_device_train_batch_size=4).model_copy(update={"method": "dpo"})
    facts = facts_of(lengths, others=others, trained=(108, 170, 716, 100), split_groups=())
    assert sorted(longest_step(dpo, facts)) == [106, 110, 176, 531], "prompts of 1, 5, 2 and 5 tokens are read once"
    assert max(longest_step(dpo, facts)) == rows_of(dpo, facts).most
    padded = dpo.model_copy(update={"train": dpo.train.model_copy(update={"packing": False})})
    assert sorted(longest_step(padded, facts)) == [160, 180, 200, 1024]
    assert longest_step(dpo, None) == [1024] * 8


def test_of_several_cards_the_largest_share_of_a_step_is_the_longest() -> None:
    lengths = tuple(31 + (number * 7919) % 700 for number in range(101))
    config = config_of(per_device_train_batch_size=8)
    whole, share = longest_step(config, facts_of(lengths)), longest_step(config, facts_of(lengths), 2)
    assert 0.45 * sum(whole) < sum(share) < 0.6 * sum(whole)
    assert 6 <= len(share) <= 10
    assert longest_step(config_of(per_device_train_batch_size=5, gradient_accumulation_steps=1), None, 2) == [512] * 3


def test_a_probe_for_several_cards_is_of_one_and_corrects_what_is_planned_for_all() -> None:
    cards = [Gpu(at, f"GPU-{at}", "NVIDIA GeForce RTX 3060", 12 * GIB, 11 * GIB, (8, 6)) for at in (0, 1)]
    here, spec, facts = Machine(tuple(cards), 8, 32 * GIB, 24 * GIB, 10**12, "Linux", wsl=False), *_asked()
    job = here.choosing("0,1")
    config, _ = resolve(config_of(cards="0,1"), spec, facts, job)
    plain = estimate(config, spec, facts, job)
    result = Probe(
        peak_bytes=round(1.06 * plain.allocated_bytes), reserved_bytes=round(1.06 * plain.reserved_bytes),
        seconds_per_step=1.0, tokens_per_second=900.0, spilled=False, steps=9,
    )  # fmt: skip
    line = lesson(result, config, spec, facts, job, at=1.0)
    assert (line.cards, line.measured_tokens_per_second) == (1, 900.0)
    corrected = estimate(config, spec, facts, job, Learned((line,)))
    assert corrected.allocated_bytes == pytest.approx(result.peak_bytes, rel=0.005)
    assert corrected.tokens_per_second is not None
    assert 1.6 * 900 < sum(corrected.tokens_per_second) / 2 < 2 * 900
    streams = config.model_copy(update={"model": config.model.model_copy(update={"streamed_layers": 9})})
    told = [lesson(result, streams, spec, facts, job, at=1.0) for job in (here.choosing("0"), job)]
    assert [(line.streamed, line.measured_tokens_per_second) for line in told] == [(9, 900.0), (9, 0.0)], "its own bus"
    unlike = replace(here, gpus=(cards[0], replace(cards[1], name="NVIDIA GeForce RTX 4090"))).choosing("all")
    line = lesson(result, config, spec, facts, unlike, at=1.0)
    assert (line.cards, line.measured_tokens_per_second, line.measured_bytes) == (2, 0.0, result.peak_bytes)


def _asked() -> tuple[ModelSpec, DataFacts]:
    return find_model("hub", "Qwen/Qwen3-1.7B"), facts_of(tuple(range(100, 500)))


def test_windows_come_in_turn_and_end() -> None:
    sampler = InTurn(((0,), (1, 2), (1, 2)))
    assert [batch["rows"] for batch in BatchLoader(sampler, lambda: 0)] == [[0], [1, 2], [1, 2]]
    assert [batch["rows"] for batch in BatchLoader(sampler, lambda: 2)] == [[1, 2]]
    assert sampler.after(3) is None


def seen_of(short: float, long: float, free: int, reserved: int = 7 * GIB) -> Measured:
    """A short step of 100 tokens in ``short`` seconds, long ones of 400 in ``long``."""
    first = [Taken(100, 30.0, free), Taken(100, short, free)]
    then = [Taken(400, 40.0, free), *[Taken(400, long, free)] * 3]
    return Measured(short=first, long=then, peak_reserved_bytes=reserved, total_bytes=8 * GIB)


@pytest.mark.parametrize(
    ("seen", "spilled"),
    [
        (seen_of(short=1.0, long=4.0, free=0), False),
        (seen_of(short=1.0, long=11.9, free=0), False),
        (seen_of(short=1.0, long=12.1, free=0), True),
        (seen_of(short=1.0, long=12.1, free=GIB), False),
        (seen_of(short=1.0, long=4.0, free=0, reserved=9 * GIB), True),
        (Measured(short=[Taken(100, 1.0, None)] * 2, long=[Taken(400, 90.0, None)]), False),
    ],
)
def test_spilled_is_three_times_slower_with_nothing_free_or_more_than_there_is(seen: Measured, spilled: bool) -> None:
    assert seen.spilled is spilled


def test_the_first_long_step_is_not_timed() -> None:
    seen = seen_of(short=1.0, long=4.0, free=GIB)
    assert seen.seconds_a_step == 4.0
    assert seen.tokens_per_second == 100.0


def test_a_probe_corrects_what_is_planned_for_a_run_like_it() -> None:
    card = Gpu(0, "GPU-1", "NVIDIA GeForce RTX 3060", 12 * GIB, 11 * GIB, (8, 6))
    machine = Machine((card,), 8, 32 * GIB, 24 * GIB, 10**12, "Linux", wsl=False)
    spec = find_model("hub", "Qwen/Qwen3-1.7B")
    facts = facts_of(tuple(range(100, 900)))
    asked = RunConfig.model_validate({"model": {"source": "hub", "name": spec.name}})
    config, _ = resolve(asked, spec, facts, machine)
    plain = estimate(config, spec, facts, machine)
    assert plain.tokens_per_second is not None
    speed = 0.6 * plain.tokens_per_second[0]
    result = Probe(
        peak_bytes=round(1.06 * plain.allocated_bytes), reserved_bytes=round(1.06 * plain.reserved_bytes),
        seconds_per_step=1.0, tokens_per_second=speed, spilled=False, steps=9,
    )  # fmt: skip
    line = lesson(result, config, spec, facts, machine, at=1.0)
    assert line.run_id == "probe-1"
    corrected = estimate(config, spec, facts, machine, Learned((line,)))
    assert corrected.learned_from == 1
    assert corrected.allocated_bytes == pytest.approx(result.peak_bytes, rel=0.005)
    assert corrected.tokens_per_second is not None
    low, high = corrected.tokens_per_second
    assert low < speed < high
    assert high / low < 1.3
    assert lesson(result.model_copy(update={"spilled": True}), config, spec, facts, machine, at=1.0) == line.model_copy(
        update={"measured_tokens_per_second": 0.0}
    )
