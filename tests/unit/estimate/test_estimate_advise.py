"""Advice: said where a setting lies beside the data, silent where it does not, and silent at its own proposals."""

from typing import Any

import pytest

from core.contract.config import DataChoice, LoraChoice, RunConfig, TrainChoice
from core.contract.data import Checkup, DataReport, Finding
from core.contract.estimate import Advice
from core.contract.methods import METHODS, Method
from core.estimate import advise
from core.estimate.propose import rank_for
from core.models.catalog import apply_preset, presets, starter
from core.models.suited import put
from tests.unit.estimate.conftest import changed, model, rows

CHAT, BASE = model("mistral-7b"), model("mistral-7b").model_copy(update={"instruct": False, "title": "A base"})


def report_of(rows: int, layout: str = "messages", usable: int = 0) -> DataReport:
    return DataReport(
        path="x.jsonl", sha256="0", bytes=1, rows=rows, usable=usable or rows, layout=layout, reason="", columns=(),
        mapping={}, roles=(), method="sft",
    )  # fmt: skip


def said(
    config: RunConfig, count: int, spec: Any = CHAT, layout: str = "messages", facts: Any = None, usable: int = 0
) -> dict[str, Advice]:
    advices = advise(config, spec, facts or rows((300,) * count), report_of(count, layout, usable), None)
    assert len({advice.code for advice in advices}) == len(advices), "each word once"
    assert all("\n" not in advice.text and advice.text.endswith(".") for advice in advices)
    return {advice.code: advice for advice in advices}


def train(**values: Any) -> RunConfig:
    return RunConfig(train=TrainChoice(**values))


@pytest.mark.parametrize(
    ("count", "code", "words"),
    [(400, "few_rows", "learned by heart"), (5_000, "rows", "chosen with care"), (40_000, "rows", "a good size"),
     (1_100_000, "many_rows", "full finetuning")],
)  # fmt: skip
def test_the_size_of_the_data_is_judged(count: int, code: str, words: str) -> None:
    advices = advise(RunConfig(), CHAT, None, report_of(count), None)
    assert words in next(advice.text for advice in advices if advice.code == code)


PAIRS = rows((900,) * 1000, trained=(200,) * 1000)
"""Their prompts have 800 tokens."""
MIXED = rows((100,) * 500 + (1000,) * 500)
LONG = rows((300,) * 900 + (2900,) * 100)
CASES = [
    # config, rows (their number, or facts), layout, code, changes
    (train(num_train_epochs=8), 900, "messages", "epochs", {"train.num_train_epochs": "3"}),
    (train(num_train_epochs=3), 200_000, "messages", "epochs", {"train.num_train_epochs": "1"}),
    (train(num_train_epochs=6), 20_000, "text", "epochs", {"train.num_train_epochs": "4"}),
    (train(max_steps=30), 5_000, "messages", "max_steps", {"train.max_steps": "0"}),
    (RunConfig(), 150_000, "messages", "rank_low", {"lora.r": "128", "lora.lora_alpha": "128"}),
    (RunConfig(), 4_000, "text", "rank_low", {"lora.r": "64", "lora.lora_alpha": "64"}),
    (RunConfig(lora=LoraChoice(r=256, lora_alpha=128)), 800, "messages", "rank_high",
     {"lora.r": "16", "lora.lora_alpha": "8"}),
    (train(learning_rate=5e-3), 5_000, "messages", "learning_rate", {"train.learning_rate": "0.0002"}),
    (train(learning_rate=2e-4, optim="lion_8bit"), 5_000, "messages",
     "learning_rate", {"train.learning_rate": "4e-05"}),
    (train(learning_rate=2e-5), 5_000, "messages", "learning_rate", {"train.learning_rate": "0.0002"}),
    (train(gradient_accumulation_steps=1, per_device_train_batch_size=1, learning_rate=2e-4), 5_000, "messages",
     "learning_rate", {"train.learning_rate": "5e-05"}),
    (train(warmup_steps=400), 900, "messages", "warmup", {"train.warmup_steps": "16"}),
    (train(num_train_epochs=1), 200, "messages", "few_steps",
     {"train.per_device_train_batch_size": "4", "train.gradient_accumulation_steps": "1"}),
    (RunConfig(data=DataChoice(eval_fraction=0)), 5_000, "messages", "no_evaluation", {"data.eval_fraction": "0.05"}),
    (RunConfig(data=DataChoice(train_on="everything")), 5_000, "messages", "train_on", {"data.train_on": "answers"}),
    (RunConfig(), LONG, "messages", "rows_cut", {"train.max_length": "3072"}),
    (train(packing=False), MIXED, "messages", "packing", {"train.packing": "True"}),
    (RunConfig(method="dpo", train=TrainChoice(packing=False)), PAIRS, "preference",
     "packing", {"train.packing": "True"}),
]  # fmt: skip


@pytest.mark.parametrize(("config", "data", "layout", "code", "changes"), CASES, ids=[str(case[3]) for case in CASES])
def test_what_lies_beside_the_data_is_said_and_mended(
    config: RunConfig, data: Any, layout: str, code: str, changes: dict[str, str]
) -> None:
    count, facts = (data, None) if isinstance(data, int) else (data.rows, data)
    advice = said(config, count, layout=layout, facts=facts)[code]
    assert advice.changes == changes
    mended = said(changed(config, advice.changes), count, layout=layout, facts=facts)
    assert code not in mended, "silent at its own proposal"


@pytest.mark.parametrize("count", [1_500, 8_000, 50_000])
def test_usual_settings_are_not_nagged_at(count: int) -> None:
    config = RunConfig(lora=LoraChoice(r=64, lora_alpha=64) if count > 10_000 else LoraChoice())
    assert set(said(config, count)) == {"rows"}


@pytest.mark.parametrize("preset", presets(), ids=lambda preset: preset.key)
def test_our_own_presets_are_not_warned_of(preset: Any) -> None:
    config, tiny = apply_preset(RunConfig(), preset), preset.key == "try-it"
    layout = {"domain-knowledge": "text", "preferences": "preference"}.get(preset.key, "messages")
    by_code = said(config, 5_000, starter() if tiny else CHAT, layout, rows((90 if tiny else 300,) * 5_000))
    warned = {code for code, advice in by_code.items() if advice.level == "warning"}
    assert warned - ({"max_steps"} if tiny else set()) == set()


def test_rank_follows_task_data_and_model() -> None:
    small, counts = model("qwen3-0.6b"), (2_000, 50_000, 500_000)
    assert [rank_for(CHAT, count, raw_text=True) for count in counts] == [64, 128, 256]
    assert [rank_for(CHAT, count, raw_text=False) for count in counts] == [16, 64, 128]
    assert rank_for(small, 500_000, raw_text=True) == 64
    low = RunConfig(lora=LoraChoice(r=2))
    assert "rank_low" not in said(low, 20), "a few rows ask for no more"
    assert "16 holds more, for more memory." in said(low, 5_000)["rank_low"].text
    assert "64 to 128 is usual" in said(low, 50_000)["rank_low"].text


def test_words_with_their_counts() -> None:
    """What each says of rows left out, of projections without an adapter, and of one step."""
    assert "100 rows (10%)" in said(RunConfig(), 1000, facts=LONG)["rows_cut"].text
    assert "100 of 1,000 rows" in said(RunConfig(), 1000, usable=900)["unusable_rows"].text
    few = RunConfig(lora=LoraChoice(target_modules=("q_proj", "v_proj")))
    assert "k_proj, o_proj" in said(few, 5_000)["targets"].text
    assert "Only 1 step:" in said(train(num_train_epochs=1), 7)["few_steps"].text
    passes = "3 passes over 199,800 rows: beyond 1, more is learned by heart."
    assert said(train(num_train_epochs=3), 200_000)["epochs"].text == passes


def test_base_and_instruct_models_are_told_apart_and_short_ones_not_stretched() -> None:
    assert said(RunConfig(), 800, BASE)["base_model"].level == "warning"
    assert said(RunConfig(), 5_000, BASE)["base_model"].level == "note"
    assert "base_model" not in said(RunConfig(), 5_000)
    assert "instruct_model" in said(RunConfig(), 5_000, layout="text")
    longer = train(max_length=4096)
    assert "beyond_model" not in said(longer, 1000, model("tinyllama-1.1b"), facts=LONG), "RoPE scaling reaches them"
    declined = put(longer, "model.rope_scaling", "none")
    by_code = said(declined, 1000, model("tinyllama-1.1b"), facts=LONG)
    assert by_code["beyond_model"].changes == {"model.rope_scaling": "auto"}
    assert "cut there" in by_code["beyond_model"].text


def test_serious_findings_of_the_doctor_are_repeated_first() -> None:
    findings = (
        Finding(code="leakage", level="warning", count=3, text="3 held-out rows are in training too."),
        Finding(code="exact_duplicates", level="warning", count=2, text="2 rows repeat others."),
        Finding(code="languages", level="note", count=1, text="Mostly English."),
    )
    checkup = Checkup(rows=5_000, findings=findings)
    advices = advise(RunConfig(), CHAT, rows((300,) * 5_000), report_of(5_000), checkup)
    assert [advice.code for advice in advices] == ["leakage", "rows"], "two repeats in 5,000 rows are no matter"


def test_nothing_is_said_of_data_that_is_not_there() -> None:
    assert advise(RunConfig(), CHAT, None, None, None) == ()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_its_usual_learning_rate_proposed(method: Method) -> None:
    row = METHODS[method]
    layout = (*row.layouts, "messages")[0]
    asked = said(train(learning_rate=1e-2).with_method(method), 5_000, layout=layout)["learning_rate"]
    usual = asked.changes["train.learning_rate"]
    assert float(usual) == (row.usual_rate or 2e-4)
    assert row.usual_rate is None or f"{row.title} wants small steps" in asked.text
    proposed = said(train(learning_rate=float(usual)).with_method(method), 5_000, layout=layout)
    assert "learning_rate" not in proposed
