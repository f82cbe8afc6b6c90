"""Real files, read by eye once: what the doctor says of them is true, and it says nothing else."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from core.contract.config import DataChoice
from core.data.doctor.examine import Setting, examine
from core.data.read.examples import read_examples
from core.machine.locations import ASSETS

SAID = {
    "alpaca_en_999.json": {"exact_duplicates": 14, "stock_phrases": 26, "short_answers": 5},
    "gsm8k_7473.json": {},
    "kto_300.json": {"conflicting_answers": 4, "stock_phrases": 1, "markup": 1},
    "preference_300.json": {
        "exact_duplicates": 5, "stock_phrases": 4, "markup": 7, "system_prompts": 80, "non_printing": 1,
        "lost_letters": 2,
    },
    "sharegpt_500.json": {"near_duplicates": 26, "conflicting_answers": 167, "leakage": 9},
    "sharegpt_tools_300.json": {
        "exact_duplicates": 35, "stock_phrases": 16, "near_duplicates": 9, "conflicting_answers": 3, "leakage": 2,
    },
    "sst2_dev.tsv": {},
    "text_300.jsonl": {"non_printing": 4, "lost_letters": 4, "markup": 2},
    "text_wiki.txt": {},
}  # fmt: skip
SAMPLES = {
    "chat.jsonl": {"system_prompts": 33},
    "instruction.jsonl": {"near_duplicates": 8, "leakage": 1},
    "preference.jsonl": {},
    "text.txt": {},
}


def counts(path: Path) -> dict[str, int]:
    rows = islice(read_examples(path, DataChoice()), 1_500)
    return {finding.code: finding.count for finding in examine(rows, Setting(DataChoice(), 3407)).findings}


@pytest.mark.parametrize("name", SAID)
def test_real_files(shared_data: Path, name: str) -> None:
    assert counts(shared_data / name) == SAID[name]


@pytest.mark.parametrize("name", SAMPLES)
def test_our_samples(name: str) -> None:
    assert counts(ASSETS / "samples" / name) == SAMPLES[name]
