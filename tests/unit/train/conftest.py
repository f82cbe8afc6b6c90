"""A tiny random Llama with a tokenizer of its own, and run folders around it: nothing is fetched, nothing is shared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.contract.commands import Command
from core.contract.config import RunConfig
from core.contract.events import Event, Step
from core.runs.folder import JobFolder
from core.runs.run_yaml import dump_config

WORDS = (
    "the", "a", "cat", "dog", "bird", "sees", "likes", "finds", "red", "green", "blue", "small", "big", "house", "tree",
    "river", "and", "or", "not", "one", "two", "three",
)  # fmt: skip


def make_model(folder: Path, **shape: int) -> Path:
    """A Llama of two layers and 64 dimensions; every in_features is a multiple of 64, as NF4 wants."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from tokenizers.decoders import ByteLevel
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevel()
    special = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=512, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator([" ".join(WORDS)] * 3, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>")
    fast.chat_template = (
        "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    )
    fast.save_pretrained(folder)
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=len(fast), **{"hidden_size": 64, "intermediate_size": 128, **shape}, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256, eos_token_id=0, pad_token_id=0,
        bos_token_id=None, initializer_range=0.2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, made once."""
    return make_model(tmp_path_factory.mktemp("tiny"))


def sentence(number: int) -> str:
    """A sentence of its own length for each number, always the same."""
    return " ".join(WORDS[(number * 7 + place * (number % 5 + 1)) % len(WORDS)] for place in range(3 + number % 9))


@pytest.fixture(scope="session")
def instructions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The instructions, written once."""
    return write_instructions(tmp_path_factory.mktemp("data") / "rows.jsonl")


def write_instructions(path: Path) -> Path:
    """Forty rows of prompt and completion."""
    rows = [{"prompt": sentence(number), "completion": sentence(number + 3)} for number in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def preferences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty-four pairs."""
    path = tmp_path_factory.mktemp("data") / "pairs.jsonl"
    rows = [
        {"prompt": sentence(number), "chosen": sentence(number + 3), "rejected": sentence(number + 5)}
        for number in range(24)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def raw_config(model: Path, data: Path) -> dict[str, Any]:
    """A complete config of six steps, as nested dictionaries."""
    raw = RunConfig().model_dump()
    raw["model"].update(source="folder", name=str(model), quantization="none", dtype="float32")
    raw["data"].update(path=str(data), layout="prompt_completion", eval_fraction=0.1)
    raw["lora"].update(r=4, lora_alpha=8)
    raw["train"].update(
        max_length=64, per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=6, warmup_steps=1,
        optim="adamw_torch", tokens_per_pass=64, checkpointing="none", eval_steps=3, save_steps=2, save_minutes=0,
        learning_rate=1e-2, num_train_epochs=50,
    )  # fmt: skip
    return raw


def make_in(folder: str, **shape: int) -> None:
    """Model, data and a config of 150 steps in a folder, for tests of whole processes."""
    model = make_model(Path(folder) / "tiny", **shape)
    raw = raw_config(model, write_instructions(Path(folder) / "rows.jsonl"))
    raw["lora"].update(lora_dropout=0.1)
    raw["train"].update(max_steps=150, eval_steps=60, save_steps=10)
    (Path(folder) / "run.json").write_text(json.dumps(raw), encoding="utf-8")


@pytest.fixture
def run_config(tiny_model: Path, instructions: Path) -> Callable[..., RunConfig]:
    """A complete config on the tiny model; keyword arguments are dotted keys with ``__`` for the dot."""

    def make(**values: Any) -> RunConfig:
        raw = raw_config(tiny_model, instructions)
        for key, value in values.items():
            part = raw
            *parents, last = key.split("__")
            for parent in parents:
                part = part[parent]
            part[last] = value
        return RunConfig.model_validate(raw)

    return make


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[..., JobFolder]:
    """Writes a config into a run folder of the given name."""

    def make(config: RunConfig, name: str = "run") -> JobFolder:
        path = tmp_path / "runs" / name
        path.mkdir(parents=True)
        (path / "run.yaml").write_text(dump_config(config), encoding="utf-8")
        return JobFolder(path)

    return make


class Said:
    """A writer that keeps what is written."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.attempt = 1

    def write(self, event: Event) -> Event:
        self.events.append(event)
        return event

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.kind == kind]


class Letters:
    """A mailbox into which a test puts commands."""

    def __init__(self) -> None:
        self.waiting: list[Command] = []

    def poll(self) -> list[Command]:
        found, self.waiting = self.waiting, []
        return found


@pytest.fixture
def said() -> Said:
    return Said()


@pytest.fixture
def letters() -> Letters:
    return Letters()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Two cores serve many tests."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def losses(events: list[Event]) -> list[tuple[int, float | None]]:
    """Step and loss of every step."""
    return [(event.step, event.loss) for event in events if isinstance(event, Step)]
