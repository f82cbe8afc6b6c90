"""Time, energy and money: counted work against what a card took, and what earlier runs teach the next estimate."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from core.contract.catalogue import ModelSpec
from core.contract.config import LoraChoice, ModelChoice, RunConfig, TrainChoice
from core.contract.data import DataFacts
from core.contract.estimate import LearnedRun, Probe
from core.estimate import Learned, estimate, predict, probed
from core.estimate.duration import operations_per_token, seconds_per_token, start_seconds
from core.estimate.estimate import CHECKPOINTS
from core.estimate.inputs.cards import published
from core.estimate.inputs.work import GIB, work_of
from core.machine.hardware import Machine

Card = Callable[..., Machine]
Rows = Callable[..., DataFacts]
Model = Callable[[str], ModelSpec]
RTX = "NVIDIA GeForce RTX 4070"

H200 = [
    # model, checkpointing, tokens a pass, tokens of the row a token stands in, GiB for a budget, tokens a second
    ("mistral-7b", "none", 8192, 2048, 0.0, 17965.1),
    ("mistral-7b", "offload", 8192, 2048, 0.0, 13479.9),
    ("mistral-7b", "offload", 2048, 2048, 0.0, 12099.0),
    ("mistral-7b", "budget", 8192, 2048, 23.68, 16584.5),
    ("mistral-7b", "budget", 8192, 2048, 11.68, 14375.5),
    ("mistral-7b", "none", 3934, 330, 0.0, 17354.9),
    ("mistral-7b", "budget", 3934, 330, 7.7, 13790.8),
    ("llama-3.1-8b", "offload", 32768, 32768, 0.0, 7158.5),
]
"""Measured on one NVIDIA H200: ``tests/gpu/results/fast_core_2026-11-21.json``."""


@pytest.mark.parametrize(("key", "checkpointing", "tokens", "row", "gib", "measured"), H200)
def test_counted_time_is_what_a_card_took(
    key: str, checkpointing: str, tokens: int, row: int, gib: float, measured: float, model: Model
) -> None:
    train = TrainChoice(checkpointing=checkpointing, optim="adamw_8bit")
    config = RunConfig(model=ModelChoice(dtype="bfloat16"), train=train)
    card = published("NVIDIA H200")
    assert card is not None
    work = work_of(config, model(key), tokens, gpu=True, limit=int(gib * GIB))
    assert 1 / seconds_per_token(work, row, card) == pytest.approx(measured, rel=0.08)


def test_short_passes_are_said_to_wait_for_the_host(card: Card, rows: Rows, model: Model) -> None:
    """Two hosts beside the same card took 84 and 172 ms for these 4,096 tokens, and both lie in the range."""
    train = TrainChoice(checkpointing="none", max_length=512, per_device_train_batch_size=8, tokens_per_pass=4096)
    config = RunConfig(lora=LoraChoice(r=128), train=train)
    found = estimate(config, model("tinyllama-1.1b"), rows((512,) * 640), card(130, (9, 0), "NVIDIA H200"))
    assert found.tokens_per_second is not None
    low, high = found.tokens_per_second
    assert low < 4096 / 0.172 < 4096 / 0.084 < high
    assert "wait for the processor" in found.time_basis
    long = estimate(config, model("mistral-7b"), rows((2048,) * 64), card(130, (9, 0), "NVIDIA H200"))
    assert "wait for the processor" not in long.time_basis


def test_operations_agree_with_a_timed_matrix_count(model: Model) -> None:
    """The products of one Mistral-7B step over 8,192 tokens, without head, took 0.334 s at 669 to 685 TFLOP/s."""
    config = RunConfig(train=TrainChoice(checkpointing="none"))
    spec = model("mistral-7b")
    work = work_of(config, spec, 8192, gpu=True)
    head = 4 * spec.shape.vocab_size * spec.shape.hidden_size
    adapters = 6 * 41_943_040
    products = 8192 * (operations_per_token(work, 0) - head - adapters)
    assert products / 0.334 == pytest.approx(677e12, rel=0.03)


def test_figures_are_found_by_the_whole_name() -> None:
    tera = {name: card.operations / 1e12 for name in NAMES if (card := published(name))}
    assert tera == {
        "NVIDIA GeForce RTX 4060 Ti": 44.1, "NVIDIA GeForce RTX 4060": 30.2, "NVIDIA H200": 989,
        "NVIDIA GeForce RTX 4070 SUPER": 71.0, "NVIDIA A100-SXM4-40GB": 312.0,
    }  # fmt: skip


NAMES = (
    "NVIDIA GeForce RTX 4060 Ti", "NVIDIA GeForce RTX 4060", "NVIDIA H200", "NVIDIA GeForce RTX 4070 SUPER",
    "NVIDIA GeForce RTX 4070 Laptop GPU", "NVIDIA GeForce RTX 2080 SUPER", "NVIDIA RTX A1000", "Imaginary 1",
    "NVIDIA A100-SXM4-40GB", "NVIDIA GeForce RTX 3080 with Max-Q Design",
)  # fmt: skip


def test_time_rests_on_something_or_is_not_said(card: Card, model: Model, rows: Rows, cpu: Machine) -> None:
    facts, spec = rows((500,) * 1000), model("qwen3-4b")
    known = estimate(RunConfig(), spec, facts, card(11, name=RTX))
    assert known.seconds is not None
    assert known.tokens_per_second is not None
    assert 0 < known.seconds[0] < known.seconds[1]
    assert known.time_basis.startswith("estimated")
    for machine in (cpu, card(11, name=RTX + " Laptop GPU"), card(11, name="Imaginary 1")):
        unknown = estimate(RunConfig(), spec, facts, machine)
        assert unknown.seconds is None
        assert unknown.energy_kwh is None
        assert "no speed known" in unknown.time_basis


def taught(config: RunConfig, spec: ModelSpec, facts: DataFacts, machine: Machine, **measured: Any) -> LearnedRun:
    """The line of a run like this one."""
    return predict(config, spec, facts, machine).model_copy(update={"run_id": "a", "steps": 50, **measured})


def test_a_run_like_it_sets_the_speed(card: Card, model: Model, rows: Rows, cpu: Machine) -> None:
    facts, spec, config = rows((500,) * 1000), model("qwen3-4b"), RunConfig()
    for machine in (card(11, name=RTX), card(11, name="Imaginary 1"), cpu):
        line = taught(config, spec, facts, machine, measured_tokens_per_second=1000.0)
        found = estimate(config, spec, facts, machine, Learned((line,)))
        assert found.tokens_per_second == pytest.approx((900, 1100), rel=0.01)
        assert found.time_basis == "estimated, from 1 earlier run like this one on this machine"
        assert found.seconds is not None
        low, high = found.seconds
        assert low < 1.1 * found.tokens_per_epoch * 3 / 1000 < high


def test_the_middle_of_several_runs_counts_and_short_ones_do_not(card: Card, model: Model, rows: Rows) -> None:
    facts, spec, config, machine = rows((500,) * 1000), model("qwen3-4b"), RunConfig(), card(11, name=RTX)
    rates = (900.0, 1000.0, 5000.0)
    lines = [taught(config, spec, facts, machine, measured_tokens_per_second=rate) for rate in rates]
    lines.append(taught(config, spec, facts, machine, measured_tokens_per_second=7.0, steps=2))
    found = estimate(config, spec, facts, machine, Learned(tuple(lines)))
    assert found.tokens_per_second == pytest.approx((900, 1100), rel=0.01)


def test_another_model_teaches_the_card_and_another_card_nothing(card: Card, model: Model, rows: Rows) -> None:
    facts, config, machine = rows((500,) * 1000), RunConfig(), card(11, name=RTX)
    small = predict(config, model("qwen3-0.6b"), facts, machine)
    line = taught(
        config, model("qwen3-0.6b"), facts, machine,
        measured_tokens_per_second=0.5 * small.predicted_tokens_per_second,
    )  # fmt: skip
    plain = estimate(config, model("qwen3-4b"), facts, machine)
    found = estimate(config, model("qwen3-4b"), facts, machine, Learned((line,)))
    counted = predict(config, model("qwen3-4b"), facts, machine).predicted_tokens_per_second
    assert found.tokens_per_second == pytest.approx((0.35 * counted, 0.65 * counted), rel=0.01)
    assert "of other models" in found.time_basis
    elsewhere = estimate(
        config, model("qwen3-4b"), facts, machine, Learned((line.model_copy(update={"card": "other"}),))
    )
    assert elsewhere.tokens_per_second == plain.tokens_per_second


@pytest.mark.parametrize(
    ("ratios", "factor"),
    [((1.06,), 1.06), ((1.02, 1.06, 0.9), 1.06), ((3.0,), 1.15), ((0.97,), 1.0), ((0.97, 0.96), 0.97),
     ((0.5, 0.4), 0.95), ((), 1.0)],
)  # fmt: skip
def test_memory_is_corrected_within_bounds_and_said(
    ratios: tuple[float, ...], factor: float, card: Card, model: Model, rows: Rows
) -> None:
    facts, spec, config, machine = rows((500,) * 1000), model("qwen3-4b"), RunConfig(), card(20, name=RTX)
    plain = estimate(config, spec, facts, machine)
    lines = [
        taught(
            config, spec, facts, machine, measured_bytes=round(ratio * plain.allocated_bytes),
            measured_reserved_bytes=round(ratio * plain.reserved_bytes),
        )
        for ratio in ratios
    ]  # fmt: skip
    found = estimate(config, spec, facts, machine, Learned(tuple(lines)))
    assert found.allocated_bytes == pytest.approx(factor * plain.allocated_bytes, rel=1e-4)
    assert found.reserved_bytes == pytest.approx(factor * plain.reserved_bytes, rel=1e-4)
    assert sum(term.at_peak for term in found.terms) == found.peak_bytes
    assert found.learned_from == len(ratios)
    said = [note for note in found.notes if "memory than counted" in note]
    assert len(said) == (factor != 1)


def test_other_settings_teach_nothing_of_memory(card: Card, model: Model, rows: Rows) -> None:
    facts, spec, config, machine = rows((500,) * 1000), model("qwen3-4b"), RunConfig(), card(20, name=RTX)
    plain = estimate(config, spec, facts, machine)
    line = taught(config, spec, facts, machine, measured_bytes=2 * plain.allocated_bytes)
    for other in (RunConfig(lora=LoraChoice(r=32)), RunConfig(train=TrainChoice(kernels="plain"))):
        assert estimate(other, spec, facts, machine, Learned((line,))).learned_from == 0
    assert estimate(config, model("qwen3-8b"), facts, machine, Learned((line,))).learned_from == 0


def test_a_probe_corrects_the_plan_like_a_run(card: Card, model: Model, rows: Rows) -> None:
    facts, spec, config, machine = rows((500,) * 1000), model("qwen3-4b"), RunConfig(), card(20, name=RTX)
    plain = estimate(config, spec, facts, machine)
    told = Probe(
        peak_bytes=round(1.1 * plain.allocated_bytes), reserved_bytes=round(1.1 * plain.reserved_bytes),
        seconds_per_step=1.0, tokens_per_second=2000.0, spilled=False, steps=4,
    )  # fmt: skip
    found = estimate(config, spec, facts, machine, Learned().plus(probed(told, config, spec, facts, machine)))
    assert found.allocated_bytes == pytest.approx(1.1 * plain.allocated_bytes, rel=1e-4)
    assert found.tokens_per_second == pytest.approx((1800, 2200), rel=0.01)


def test_energy_follows_from_time_and_watts(card: Card, model: Model, rows: Rows) -> None:
    facts, spec, config, machine = rows((500,) * 1000), model("qwen3-4b"), RunConfig(), card(11, name=RTX)
    found = estimate(config, spec, facts, machine)
    assert found.seconds is not None
    assert found.energy_kwh == pytest.approx([second * 200 / 3.6e6 for second in found.seconds])
    assert "200 W" in found.energy_basis
    limited = dataclasses.replace(machine, gpus=(dataclasses.replace(machine.gpus[0], power_limit_watts=100.0),))
    less = estimate(config, spec, facts, limited)
    assert less.energy_kwh == pytest.approx([second * 100 / 3.6e6 for second in found.seconds])
    drawn = Learned((taught(config, spec, facts, machine, watts=150.0),))
    assert estimate(config, spec, facts, limited, drawn).energy_kwh == pytest.approx(
        [second * 150 / 3.6e6 for second in found.seconds]
    )


def test_disk_counts_as_many_checkpoints_as_stand() -> None:
    pytest.importorskip("torch")
    from core.train.keep.checkpoint import KEPT

    assert CHECKPOINTS == KEPT + 2, "the best, and one on its way"


def test_starting_counts_as_earlier_runs_took_else_by_what_is_loaded() -> None:
    low, high = start_seconds(2_000_000, None)
    assert 3 < low < high < 20
    assert start_seconds(14_000_000_000, None)[1] > high + 40
    assert start_seconds(14_000_000_000, 10.0) == (5.0, 15.0)
