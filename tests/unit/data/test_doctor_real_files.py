"""Real files, read by eye once: what the doctor says of them is true, and it says nothing else."""

from itertools import islice

import pytest
from whole_rows import examine

from core.contract.config import DataChoice
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
    # our own samples
    "chat.jsonl": {"system_prompts": 33},
    "instruction.jsonl": {"near_duplicates": 8, "leakage": 1},
    "preference.jsonl": {},
    "text.txt": {},
}  # fmt: skip

AGAIN = ("gsm8k_7473.json", "text_wiki.txt")
"""Of these nothing is said, as of the smaller ``sst2_dev.tsv`` and ``text.txt``."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in AGAIN else ()) for name in SAID])
def test_real_files(name: str, request: pytest.FixtureRequest) -> None:
    sample = ASSETS / "samples" / name
    path = sample if sample.exists() else request.getfixturevalue("shared_data") / name
    rows = islice(read_examples(path, DataChoice(), "sft" if "kto" in name else None), 1_500)
    found = examine(rows, seed=3407).findings
    assert {finding.code: finding.count for finding in found} == SAID[name]
