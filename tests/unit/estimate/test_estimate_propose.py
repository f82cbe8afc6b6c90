"""The proposal: settings for shapes of data, methods and cards, each with its reason; what a person set stays."""

import random
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from core.contract.catalogue import ModelSpec
from core.contract.config import LoraChoice, ModelChoice, RunConfig, TrainChoice
from core.contract.data import DataFacts, DataReport
from core.contract.estimate import Proposed
from core.contract.methods import METHODS, Method, method_for
from core.estimate import Given, estimate, propose, resolve
from core.estimate.advise import advise
from core.estimate.propose import SETTINGS, goal_taken, propose_model, usual_rate
from core.estimate.reasons import BECAUSE
from core.machine.hardware import Machine
from core.models.catalog import apply_preset, preset, presets, starter
from core.models.suited import put, unsuited
from tests.unit.estimate.conftest import CPU, card, model, rows

EPOCHS, LENGTH, RATE, RANK = "train.num_train_epochs", "train.max_length", "train.learning_rate", "lora.r"
LAYOUTS = ("alpaca", "preference", "kto", "classification", "text")
CARDS = (6, 8, 12, 16, 24)
COUNTS = (50, 300, 947, 7_473, 50_000)
SHAPES = [
    pytest.param(gib, count, layout, marks=() if (first + second + third) % 2 == 0 else pytest.mark.slow)
    for first, gib in enumerate((None, *CARDS))
    for second, count in enumerate(COUNTS)
    for third, layout in enumerate(LAYOUTS)
]
"""Every combination; by default every second one, in which any two of card, number and layout meet."""


def given(
    count: int,
    layout: str = "alpaca",
    machine: Machine = CPU,
    spec: ModelSpec | None = None,
    config: RunConfig | None = None,
) -> Given:
    """So many rows of about 200 tokens, as a sample of at most 20,000."""
    report = DataReport(
        path="x.jsonl", sha256="0", bytes=1, rows=count, usable=count, layout=layout, reason="", columns=(),
        mapping={}, roles=(), method=method_for(layout),
    )  # fmt: skip
    facts = measured(min(count, 20_000)).model_copy(update={"rows": count, "sampled": count > 20_000})
    return Given(config or RunConfig(), machine, facts=facts, spec=spec or starter(), report=report)


@cache
def measured(count: int) -> DataFacts:
    dice = random.Random(1)
    return rows(tuple(max(8, int(dice.lognormvariate(5.2, 0.5))) for _ in range(count)))


def by_key(said: tuple[Proposed, ...]) -> dict[str, Any]:
    return {one.key: one.value for one in said}


def because(said: tuple[Proposed, ...], key: str) -> str:
    return next(one.because for one in said if one.key == key)


@pytest.mark.parametrize(
    ("count", "epochs", "rows_per_step", "rank"),
    [(50, 5, 4, 16), (300, 3, 8, 16), (947, 3, 16, 16), (7_473, 2, 16, 16), (50_000, 1, 32, 64),
     (1_000_000, 1, 32, 128)],
)  # fmt: skip
def test_question_answer_pairs_by_their_number(count: int, epochs: float, rows_per_step: int, rank: int) -> None:
    config, said = propose(given(count, machine=card(22), spec=model("qwen3-4b")))
    assert (config.train.num_train_epochs, config.rows_per_step, config.lora.r) == (epochs, rows_per_step, rank)
    assert config.train.max_length in (448, 512, 576, 640), "nearly all rows are whole"
    rate = config.train.learning_rate
    assert rate == {4: 1e-4, 8: 1e-4, 16: 2e-4, 32: 3e-4}[rows_per_step]
    assert config.lora.lora_alpha == config.lora.r
    assert f"{rows_per_step} rows per step" in because(said, "train.gradient_accumulation_steps")


@pytest.mark.parametrize(("gib", "count", "layout"), SHAPES)
def test_every_shape_fits_makes_enough_steps_and_is_not_warned_of(layout: str, count: int, gib: int | None) -> None:
    machine = CPU if gib is None else card(gib - 1)
    asked = given(count, layout, machine)
    spec, chosen = propose_model(asked)
    asked = given(count, layout, machine, spec)
    config, said = propose(asked)
    trained = config.with_method(asked.report.method)
    figures = estimate(trained, spec, asked.facts, machine)
    assert figures.verdict == "fits"
    assert figures.rows_cut <= 0.01 * count or config.train.max_length == spec.shape.max_position_embeddings
    assert figures.total_steps >= 35
    assert 1 <= config.train.num_train_epochs <= 5
    assert config.train.warmup_steps <= max(1, figures.total_steps // 10 + 1)
    assert trained.problems() == ["data.path: expected a data file, found none. Choose a file or one of the samples."]
    warned = {one.code for one in advise(trained, spec, asked.facts, asked.report, None) if one.level == "warning"}
    assert warned <= {"few_rows", "base_model"}, "what is proposed is no reason for advice"
    assert {one.key for one in said} <= {"method", *(row.key for row in SETTINGS)}
    assert all(
        one.because[0] != " " and one.because.endswith(".") and "{" not in one.because for one in (*said, chosen)
    )


def test_comparisons_are_seen_fewer_times_and_raw_text_by_its_tokens() -> None:
    pairs, _ = propose(given(947, "preference", card(11), model("qwen3-4b")))
    texts, said = propose(given(947, "text", card(22), model("qwen3-4b")))
    assert (pairs.train.num_train_epochs, pairs.train.learning_rate) == (2, 2e-5)
    assert (texts.train.num_train_epochs, texts.lora.r, texts.train.learning_rate) == (3, 64, 1e-4)
    assert "tokens of text" in because(said, EPOCHS)


@pytest.mark.parametrize("gib", CARDS)
def test_the_model_is_the_largest_that_leaves_room_and_an_encoder_where_texts_are_sorted(gib: int) -> None:
    titles = {6: "Qwen3 4B", 8: "Mistral 7B v0.3", 12: "Qwen3 8B", 16: "Qwen3 14B", 24: "Qwen3 14B"}
    spec, said = propose_model(given(947, machine=card(gib - 1)))
    assert (spec.title, said.value) == (titles[gib], spec.name)
    assert f"fits {gib} GB" in said.because
    assert propose_model(given(947, "classification", card(gib - 1)))[0].title == "ModernBERT base"


def test_positions_are_stretched_no_further_than_the_longest_row_asks() -> None:
    def settled(longest: int, spec: str = "smollm2-1.7b", **chosen: Any) -> tuple[str, float, int, dict[str, str]]:
        config = RunConfig(model=ModelChoice(**chosen), train=TrainChoice(max_length=200_000))
        config, lines = resolve(config, model(spec), rows((90, longest) * 50), CPU)
        return (
            config.model.rope_scaling, config.model.rope_factor, config.train.max_length,
            {line.key: line.reason for line in lines},
        )  # fmt: skip

    assert settled(8_192)[:3] == ("none", 0.0, 200_000)
    assert [settled(longest)[1] for longest in (8_193, 16_384, 20_000, 60_000)] == [2, 2, 4, 8]
    *made, why = settled(20_000)
    assert made == ["yarn", 4.0, 200_000]
    assert why["model.rope_scaling"] == "the model was made for 8,192; rows reach 20,000"
    *made, why = settled(20_000, rope_scaling="none")
    assert made == ["none", 0.0, 8_192]
    assert why["train.max_length"] == "the model was made for 8,192, and its positions are not scaled"
    assert settled(20_000, rope_scaling="linear")[:3] == ("linear", 4.0, 200_000)
    *made, why = settled(20_000, rope_scaling="llama3", rope_factor=2)
    assert made == ["llama3", 2.0, 16_384], "what a factor does not reach is cut, and said"
    assert why["train.max_length"] == "positions reach so far with Llama 3 2"
    assert settled(180_000, spec="llama-3.1-8b")[:3] == ("none", 0.0, 131_072)
    for spec, reason in (
        ("llama-3.1-8b", "its maker has scaled"), ("gemma-3-1b", "no such scaling"), ("bert-base", "an encoder"),
    ):  # fmt: skip
        fault = unsuited(RunConfig(model=ModelChoice(rope_scaling="yarn"), method="sft"), model(spec))
        assert fault is not None
        assert spec == "bert-base" or reason in fault.message
    fault = unsuited(RunConfig(model=ModelChoice(rope_theta=1e6), method="classify"), model("bert-base"))
    assert fault is not None
    assert "an encoder reads no further" in fault.message


def test_without_a_card_a_hub_or_room_on_the_disk_it_is_the_built_in_one() -> None:
    alone, said = propose_model(given(947))
    assert (alone.source, said.because) == ("starter", BECAUSE["model.cpu"])
    away, said = propose_model(given(947, machine=card(11)), here=True)
    assert (away.source, said.because) == ("starter", BECAUSE["model.here"])
    full = Machine(card(11).gpus, 8, 32 << 30, 24 << 30, 3 << 30, "Linux", wsl=False)
    assert propose_model(given(947, machine=full))[0].download_bytes < 3 << 30


def test_so_small_a_model_takes_a_high_rate_and_reads_no_more_than_it_can() -> None:
    config, said = propose(given(7_473))
    assert (config.train.learning_rate, config.lora.lora_alpha) == (3e-3, 2 * config.lora.r)
    wide = replace(given(400), facts=rows((100,) * 300 + (3_000,) * 100))
    config, said = propose(wide)
    assert config.train.max_length == 3072
    assert because(said, LENGTH) == ("the model was made for 1,024; rows reach 3,000: YaRN 4 stretches its positions.")
    resolved, lines = resolve(config, wide.spec, wide.facts, CPU)
    assert (resolved.model.rope_scaling, resolved.model.rope_factor) == ("yarn", 4.0)
    assert ("model.rope_factor", "4") in [(line.key, line.value) for line in lines]
    assert "The model was made for 1,024 tokens; rows reach 3,000: YaRN 4." in (
        estimate(config, wide.spec, wide.facts, CPU).notes
    )
    declined = replace(wide, config=put(wide.config, "model.rope_scaling", "none"))
    config, said = propose(declined, ("model.rope_scaling",))
    assert config.train.max_length == starter().shape.max_position_embeddings == 1024
    assert because(said, LENGTH) == "Starter (built in) reads no more at once; 75% of the rows are whole."
    unscaled = put(config, "train.max_length", 3072)
    notes = estimate(unscaled, wide.spec, wide.facts, CPU).notes
    assert "100 of 400 rows are longer than 1,024 tokens and are cut there." in notes
    short = replace(wide, facts=rows((90,) * 400))
    assert because(propose(short)[1], LENGTH) == BECAUSE["length.all"]


def test_length_and_rank_give_way_to_the_card() -> None:
    """Rows of 30,000 tokens, raw text, on a small card."""
    long = replace(given(20_000, "text", card(5), model("qwen3-4b")), facts=rows((30_000,) * 2_000))
    config, said = propose(long)
    assert config.train.max_length < 30_000
    assert "would not fit this machine" in because(said, LENGTH)
    assert estimate(config.with_method("pretrain"), long.spec, long.facts, long.machine).verdict == "fits"


def test_what_a_person_set_stays_and_what_follows_from_it_follows() -> None:
    mine = RunConfig(lora=LoraChoice(r=8), train=TrainChoice(num_train_epochs=9, per_device_train_batch_size=2))
    config, said = propose(given(947, config=mine), {RANK, EPOCHS, "train.per_device_train_batch_size"})
    assert (config.lora.r, config.train.num_train_epochs, config.rows_per_step) == (8, 9, 16)
    assert (config.lora.lora_alpha, config.train.gradient_accumulation_steps) == (16, 8)
    assert (by_key(said)[RANK], by_key(said)[EPOCHS]) == (16, 3), "it is said all the same"
    half = put(RunConfig(), "train.gradient_accumulation_steps", 16)
    config, _ = propose(given(947, config=half), {"train.gradient_accumulation_steps"})
    assert (config.train.per_device_train_batch_size, config.rows_per_step) == (1, 16)


def test_a_goals_values_stand_but_for_what_data_and_card_decide() -> None:
    chosen = apply_preset(RunConfig(), preset("chat-style"))
    config, said = propose(given(947, config=chosen, spec=model("qwen3-4b"), machine=card(11)))
    assert (config.lora.r, config.train.learning_rate, config.train.lr_scheduler_type) == (32, 2e-4, "cosine")
    assert config.train.num_train_epochs == 3, "the goal says 2"
    assert config.train.max_length < 700
    assert because(said, RATE) == "the goal “Chat style” says so."
    assert "usual for 900 rows" in because(said, EPOCHS)


def test_a_goal_for_a_first_look_is_left_as_it_is() -> None:
    chosen = apply_preset(RunConfig(), preset("try-it"))
    config, said = propose(given(300, config=chosen))
    assert config == chosen
    assert (by_key(said)["train.max_steps"], by_key(said)[LENGTH]) == (60, 256)


def test_a_goal_that_cannot_learn_from_these_rows_gives_way() -> None:
    chosen = apply_preset(RunConfig(), preset("preferences"))
    config, said = propose(given(947, config=chosen))
    assert (config.preset, config.method, by_key(said)["method"]) == ("", "auto", "sft")
    assert goal_taken(chosen) == chosen, "before the rows are known it stands"
    kept, said = propose(given(947, "preference", config=chosen))
    assert (kept.preset, by_key(said)["method"]) == ("preferences", "dpo")


@pytest.mark.parametrize("recipe", presets(), ids=lambda recipe: recipe.key)
def test_a_goal_on_its_card_takes_the_values_that_were_measured_there(recipe: Any) -> None:
    layout = (*METHODS[recipe.method].layouts, "alpaca")[0]
    for one in recipe.cards:
        asked = given(947, layout, card(one.gib - 1), model(one.model), apply_preset(RunConfig(), recipe))
        config, _ = propose(asked)
        refined = {row.key for row in SETTINGS if row.refines} if not recipe.for_samples else set()
        for key, value in {**recipe.values, **one.values}.items():
            if key not in refined:
                part, _, name = key.partition(".")
                assert getattr(getattr(config, part), name) == value, key


@pytest.mark.parametrize("method", METHODS)
def test_each_methods_rate_is_the_one_of_its_row(method: Method) -> None:
    config = RunConfig().with_method(method)
    assert usual_rate(config, model("qwen3-8b")) == (METHODS[method].usual_rate or 2e-4)
    whole = put(config, "train.learns", "everything")
    assert usual_rate(whole, model("qwen3-8b")) == pytest.approx((METHODS[method].usual_rate or 2e-4) / 10)
    assert usual_rate(config, model("codellama-34b")) <= usual_rate(config, model("qwen3-8b"))
