"""Rows of uneven lengths, a tokenizer of sixty words, and a runner that measures in this process."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from core.bench.children import Outcome
from core.bench.setting import Setting
from core.bench.step import measure
from core.contract.errors import Fault

WORDS = ["<unk>", "<s>", "</s>", *(f"w{number}" for number in range(57))]


@pytest.fixture(scope="session")
def rows_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """23 texts of 3 to 40 drawn words."""
    draw = random.Random(5)
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    texts = [" ".join(draw.choices(WORDS[3:], k=draw.randint(3, 40))) for _ in range(23)]
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    return path


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One token a word, no BOS."""
    folder = tmp_path_factory.mktemp("tokenizer")
    core = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(str(folder))
    return folder


@pytest.fixture
def setting(rows_file: Path, tokenizer_folder: Path) -> Setting:
    """Three steps of four rows on the tiny model, B drawn, in float32 throughout."""
    return Setting(
        rows=f"file:{rows_file}", tokenizer=str(tokenizer_folder), batch=2, accumulation=2, steps=2, warm_up=1,
        held_out=3, draw_b=True, quantization="none",
    )  # fmt: skip


@pytest.fixture
def in_process() -> Callable[..., Outcome]:
    """As ``own_process``, without the seconds that a process takes to import its libraries."""

    def run(setting: Setting, say: Callable[[str], None], every: int) -> Outcome:
        try:
            return Outcome(measure(setting, say, every))
        except Fault as error:
            return Outcome(None, str(error))

    return run
