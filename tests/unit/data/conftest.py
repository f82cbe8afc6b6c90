"""A tokenizer made in memory, so that these tests run wherever the project lies."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from made_here import MakerHere

from core.data.service import doctor
from core.data.service.data_service import DataService
from core.machine.locations import Locations

MARKS = ["<|im_start|>", "<|im_end|>", "<eos>", "<bos>", "<pad>"]


def _make(bos: bool = False) -> Any:
    """Byte-level BPE over a few words, with five special tokens; ``bos``: it begins each text with its BOS."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=MARKS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    inner.train_from_iterator(["the answer is here", "a question of the assistant and the user"] * 5, trainer)
    if bos:
        inner.post_processor = processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", inner.token_to_id("<bos>"))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<eos>", bos_token="<bos>", pad_token="<pad>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
    )  # fmt: skip


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[..., Any]:
    """Makes a tokenizer; ``bos=True``: one that begins each text with its BOS."""
    return _make


@pytest.fixture
def tokenizer() -> Any:
    """A fresh tokenizer without a chat template."""
    return _make()


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same tokenizer, saved."""
    folder = tmp_path_factory.mktemp("tokenizer")
    _make().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def warm_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataService]:
    """A data room with a home of its own, its two children warm: each takes seconds to start."""
    made = DataService(Locations(tmp_path_factory.mktemp("data home")).make())
    made.warm()
    yield made
    made.close()


@pytest.fixture
def makes_here(warm_service: DataService, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the warm data room makes data sets in this process: for tests of what is made, not of the child."""
    monkeypatch.setattr(doctor, "Child", MakerHere)
