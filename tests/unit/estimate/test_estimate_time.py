"""Time and energy: counted work against what a card took."""

import dataclasses
import json

import pytest

from core.contract.config import LoraChoice, ModelChoice, RunConfig, TrainChoice
from core.estimate import Learned, estimate, predict
from core.estimate.duration import seconds_per_token, start_seconds
from core.estimate.estimate import CHECKPOINTS
from core.estimate.inputs.cards import published
from core.estimate.inputs.work import GIB, work_of
from core.machine.locations import REPOSITORY
from tests.unit.estimate.conftest import CPU, card, model, rows

RTX = "NVIDIA GeForce RTX 4070"
FACTS, SPEC = rows((500,) * 1000), model("qwen3-4b")

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
    key: str, checkpointing: str, tokens: int, row: int, gib: float, measured: float
) -> None:
    train = TrainChoice(checkpointing=checkpointing, optim="adamw_8bit")
    config = RunConfig(model=ModelChoice(dtype="bfloat16"), train=train)
    work = work_of(config, model(key), tokens, gpu=True, limit=int(gib * GIB))
    assert 1 / seconds_per_token(work, row, published("NVIDIA H200")) == pytest.approx(measured, rel=0.08)


def test_short_passes_are_said_to_wait_for_the_host() -> None:
    """Two hosts beside the same card took 84 and 172 ms for these 4,096 tokens, and both lie in the range."""
    train = TrainChoice(checkpointing="none", max_length=512, per_device_train_batch_size=8, tokens_per_pass=4096)
    config = RunConfig(lora=LoraChoice(r=128), train=train)
    estimated = estimate(config, model("tinyllama-1.1b"), rows((512,) * 640), card(130, (9, 0), "NVIDIA H200"))
    low, high = estimated.tokens_per_second or (0, 0)
    assert low < 4096 / 0.172 < 4096 / 0.084 < high
    assert "wait for the processor" in estimated.time_basis
    long = estimate(config, model("mistral-7b"), rows((2048,) * 64), card(130, (9, 0), "NVIDIA H200"))
    assert "wait for the processor" not in long.time_basis


@pytest.mark.parametrize(
    ("name", "tera"),
    [("GeForce RTX 4060 Ti", 44.1), ("GeForce RTX 4060", 30.2), ("GeForce RTX 4070 SUPER", 71.0), ("H200", 989),
     ("A100-SXM4-40GB", 312.0), ("GeForce RTX 4070 Laptop GPU", None), ("GeForce RTX 2080 SUPER", None),
     ("RTX A1000", None), ("GeForce RTX 3080 with Max-Q Design", None)],
)  # fmt: skip
def test_figures_are_found_by_the_whole_name(name: str, tera: float | None) -> None:
    known = published(f"NVIDIA {name}")
    assert (known and known.operations / 1e12) == tera


def test_time_rests_on_something_or_is_not_said() -> None:
    known = estimate(RunConfig(), SPEC, FACTS, card(11, name=RTX))
    low, high = known.seconds or (0, 0)
    assert 0 < low < high
    assert known.tokens_per_second is not None
    assert known.time_basis.startswith("estimated")
    for machine in (CPU, card(11, name=RTX + " Laptop GPU"), card(11, name="Imaginary 1")):
        unknown = estimate(RunConfig(), SPEC, FACTS, machine)
        assert (unknown.seconds, unknown.energy_kwh) == (None, None)
        assert "no speed known" in unknown.time_basis


def test_energy_follows_from_time_and_watts() -> None:
    """Of watts those of earlier runs count, else the card's limit, else what is published."""
    machine = card(11, name=RTX)
    limited = dataclasses.replace(machine, gpus=(dataclasses.replace(machine.gpus[0], power_limit_watts=100.0),))
    drawn = Learned((predict(RunConfig(), SPEC, FACTS, machine).model_copy(update={"watts": 150.0}),))
    for where, learned, watts in ((machine, None, 200), (limited, None, 100), (limited, drawn, 150)):
        estimated = estimate(RunConfig(), SPEC, FACTS, where, learned)
        assert estimated.energy_kwh == pytest.approx([second * watts / 3.6e6 for second in estimated.seconds or ()])
        assert f"{watts} W" in estimated.energy_basis


def test_disk_counts_as_many_checkpoints_as_stand() -> None:
    pytest.importorskip("torch")
    from core.train.keep.checkpoint import KEPT

    assert CHECKPOINTS == KEPT + 2, "the best, and one on its way"


def test_a_whole_start_is_counted_as_it_was_measured() -> None:
    """Libraries, loading and the first step of a 7B beside an H200 (``life_h200_2026-11-21.json``), and of the starter
    on two busy cores; the range holds each, and earlier runs replace it."""
    told = json.loads((REPOSITORY / "tests/gpu/results/life_h200_2026-11-21.json").read_text("utf-8"))["life"]
    low, high = start_seconds(14_500_000_000, None)
    for begun in (told["started"], told["started_again"], told["resumed"]):
        assert low < begun["stages"]["first_step"] + begun["first_step"] < high
    low, high = start_seconds(2_000_000, None, on_card=False)
    assert 3 < low < 13.7 < high < 25
    assert start_seconds(14_000_000_000, 10.0) == (5.0, 15.0)


def test_checkpoints_and_sample_answers_take_time_too() -> None:
    machine = card(11, name=RTX)

    def seconds(**train: int) -> tuple[float, float]:
        return estimate(RunConfig(train=TrainChoice(**train)), SPEC, FACTS, machine).seconds or (0, 0)

    rare, often, silent = seconds(save_steps=1000), seconds(save_steps=2), seconds(save_steps=1000, sample_rows=0)
    assert often[0] > rare[0] + 5
    assert often[1] > rare[1] + 15
    assert rare[1] > silent[1] > rare[0] == silent[0]
