"""8-bit products with frozen weights, foreseen: whom they serve, and what they take in memory and time."""

from __future__ import annotations

from typing import Any

import pytest

from core.contract.config import RunConfig
from core.contract.estimate import LayerTrial, ProvenHere, Resolved
from core.contract.weight_forms import ARITHMETICS, EIGHT_BIT, Evidence
from core.estimate import Learned, eight_bits, estimate, resolve
from core.estimate.duration import seconds_per_token
from core.estimate.eight_bits import choose, layer_of, why_sixteen
from core.estimate.inputs import layer
from core.estimate.inputs.cards import published
from core.estimate.inputs.work import work_of
from core.kernels.eightbit import arithmetics, kept
from core.kernels.eightbit.formats import FORMATS
from core.machine.hardware import Machine
from tests.unit.estimate.conftest import CPU, card, model, rows

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
    border, rank = 64, 32  # two adapters of rank 16, in 16 bits in whole tiles
    gates = 2 * (2 * inner + border)
    both = 2 * (2 * inner + rank)
    assert eight.moments[1] == (4 * d + 2 * inner + both, 2 * inner * d + 2 * rank * (2 * inner + d))
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


# ── auto ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

H200 = card(140, (9, 0), "NVIDIA H200")


def auto(machine: Machine, learned: Learned | None = None, key: str = "mistral-7b", **parts: Any) -> Resolved:
    """What "auto" comes to, in one line of the plan, which stays where the plan is made again."""
    plan, lines = resolve(asked("auto", **parts), model(key), None, machine, learned)
    (line,) = [line for line in lines if line.key == "train.arithmetic"]
    assert plan.train.arithmetic == line.value
    assert "\n" not in line.reason
    assert resolve(plan, model(key), None, machine, learned)[0] == plan
    return line


def tried(machine: Machine, **milliseconds: float) -> LayerTrial:
    """A trial on this machine for a plan of Mistral 7B, in the usual micro-batch; ``sixteen`` stands for 16-bit."""
    plan, _ = resolve(asked("16-bit"), model("mistral-7b"), None, machine)
    named = {name.replace("sixteen", "16-bit"): time for name, time in milliseconds.items()}
    like = layer_of(plan, model("mistral-7b"), machine, plan.train.tokens_per_pass)
    return like.model_copy(update={"milliseconds": named, "seconds": 2.1})


def proven(arithmetic: str, share: float, worst: float = 0.003, card: str = "NVIDIA H200") -> ProvenHere:
    return ProvenHere(proof="p", card=card, arithmetic=arithmetic, share=share, worst=worst, spread=0.009, steps=300)


@pytest.mark.parametrize(
    ("evidence", "allows"),
    [
        (Evidence(-0.0001, 0.0033, 0.009, ""), True),
        (Evidence(0.0040, 0.0170, 0.009, ""), False),
        (Evidence(0.0040, 0.0080, 0.009, ""), True),
        (Evidence(0.0060, 0.0060, 0.009, ""), False),
        (Evidence(0.0010, 0.0049, 0.0, ""), True),
        (Evidence(0.0010, 0.0051, 0.0, ""), False),
    ],
)
def test_evidence_allows_within_half_a_per_cent_and_the_spread_of_sixteen_bits(
    evidence: Evidence, allows: bool
) -> None:
    assert evidence.allows == allows


def test_every_arithmetic_of_eight_bits_was_measured_before_it_was_shipped() -> None:
    assert all((ARITHMETICS[name].evidence is not None) == (name in EIGHT_BIT) for name in ARITHMETICS)
    assert [name for name in EIGHT_BIT if getattr(ARITHMETICS[name].evidence, "allows", False)] == ["int8"]


@pytest.mark.parametrize(
    ("machine", "parts", "words"),
    [
        (CPU, {}, "the CPU computes in 32 bits"),
        (card(20, (7, 0), "Tesla V100"), {}, "V100 multiplies no int8"),
        (ADA, {"lora": {"use_dora": True}}, "DoRA"),
    ],
)
def test_auto_takes_sixteen_bits_where_eight_serve_nobody_and_says_why(
    machine: Machine, parts: dict[str, Any], words: str
) -> None:
    line = auto(machine, **parts)
    assert line.value == "16-bit"
    assert words in line.reason


def test_before_any_trial_auto_goes_by_published_rates_and_by_what_is_proven() -> None:
    """fp8 is not proven, so int8 it is; on a card too old for fp8 too."""
    for machine in (H200, ADA, card(20, (8, 6))):
        line = auto(machine)
        assert line.value == "int8"
        assert "published rates, to be tried on it before the first step; held-out loss −0.01%" in line.reason
    none = auto(H200, Learned(proofs=(proven("int8", 0.02),)))
    assert none.value == "16-bit"
    assert "int8: held-out loss +2.00% in the proof on this card (300 steps)" in none.reason
    assert "fp8: held-out loss +0.40% and 1.7% apart in one seed on a real task of the built-in model" in none.reason
    both = Learned(
        proofs=(proven("fp8", 0.01), proven("fp8", 0.001), proven("int8", 0.02), proven("fp8", 0.1, card="x"))
    )
    assert auto(H200, both).value == "fp8", "the newest proof of this card counts"


def test_a_trial_on_this_card_decides_among_what_is_proven() -> None:
    quick = Learned(trials=(tried(H200, sixteen=14.2, fp8=11.1, int8=11.8),))
    line = auto(H200, quick)
    assert line.value == "int8"
    assert line.reason.startswith("1.2 times as fast as 16 bits on this card (a layer's products take 11.1 ms in fp8, ")
    assert "fp8 is faster still, but not proven here: held-out loss +0.40%" in line.reason
    proved = Learned(trials=quick.trials, proofs=(proven("fp8", 0.0012),))
    line = auto(H200, proved)
    assert line.value == "fp8"
    assert line.reason.endswith("; held-out loss +0.12% in the proof on this card (300 steps)")
    slow = Learned(trials=(*quick.trials, tried(H200, sixteen=14.2, fp8=14.0, int8=13.9)))
    line = auto(H200, slow)
    assert (line.value, "bring too little" in line.reason) == ("16-bit", True)
    failed = auto(H200, Learned(trials=(tried(H200, sixteen=14.2),)))
    assert (failed.value, failed.reason) == ("16-bit", "8-bit products could not be tried on this card")


@pytest.mark.parametrize("other", [{"driver": "600"}, {"card": "NVIDIA H100"}, {"shape": "x"}, {"versions": "torch 1"},
                                   {"rank": 64}, {"dtype": "float16"}, {"tokens": 64}])  # fmt: skip
def test_a_trial_of_something_else_says_nothing(other: dict[str, Any]) -> None:
    known = tried(H200, sixteen=14.2, fp8=20.0, int8=20.0)
    assert auto(H200, Learned(trials=(known,))).value == "16-bit"
    line = auto(H200, Learned(trials=(known.model_copy(update=other),)))
    assert (line.value, "to be tried" in line.reason) == ("int8", True)


def test_a_plan_that_a_trial_may_change_fits_in_either() -> None:
    for free in (6, 8, 12, 20):
        machine, spec = card(free, (8, 9), "NVIDIA GeForce RTX 4090"), model("mistral-7b")
        plan, _ = resolve(asked("auto"), spec, None, machine)
        for arithmetic in ("16-bit", plan.train.arithmetic):
            settled = plan.model_copy(update={"train": plan.train.model_copy(update={"arithmetic": arithmetic})})
            assert estimate(settled, spec, None, machine).verdict == estimate(plan, spec, None, machine).verdict


def test_a_trial_takes_the_place_of_the_published_rate_in_the_time() -> None:
    spec, facts = model("mistral-7b"), rows((512,) * 400)
    config = asked("int8")
    counted = estimate(config, spec, facts, H200)
    plan, _ = resolve(config, spec, facts, H200)
    like = layer_of(plan, spec, H200, plan.train.tokens_per_pass)
    speeds = []
    for time in (14.2, 10.0, 7.1):
        trial = like.model_copy(update={"milliseconds": {"16-bit": 14.2, "int8": time}})
        known = estimate(config, spec, facts, H200, Learned(trials=(trial,)))
        assert known.tokens_per_second is not None
        assert "int8 as tried on it" in known.time_basis
        speeds.append(known.tokens_per_second[1])
    sixteen = estimate(asked("16-bit"), spec, facts, H200, Learned(trials=(trial,))).tokens_per_second
    assert sixteen is not None
    assert counted.tokens_per_second is not None
    assert "tried" not in counted.time_basis
    assert sixteen[1] <= speeds[0] < 1.05 * sixteen[1], "no gain: less is kept, and no other time is saved"
    assert speeds[0] < speeds[1] < speeds[2]
    assert speeds[2] == pytest.approx(counted.tokens_per_second[1], rel=0.1), "twice as fast, as published"


def test_choosing_asks_nothing_of_a_machine_without_a_card() -> None:
    assert choose(asked("16-bit"), model("mistral-7b"), CPU, Learned(), 2048).untried == ()
