"""What earlier runs on this machine teach the next estimate and the next plan: speed, memory, watts, starting."""

from typing import Any

import pytest

from core.contract.catalogue import ModelSpec
from core.contract.config import LoraChoice, RunConfig, TrainChoice
from core.contract.data import DataFacts
from core.contract.estimate import Estimate, LearnedRun, Probe
from core.estimate import Learned, estimate, make_it_fit, predict, probed, resolve
from core.estimate.duration import start_seconds
from core.machine.hardware import Machine
from tests.unit.estimate.conftest import CPU, card, model, rows

RTX = "NVIDIA GeForce RTX 4070"
FACTS, SPEC, CONFIG = rows((500,) * 1000), model("qwen3-4b"), RunConfig()
CARD, ROOMY = card(11, name=RTX), card(20, name=RTX)


def taught(
    machine: Machine = CARD, config: RunConfig = CONFIG, spec: ModelSpec = SPEC, facts: DataFacts | None = FACTS,
    more: float = 0, **measured: Any,
) -> LearnedRun:  # fmt: skip
    """The line of a run like this one; ``more``: it took so many times the memory that was predicted."""
    line = predict(config, spec, facts, machine)
    took = {"measured_bytes": round(more * line.predicted_bytes)}
    took["measured_reserved_bytes"] = round(more * line.predicted_reserved_bytes)
    return line.model_copy(update={"run_id": "a", "steps": 50, **took, **measured})


def after(*lines: LearnedRun, machine: Machine = CARD, config: RunConfig = CONFIG) -> Estimate:
    return estimate(config, SPEC, FACTS, machine, Learned(lines))


@pytest.mark.parametrize("machine", [CARD, card(11, name="Imaginary 1"), CPU])
def test_a_run_like_it_sets_the_speed(machine: Machine) -> None:
    estimated = after(taught(machine, measured_tokens_per_second=1000.0), machine=machine)
    assert estimated.tokens_per_second == pytest.approx((900, 1100), rel=0.01)
    assert estimated.time_basis == "estimated, from 1 earlier run like this one on this machine"
    low, high = estimated.seconds or (0, 0)
    assert low < 1.1 * estimated.tokens_per_epoch * 3 / 1000 < high


def test_the_middle_of_several_runs_counts_and_short_ones_do_not() -> None:
    lines = [taught(measured_tokens_per_second=rate) for rate in (900.0, 1000.0, 5000.0)]
    estimated = after(*lines, taught(measured_tokens_per_second=7.0, steps=2))
    assert estimated.tokens_per_second == pytest.approx((900, 1100), rel=0.01)


def test_another_model_teaches_the_card_and_another_card_nothing() -> None:
    small = predict(CONFIG, model("qwen3-0.6b"), FACTS, CARD)
    line = taught(spec=model("qwen3-0.6b"), measured_tokens_per_second=0.5 * small.predicted_tokens_per_second)
    counted = predict(CONFIG, SPEC, FACTS, CARD).predicted_tokens_per_second
    assert after(line).tokens_per_second == pytest.approx((0.35 * counted, 0.65 * counted), rel=0.01)
    assert "of other models" in after(line).time_basis
    assert after(line.model_copy(update={"card": "other"})).tokens_per_second == after().tokens_per_second


@pytest.mark.parametrize(
    ("ratios", "factor"),
    [((1.06,), 1.06), ((1.02, 1.06, 0.9), 1.06), ((3.0,), 1.15), ((0.97,), 1.0), ((0.97, 0.96), 0.97),
     ((0.5, 0.4), 0.95), ((), 1.0)],
)  # fmt: skip
def test_memory_is_corrected_within_bounds_and_said(ratios: tuple[float, ...], factor: float) -> None:
    plain, estimated = after(machine=ROOMY), after(*(taught(ROOMY, more=ratio) for ratio in ratios), machine=ROOMY)
    assert estimated.allocated_bytes == pytest.approx(factor * plain.allocated_bytes, rel=1e-4)
    assert estimated.reserved_bytes == pytest.approx(factor * plain.reserved_bytes, rel=1e-4)
    assert sum(term.at_peak for term in estimated.terms) == estimated.peak_bytes
    assert estimated.learned_from == len(ratios)
    assert any("memory than counted" in note for note in estimated.notes) == (factor != 1)


def test_other_settings_teach_nothing_of_memory() -> None:
    line = taught(ROOMY, more=2)
    for other in (RunConfig(lora=LoraChoice(r=32)), RunConfig(train=TrainChoice(kernels="plain"))):
        assert after(line, machine=ROOMY, config=other).learned_from == 0
    assert estimate(CONFIG, model("qwen3-8b"), FACTS, ROOMY, Learned((line,))).learned_from == 0


def test_a_probe_corrects_the_plan_like_a_run() -> None:
    plain = after(machine=ROOMY)
    told = Probe(
        peak_bytes=round(1.1 * plain.allocated_bytes), reserved_bytes=round(1.1 * plain.reserved_bytes),
        seconds_per_step=1.0, tokens_per_second=2000.0, spilled=False, steps=4,
    )  # fmt: skip
    estimated = after(probed(told, CONFIG, SPEC, FACTS, ROOMY), machine=ROOMY)
    assert estimated.allocated_bytes == pytest.approx(1.1 * plain.allocated_bytes, rel=1e-4)
    assert estimated.tokens_per_second == pytest.approx((1800, 2200), rel=0.01)


@pytest.mark.parametrize("more", [1.02, 1.08, 1.15])
@pytest.mark.parametrize(("key", "free"), [("mistral-7b", 7.0), ("qwen3-8b", 11.0), ("llama-3.2-3b", 5.0)])
def test_an_automatic_plan_fits_after_a_run_that_took_more(key: str, free: float, more: float) -> None:
    spec, machine = model(key), card(free)
    first, _ = resolve(CONFIG, spec, None, machine)
    assert estimate(first, spec, None, machine).verdict == "fits"
    learned = Learned((taught(machine, first, spec, None, more),))
    full, lines = resolve(CONFIG, spec, None, machine, learned)
    estimated = estimate(full, spec, None, machine, learned)
    assert estimated.verdict == "fits"
    assert estimated.limit_bytes, "what was chosen is now a limit that is set"
    alike = estimated.model_copy(update={"limit_bytes": None})
    assert alike == estimate(CONFIG, spec, None, machine, learned), "the choice, and what was made of it"
    assert make_it_fit(CONFIG, spec, None, machine, learned) == ()
    if full != first:
        reason = next(line.reason for line in lines if line.key == "train.memory_gib")
        assert full.train.memory_gib < first.train.memory_gib
        assert f"took {more - 1:.0%} more than counted" in reason


@pytest.mark.parametrize(
    ("train", "key", "free"), [({"max_length": 256}, "qwen2.5-0.5b", 23.0), ({"memory_gib": 6.2}, "mistral-7b", 7.0)]
)  # fmt: skip
def test_a_plan_with_room_enough_or_with_memory_chosen_by_hand_stays(
    train: dict[str, Any], key: str, free: float
) -> None:
    config, spec, machine = RunConfig(train=TrainChoice(**train)), model(key), card(free)
    first, _ = resolve(config, spec, None, machine)
    assert resolve(config, spec, None, machine, Learned((taught(machine, first, spec, None, 1.1),)))[0] == first


def test_a_setting_that_took_more_than_counted_gets_suggestions() -> None:
    config = RunConfig(train=TrainChoice(checkpointing="none", tokens_per_pass=4096))
    need = after(machine=card(200), config=config).peak_bytes / 1024**3
    machine = card(need / 0.9 * 1.02)
    assert make_it_fit(config, SPEC, FACTS, machine, others=()) == ()
    assert make_it_fit(config, SPEC, FACTS, machine, Learned((taught(machine, config, more=1.1),)), others=())


@pytest.mark.parametrize(("method", "epochs"), [("dpo", 1.0), ("dpo", 3.0), ("kto", 3.0)])
def test_forward_passes_beside_are_counted_once_and_are_in_what_runs_measure(method: str, epochs: float) -> None:
    config = RunConfig.model_validate(
        {"method": method, "data": {"eval_fraction": 0}, "train": {"num_train_epochs": epochs, "save_steps": 10**9}}
    )
    line = taught(config=config)
    rate = line.predicted_tokens_per_second
    taught_by_it = after(line.model_copy(update={"measured_tokens_per_second": rate}), config=config)
    counted = after(config=config)
    assert counted.tokens_per_second is not None
    assert counted.tokens_per_second[0] < rate < counted.tokens_per_second[1]
    begun, _ = start_seconds(2 * SPEC.shape.parameters, None)
    low, _ = taught_by_it.seconds or (0, 0)
    tokens = taught_by_it.tokens_per_epoch * epochs
    assert low == pytest.approx(tokens / (1.1 * rate) + begun, rel=1e-3), "what runs measure has these passes already"
    plain = RunConfig.model_validate({"data": {"eval_fraction": 0}, "train": {"num_train_epochs": epochs}})
    sft = taught(config=plain).predicted_tokens_per_second
    passes = {"dpo": 1 / epochs, "kto": 2 + 1 / epochs}[method]
    assert sft / rate == pytest.approx(1 + passes / 3, rel=0.02)
