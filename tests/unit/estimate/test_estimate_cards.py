"""Several cards: each holds the whole model and has its share of every step; the weakest of them decides."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.contract.config import RunConfig, TrainChoice
from core.contract.estimate import Estimate, LearnedRun
from core.estimate import Learned, best_cards, card_choices, estimate, predict, resolve
from core.estimate.duration import slowest_share
from core.estimate.fit import measured
from core.estimate.inputs.cards import copy_rate
from core.machine.hardware import Gpu, Machine
from core.train.ranks.share import shares
from tests.unit.estimate.conftest import CPU, GIB, model, rows

SLOW, FAST = ("NVIDIA GeForce RTX 3060", 11.0), ("NVIDIA GeForce RTX 4090", 22.0)
FACTS, SPEC = rows((500,) * 1000), model("qwen3-4b")


def machine(*cards: tuple[str, float], ram_gib: int = 24) -> Machine:
    """A machine with these cards, by name and free GiB."""
    gpus = tuple(
        Gpu(number, f"GPU-{number}", name, int((free + 1) * GIB), int(free * GIB), (8, 6), power_limit_watts=200.0)
        for number, (name, free) in enumerate(cards)
    )
    return Machine(gpus, 8, 32 * GIB, ram_gib * GIB, 100 * GIB, "Linux", wsl=False)


def needed(on: Machine, cards: str, learned: Learned | None = None, **train: object) -> Estimate:
    config = RunConfig(train=TrainChoice.model_validate({"cards": cards, **train}))
    return estimate(config, SPEC, FACTS, on.choosing(cards), learned)


def middle(figures: Estimate) -> float:
    assert figures.seconds is not None
    return sum(figures.seconds) / 2


def test_two_alike_cards_take_half_the_time_and_each_the_same_memory() -> None:
    pair = machine(SLOW, SLOW)
    one, two = needed(pair, "0"), needed(pair, "0,1")
    assert (one.cards, two.cards) == (1, 2)
    assert 1.7 < middle(one) / middle(two) < 2
    assert one.peak_bytes == two.peak_bytes
    assert two.sentence == one.sentence.replace("free.", "free on each card.")
    assert two.host_bytes == 2 * one.host_bytes
    assert one.energy_kwh is not None
    assert two.energy_kwh is not None
    assert two.energy_kwh[0] == pytest.approx(one.energy_kwh[0], rel=0.1), "twice the watts for half the time"
    assert "126 MB of gradients a step over 8 GB/s between the cards" in two.time_basis
    nvlinked = machine(("NVIDIA H200", 130), ("NVIDIA H200", 130))
    assert "over 450 GB/s" in needed(nvlinked, "all").time_basis


def test_a_row_stays_whole_so_a_step_of_five_is_three_and_two() -> None:
    pair, step = machine(SLOW, SLOW), {"per_device_train_batch_size": 5, "gradient_accumulation_steps": 1}
    five, six = needed(pair, "0,1", **step), needed(pair, "0,1", **{**step, "per_device_train_batch_size": 6})
    assert "5 rows, of which 2 cards have up to 3 each: a multiple of 2 is shared evenly" in " ".join(five.notes)
    assert not any("multiple" in note for note in six.notes)
    assert five.tokens_per_second is not None
    assert six.tokens_per_second is not None
    assert five.tokens_per_second[1] < 0.9 * six.tokens_per_second[1]
    single = {**step, "per_device_train_batch_size": 1}
    assert middle(needed(pair, "0,1", **single)) >= middle(needed(pair, "0", **single)), "one row keeps one card busy"


@pytest.mark.parametrize("order", [(SLOW, FAST), (FAST, SLOW)])
def test_of_unlike_cards_the_smaller_decides_what_fits_and_each_has_rows_by_its_speed(
    order: tuple[tuple[str, float], ...],
) -> None:
    pair, alike = needed(machine(*order), "0,1"), needed(machine(SLOW, SLOW), "0,1")
    assert pair.free_bytes == alike.free_bytes
    whole = {"tokens_per_pass": 50_000, "checkpointing": "recompute"}
    assert needed(machine(*order), "0,1", **whole).peak_bytes > needed(machine(SLOW, SLOW), "0,1", **whole).peak_bytes
    fast = needed(machine(FAST), "0")
    together = 1 / (1 / middle(fast) + 1 / (2 * middle(alike)))
    assert middle(pair) == pytest.approx(together, rel=0.25), "all are done at about the same time"
    assert middle(pair) < middle(fast)
    assert "the RTX 3060 says what fits." in " ".join(pair.notes)
    roomy = machine((SLOW[0], 23.0), FAST)
    assert "by its measured speed; the RTX 4090 says what fits." in " ".join(needed(roomy, "all").notes)
    old = machine(FAST, SLOW)
    old = replace(old, gpus=(old.gpus[0], replace(old.gpus[1], free_bytes=40 * GIB, compute_capability=(7, 5))))
    config = RunConfig(train=TrainChoice(cards="0,1"))
    assert resolve(config, SPEC, FACTS, old.choosing("0,1"))[0].model.dtype == "float16", "the older has no bfloat16"
    reasons = {line.key: line.reason for line in resolve(config, SPEC, FACTS, old.choosing("0,1"))[1]}
    assert reasons["model.dtype"] == "NVIDIA GeForce RTX 3060 has no bfloat16", "not the one that decides by memory"
    eight = RunConfig(train=TrainChoice(cards="0,1", arithmetic="fp8"))
    ada = replace(old, gpus=(replace(old.gpus[0], compute_capability=(8, 9)), old.gpus[1]))
    lines = {line.key: line.reason for line in resolve(eight, SPEC, FACTS, ada.choosing("0,1"))[1]}
    assert lines["train.arithmetic"].startswith("NVIDIA GeForce RTX 3060 multiplies no fp8"), lines


@given(st.integers(1, 200), st.lists(st.integers(10, 80), min_size=1, max_size=6))
def test_the_slowest_cards_share_is_what_dealing_rows_by_speed_gives(rows: int, paces: list[int]) -> None:
    """Never less than its part by speed, and at most a row of the slowest more; of alike cards the fullest one's."""
    relative = [pace / min(paces) for pace in paces]
    share, even = slowest_share(rows, relative), 1 / sum(relative)
    assert even - 1e-9 <= share <= even + 1 / rows + 1e-9
    dealt = shares([1] * rows, relative)
    assert share == pytest.approx(max(len(one) / pace for one, pace in zip(dealt, relative, strict=True)) / rows)
    assert slowest_share(rows, [1.0] * len(paces)) == pytest.approx(-(-rows // len(paces)) / rows)


def test_the_quickest_cards_that_fit_are_proposed_and_more_only_where_they_are_worth_it() -> None:
    def best(*cards: tuple[str, float]) -> str:
        chosen = best_cards(card_choices(RunConfig(), SPEC, FACTS, machine(*cards)))
        return chosen.cards if chosen else ""

    assert best(SLOW, SLOW) == "0,1"
    assert best(SLOW, FAST) == "1", "the slow one adds too little"
    assert best(("NVIDIA GeForce RTX 3090", 22.0), FAST) == "0,1", "each has rows by its speed"
    assert best(FAST, FAST, SLOW) == "0,1"
    assert best(SLOW) == "", "nothing to choose"
    assert best(SLOW, (FAST[0], 2.0)) == "0", "nothing fits into what is left of the other"
    two_sizes = machine(SLOW, (SLOW[0], 7.0), (SLOW[0], 11.1))
    assert [choice.cards for choice in card_choices(RunConfig(), SPEC, FACTS, two_sizes)] == ["2", "1", "0,2", "0,1,2"]
    assert two_sizes.choosing("0,1").unlike, "one name, two memories"
    assert not two_sizes.choosing("0,2").unlike


def test_short_machine_memory_names_the_cards() -> None:
    notes = " ".join(needed(machine(SLOW, SLOW, ram_gib=4), "0,1").notes)
    assert "(each of 2 cards has a process with its own copy)" in notes
    assert "choose fewer cards" in notes


def test_processes_on_one_cpu_share_its_memory() -> None:
    one, two = needed(CPU, ""), needed(CPU, "0,1")
    assert two.free_bytes == CPU.ram_free_bytes // 2
    assert two.peak_bytes < one.peak_bytes
    assert "for each process" in two.sentence


def test_earlier_runs_on_one_card_tell_of_two_and_those_on_two_tell_better() -> None:
    pair = machine(SLOW, SLOW)

    def ran(cards: str, rate: float) -> LearnedRun:
        job = pair.choosing(cards)
        like = predict(resolve(RunConfig(), SPEC, FACTS, job)[0], SPEC, FACTS, job)
        told = {"kernels": "fast", "steps": 50, "watts": 150.0 * like.cards, "measured_tokens_per_second": rate}
        return like.model_copy(update=told)

    alone = needed(pair, "0,1", Learned((ran("0", 700.0),)))
    assert alone.tokens_per_second is not None
    assert 1.8 * 700 < sum(alone.tokens_per_second) / 2 < 2 * 700
    assert "1 earlier run like this one on this machine; 126 MB" in alone.time_basis
    both = needed(pair, "0,1", Learned((ran("0", 700.0), ran("0,1", 1200.0))))
    assert both.tokens_per_second == pytest.approx((1080.0, 1320.0))
    assert "drew 300 W" in both.energy_basis
    assert needed(pair, "0", Learned((ran("0,1", 1200.0),))).tokens_per_second == needed(pair, "0").tokens_per_second


SEVENTY = model("llama-3.3-70b")
LONG = rows((8192,) * 40, 8192)


def capped(
    ram_gib: int,
    cards: str = "0,1,2,3",
    streamed: int = -1,
    length: int = 8192,
    learned: Learned | None = None,
    form: str = "nf4",
) -> Estimate:
    """A 70B on four cards of 16 GiB each, a row of 8,192 tokens a card and step."""
    here = machine(*[("NVIDIA H200", 16.0)] * 4, ram_gib=ram_gib).choosing(cards)
    step = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1, "max_length": length}
    raw = {"train": {"cards": cards, **step}, "model": {"streamed_layers": streamed, "quantization": form}}
    return estimate(RunConfig.model_validate(raw), SEVENTY, rows((length,) * 40, length), here, learned)


def test_streamed_layers_lie_in_the_machines_memory_once_for_all_cards() -> None:
    one, four = capped(96, "0"), capped(96)
    assert (one.verdict, four.verdict) == ("fits", "fits"), four.sentence
    assert (one.streamed_layers, one.host_weights_bytes) == (four.streamed_layers, four.host_weights_bytes)
    assert four.host_weights_bytes > 25 * GIB
    rest = one.host_bytes - one.host_weights_bytes
    assert four.host_bytes == four.host_weights_bytes + 4 * rest, "once, and four processes"
    said = " ".join(four.notes)
    assert f"{four.host_weights_bytes / GIB:.1f} GB of it, once for all 4 cards" in said
    assert "once for all" not in " ".join(one.notes)
    config = RunConfig.model_validate({"train": {"cards": "all", "max_length": 8192}})
    here = machine(*[("NVIDIA H200", 16.0)] * 4, ram_gib=96).choosing("all")
    reasons = [line.reason for line in resolve(config, SEVENTY, LONG, here)[1] if line.key == "model.streamed_layers"]
    assert "in the machine's memory once for all 4 cards" in reasons[0]


def test_streamed_layers_that_memory_does_not_hold_are_too_large() -> None:
    """Counted once: what is missing is what must become free."""
    small = capped(24, streamed=76)
    assert small.verdict == "too_large"
    lacks = small.host_weights_bytes + 4 * small.pinned_bytes - 24 * GIB
    assert small.sentence.endswith(
        f"which lacks {lacks / GIB:.1f} GB. Close other programs, or choose a smaller model."
    )
    assert capped(40, streamed=76).sentence.endswith("or shorten the longest example."), "the weights alone are there"
    assert capped(96, "0", 80, 1024).verdict == "fits"
    whole = capped(96, "0", 80, 1024, form="none").sentence
    assert whole.endswith("hold the weights in 4 bits (NF4), or choose a smaller model."), whole
    assert "streamed layers lie there once" in " ".join(small.notes)
    assert capped(24).streamed_layers == 0, "none is proposed that cannot be held"


def test_fewer_streamed_layers_are_advised_where_the_card_holds_the_others() -> None:
    said = capped(32, "0", 80, 1024).sentence
    found = re.search(r"Close other programs, stream at most (\d+) layers, or", said)
    assert found is not None, said
    most = int(found[1])
    assert capped(32, "0", most, 1024).verdict == "fits"
    assert capped(32, "0", most + 1, 1024).verdict == "too_large"


def test_cards_that_copy_at_once_share_what_the_machines_memory_gives() -> None:
    """Each alone has its bus; together they have no more than the memory, as assumed or as a run on several found."""

    def ran(cards: int, rate: float) -> LearnedRun:
        return LearnedRun(card="NVIDIA H200", cards=cards, copy_bytes_a_second=rate)

    def rate(cards: int, *runs: LearnedRun) -> float:
        return copy_rate(measured(machine(*[("NVIDIA H200", 16.0)] * cards).choosing("all"), Learned(runs)))

    assert [rate(cards) for cards in (1, 2, 4)] == [20e9, 20e9, 15e9]
    alone = ran(1, 49e9)
    assert [rate(cards, alone) for cards in (1, 2, 4)] == [49e9, 30e9, 15e9]
    assert [rate(cards, alone, ran(2, 45e9)) for cards in (1, 2, 4)] == [49e9, 45e9, 22.5e9]
    assert rate(4, alone, ran(2, 45e9), ran(4, 40e9)) == 40e9
    assert [rate(cards, ran(4, 11.5e9)) for cards in (1, 2, 4)] == [20e9, 20e9, 11.5e9], "four shared 46"
    assert [rate(cards, ran(4, 11.5e9), alone) for cards in (1, 2)] == [49e9, 23e9]
    assert [rate(cards, ran(2, 6e9)) for cards in (1, 2, 4)] == [12e9, 6e9, 3e9]
    another = ran(2, 10e9).model_copy(update={"card": "another"})
    assert [rate(cards, another) for cards in (1, 2, 4)] == [20e9, 10e9, 5e9], "the memory is the same"
    one, four = (capped(96, cards, 78, 1024, Learned((alone,))) for cards in ("0", "0,1,2,3"))
    assert four.copy_seconds > 2 * one.copy_seconds
    assert one.tokens_per_second is not None
    assert four.tokens_per_second is not None
    assert four.tokens_per_second[1] < 3.5 * one.tokens_per_second[1]
    assert "copying them at 15 GB/s to each card at once adds about" in " ".join(four.notes)
    assert " at once" not in " ".join(one.notes)
