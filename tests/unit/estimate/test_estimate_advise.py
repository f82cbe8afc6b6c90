"""Advice: said where a setting lies beside the data, silent where it does not, and silent at its own proposals."""

from __future__ import annotations

from typing import Any

import pytest

from core.contract.config import DataChoice, LoraChoice, RunConfig, TrainChoice
from core.contract.data import DataFacts, DataReport
from core.contract.estimate import Advice
from core.contract.findings import Checkup, Finding
from core.estimate import advise
from core.estimate.advise import rank_for
from core.models.catalog import apply_preset, catalogue, presets, starter

SPECS = {spec.key: spec for spec in catalogue()}
CHAT, BASE = SPECS["mistral-7b"], SPECS["mistral-7b"].model_copy(update={"instruct": False, "title": "A base"})


def facts_of(rows: int, length: int = 300, longest: int = 0, max_length: int = 2048) -> DataFacts:
    lengths = (length,) * (rows - 1) + (longest or length,)
    return DataFacts(
        rows=rows, lengths=lengths, trained=tuple(one // 2 for one in lengths), max_length=max_length,
        longest=max(lengths), mean=sum(lengths) / rows,
    )  # fmt: skip


def report_of(rows: int, layout: str = "messages", usable: int = 0) -> DataReport:
    return DataReport(
        path="x.jsonl", sha256="0", bytes=1, rows=rows, usable=usable or rows, layout=layout,  # type: ignore[arg-type]
        reason="", columns=(), mapping={}, roles=(), method="sft",
    )  # fmt: skip


def said(
    config: RunConfig, rows: int, spec: Any = CHAT, layout: str = "messages", length: int = 300
) -> dict[str, Advice]:
    found = advise(config, spec, facts_of(rows, length), report_of(rows, layout), None)
    assert len({advice.code for advice in found}) == len(found), "each word once"
    assert all("\n" not in advice.text and advice.text.endswith(".") for advice in found)
    return {advice.code: advice for advice in found}


def after(config: RunConfig, advice: Advice) -> RunConfig:
    raw = config.model_dump()
    for key, value in advice.changes.items():
        part, _, field = key.partition(".")
        raw[part][field] = value
    return RunConfig.model_validate(raw)


def train(**values: Any) -> RunConfig:
    return RunConfig(train=TrainChoice(**values))


@pytest.mark.parametrize(
    ("rows", "code", "words"),
    [(400, "few_rows", "learned by heart"), (5_000, "rows", "chosen with care"), (40_000, "rows", "a good size"),
     (1_100_000, "many_rows", "full finetuning")],
)  # fmt: skip
def test_the_size_of_the_data_is_judged(rows: int, code: str, words: str) -> None:
    found = advise(RunConfig(), CHAT, None, report_of(rows), None)
    assert words in next(advice.text for advice in found if advice.code == code)


CASES = [
    # config, rows, layout, code, changes
    (train(num_train_epochs=8), 900, "messages", "epochs", {"train.num_train_epochs": "3"}),
    (train(num_train_epochs=3), 200_000, "messages", "epochs", {"train.num_train_epochs": "1"}),
    (train(num_train_epochs=6), 20_000, "text", "epochs", {"train.num_train_epochs": "4"}),
    (train(max_steps=30), 5_000, "messages", "max_steps", {"train.max_steps": "0"}),
    (RunConfig(), 150_000, "messages", "rank_low", {"lora.r": "128", "lora.lora_alpha": "128"}),
    (RunConfig(), 4_000, "text", "rank_low", {"lora.r": "64", "lora.lora_alpha": "64"}),
    (RunConfig(lora=LoraChoice(r=256, lora_alpha=128)), 800, "messages", "rank_high",
     {"lora.r": "16", "lora.lora_alpha": "8"}),
    (train(learning_rate=5e-3), 5_000, "messages", "learning_rate", {"train.learning_rate": "0.0002"}),
    (train(learning_rate=2e-5), 5_000, "messages", "learning_rate", {"train.learning_rate": "0.0002"}),
    (train(gradient_accumulation_steps=1, per_device_train_batch_size=1, learning_rate=2e-4), 5_000, "messages",
     "learning_rate", {"train.learning_rate": "5e-05"}),
    (train(warmup_steps=400), 900, "messages", "warmup", {"train.warmup_steps": "16"}),
    (train(num_train_epochs=1), 200, "messages", "few_steps",
     {"train.per_device_train_batch_size": "4", "train.gradient_accumulation_steps": "1"}),
    (RunConfig(data=DataChoice(eval_fraction=0)), 5_000, "messages", "no_evaluation", {"data.eval_fraction": "0.05"}),
    (RunConfig(data=DataChoice(train_on="everything")), 5_000, "messages", "train_on", {"data.train_on": "answers"}),
]  # fmt: skip


@pytest.mark.parametrize(("config", "rows", "layout", "code", "changes"), CASES, ids=[str(case[3]) for case in CASES])
def test_what_lies_beside_the_data_is_said_and_mended(
    config: RunConfig, rows: int, layout: str, code: str, changes: dict[str, str]
) -> None:
    advice = said(config, rows, layout=layout)[code]
    assert advice.changes == changes
    assert code not in said(after(config, advice), rows, layout=layout), "silent at its own proposal"


@pytest.mark.parametrize("rows", [1_500, 8_000, 50_000])
def test_usual_settings_are_not_nagged_at(rows: int) -> None:
    config = RunConfig(lora=LoraChoice(r=64, lora_alpha=64) if rows > 10_000 else LoraChoice())
    assert set(said(config, rows)) == {"rows"}


@pytest.mark.parametrize("preset", presets(), ids=lambda preset: preset.key)
def test_our_own_presets_are_not_warned_of(preset: Any) -> None:
    config, tiny = apply_preset(RunConfig(), preset), preset.key == "try-it"
    layout = {"domain-knowledge": "text", "preferences": "preference"}.get(preset.key, "messages")
    found = said(config, 5_000, starter() if tiny else CHAT, layout, 90 if tiny else 300).values()
    assert [
        advice.code for advice in found if advice.level == "warning" and not (tiny and advice.code == "max_steps")
    ] == []


def test_rank_follows_task_data_and_model() -> None:
    small, large = SPECS["qwen3-0.6b"], SPECS["mistral-7b"]
    assert [rank_for(large, rows, raw_text=True) for rows in (2_000, 50_000, 500_000)] == [64, 128, 256]
    assert [rank_for(large, rows, raw_text=False) for rows in (2_000, 50_000, 500_000)] == [16, 64, 128]
    assert rank_for(small, 500_000, raw_text=True) == 64


def test_lengths_that_cut_are_said_with_the_length_that_does_not() -> None:
    facts = DataFacts(
        rows=1000,
        lengths=(300,) * 900 + (2900,) * 100,
        trained=(100,) * 1000,
        max_length=2048,
        longest=2900,
        mean=560.0,
    )
    (advice,) = (one for one in advise(RunConfig(), CHAT, facts, report_of(1000), None) if one.code == "rows_cut")
    assert advice.changes == {"train.max_length": "3072"}
    assert "100 rows (10%)" in advice.text
    longer = advise(after(RunConfig(), advice), CHAT, facts, report_of(1000), None)
    assert "rows_cut" not in {one.code for one in longer}
    beyond = SPECS["tinyllama-1.1b"]
    found = {one.code: one for one in advise(train(max_length=4096), beyond, facts, report_of(1000), None)}
    assert found["beyond_model"].changes == {"train.max_length": "2048"}


def test_padding_without_packing_is_said() -> None:
    facts = DataFacts(
        rows=1000, lengths=(100,) * 500 + (1000,) * 500, trained=(50,) * 1000, max_length=2048, longest=1000, mean=550.0
    )
    codes = {advice.code for advice in advise(train(packing=False), CHAT, facts, report_of(1000), None)}
    assert "packing" in codes
    assert "packing" not in {advice.code for advice in advise(RunConfig(), CHAT, facts, report_of(1000), None)}


def test_base_and_instruct_models_are_told_apart() -> None:
    assert said(RunConfig(), 800, BASE)["base_model"].level == "warning"
    assert said(RunConfig(), 5_000, BASE)["base_model"].level == "note"
    assert "base_model" not in said(RunConfig(), 5_000)
    assert "instruct_model" in said(RunConfig(), 5_000, layout="text")


def test_targets_left_out_and_rows_left_out_are_said() -> None:
    config = RunConfig(lora=LoraChoice(target_modules=("q_proj", "v_proj")))
    assert "k_proj, o_proj" in said(config, 5_000)["targets"].text
    found = {one.code: one for one in advise(RunConfig(), CHAT, None, report_of(1_000, usable=900), None)}
    assert "100 of 1,000 rows" in found["unusable_rows"].text


def test_serious_findings_of_the_doctor_are_repeated_first() -> None:
    findings = (
        Finding(code="leakage", level="warning", count=3, text="3 held-out rows are in training too."),
        Finding(code="exact_duplicates", level="warning", count=2, text="2 rows repeat others."),
        Finding(code="languages", level="note", count=1, text="Mostly English."),
    )
    found = advise(RunConfig(), CHAT, facts_of(5_000), report_of(5_000), Checkup(rows=5_000, findings=findings))
    assert [advice.code for advice in found] == ["leakage", "rows"], "two repeats in 5,000 rows are no matter"


def test_nothing_is_said_of_data_that_is_not_there() -> None:
    assert advise(RunConfig(), CHAT, None, None, None) == ()


def test_a_few_rows_ask_for_no_more_rank() -> None:
    low = RunConfig(lora=LoraChoice(r=2))
    assert "rank_low" not in said(low, 20)
    few, many = said(low, 5_000)["rank_low"].text, said(low, 50_000)["rank_low"].text
    assert "16 holds more, for more memory." in few
    assert "64 to 128 is usual" in many


def test_counts_of_one_are_said_as_one() -> None:
    found = said(train(num_train_epochs=3), 200_000)["epochs"]
    assert found.text == "3 passes over 199,800 rows: beyond 1, more is learned by heart."
    assert "Only 1 step:" in said(train(num_train_epochs=1), 7)["few_steps"].text


def test_pairs_are_not_told_to_pack() -> None:
    lengths = tuple(range(10, 2010))
    facts = facts_of(2000).model_copy(update={"lengths": lengths, "longest": 2009})
    for method, codes in (("sft", ["packing"]), ("dpo", [])):
        config = train(packing=False).model_copy(update={"method": method})
        found = advise(config, CHAT, facts, report_of(2000), None)
        assert [advice.code for advice in found if advice.code == "packing"] == codes
