"""8-bit products with frozen weights, foreseen: whom they serve, and what they take in memory and time."""

from __future__ import annotations

from typing import Any

import pytest

from core.contract.config import RunConfig
from core.contract.weight_forms import ARITHMETICS
from core.estimate import eight_bits, resolve
from core.estimate.duration import seconds_per_token
from core.estimate.eight_bits import why_sixteen
from core.estimate.inputs import layer
from core.estimate.inputs.cards import published
from core.estimate.inputs.work import work_of
from core.kernels.eightbit import arithmetics, kept
from core.kernels.eightbit.formats import FORMATS
from core.machine.hardware import Machine
from tests.unit.estimate.conftest import CPU, card, model

WHOLE = {"quantization": "none"}
ADA = card(20, (8, 9), "NVIDIA GeForce RTX 4090")


def asked(arithmetic: str = "fp8", lora: dict[str, Any] | None = None, **parts: Any) -> RunConfig:
    train = {"arithmetic": arithmetic, **parts.pop("train", {})}
    return RunConfig.model_validate({"train": train, "lora": lora or {}, **parts})


def test_both_tables_name_the_same() -> None:
    """The light floor's rows and those that make the products; sides that both refuse."""
    assert list(ARITHMETICS) == list(arithmetics.ARITHMETICS)
    assert {name: form.capability for name, form in FORMATS.items()} == {
        name: row.capability for name, row in ARITHMETICS.items() if row.bits == 8
    }
    assert eight_bits.STEP == arithmetics.STEP
    assert layer.BLOCK == kept.BLOCK


@pytest.mark.parametrize(
    ("config", "key", "machine", "words"),
    [
        (asked(), "llama-3.2-1b", ADA, ""),
        (asked("int8"), "llama-3.2-1b", card(20, (7, 5)), ""),
        (asked(lora={"init_lora_weights": "loftq"}), "llama-3.2-1b", ADA, ""),
        (asked(), "llama-3.2-1b", CPU, "graphics cards"),
        (
            asked(),
            "llama-3.2-1b",
            card(20, (8, 6)),
            "RTX 3060 multiplies no fp8: that begins with compute",
        ),
        (
            asked(train={"learns": "everything"}, model=WHOLE),
            "llama-3.2-1b",
            ADA,
            "no weight is frozen",
        ),
        (asked(), "bert-base", ADA, "every weight"),
        (asked(model={"dtype": "float32"}), "llama-3.2-1b", ADA, "32 bits"),
        (asked(lora={"lora_dropout": 0.1}), "llama-3.2-1b", ADA, "own layers"),
        (asked(train={"packing": False}), "llama-3.2-1b", ADA, "own layers"),
        (asked(lora={"use_dora": True}), "llama-3.2-1b", ADA, "DoRA"),
        (asked(lora={"init_lora_weights": "pissa_niter_16"}), "llama-3.2-1b", ADA, "pissa"),
    ],
)
def test_where_it_cannot_serve_the_plan_says_why_in_one_line(
    config: RunConfig, key: str, machine: Machine, words: str
) -> None:
    plan, lines = resolve(config, model(key), None, machine)
    told = [line for line in lines if line.key == "train.arithmetic"]
    if not words:
        assert plan.train.arithmetic == config.train.arithmetic
        assert not told
        return
    assert plan.train.arithmetic == "16-bit"
    assert [line.value for line in told] == ["16-bit"]
    assert words in told[0].reason
    assert "\n" not in told[0].reason
    assert resolve(plan, model(key), None, machine)[0].train.arithmetic == "16-bit"


def test_sixteen_bits_need_no_reason() -> None:
    assert not [line for line in resolve(RunConfig(), model("llama-3.2-1b"), None, CPU)[1] if "arithmetic" in line.key]
    assert why_sixteen(asked(), model("mistral-7b"), ADA) == ""


def test_memory_counts_one_byte_a_weight_and_a_byte_of_each_row() -> None:
    """Mistral-7B, b = 2: where gate and up go backward 2 (2 D) + 2 I bytes a token and their gradient beside a matrix
    of one byte; kept, they are 2 (2 I + R) bytes in 16 bits, and 2 I and their scales in eight."""
    d, inner = 4096, 14336
    config = resolve(asked("int8"), model("mistral-7b"), None, ADA)[0]
    eight = work_of(config, model("mistral-7b"), 2048, gpu=True).model.layer
    assert eight.eight
    border = 64  # two adapters of rank 16
    gates = 2 * (2 * inner + border)
    assert eight.moments[1] == (4 * d + 2 * inner + gates, 2 * inner * d + 2 * border * (2 * inner + d))
    sixteen = work_of(
        config.model_copy(update={"train": config.train.model_copy(update={"arithmetic": "16-bit"})}),
        model("mistral-7b"), 2048, gpu=True,
    ).model.layer  # fmt: skip
    assert sixteen.kept - eight.kept == gates + 2 * 16 - (2 * inner + 4 * 2 * inner // 128)
    assert eight.recomputed + gates + 2 * 16 == sixteen.recomputed == sixteen.kept
    assert eight.matrices < 0.05 * sixteen.matrices
    assert eight.recomputed + sum(eight.work(1)) - eight.work(1)[1] < sixteen.kept + sum(sixteen.work(1))


@pytest.mark.parametrize(
    ("name", "fp8", "int8"), [("NVIDIA GeForce RTX 4090", 2, 4), ("NVIDIA H200", 2, 2), ("NVIDIA A100-SXM4-40GB", 2, 2)]
)
def test_time_follows_the_card_s_rates(name: str, fp8: float, int8: float) -> None:
    figures = published(name)
    assert figures is not None
    assert (figures.faster("16-bit"), figures.faster("fp8"), figures.faster("int8")) == (1, fp8, int8)
    spec, seconds = model("mistral-7b"), {}
    for arithmetic in ARITHMETICS:
        config = resolve(asked(arithmetic, train={"checkpointing": "none"}), spec, None, ADA)[0]
        seconds[arithmetic] = seconds_per_token(work_of(config, spec, 8192, gpu=True), 2048, figures)
    assert 0.5 < seconds["fp8"] / seconds["16-bit"] < 0.8
    assert seconds["int8"] <= seconds["fp8"]
