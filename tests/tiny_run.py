"""A tiny random Llama with a tokenizer of its own, rows for it and a config around both: nothing is fetched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.contract.config import RunConfig
from core.runs.folder.job_folder import JobFolder

if TYPE_CHECKING:
    import torch

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


def sentence(number: int) -> str:
    """A sentence of its own length for each number, always the same."""
    return " ".join(WORDS[(number * 7 + place * (number % 5 + 1)) % len(WORDS)] for place in range(3 + number % 9))


def write_instructions(path: Path) -> Path:
    """Forty rows of prompt and completion."""
    rows = [{"prompt": sentence(number), "completion": sentence(number + 3)} for number in range(40)]
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
        sample_rows=0, report=False, learning_rate=1e-2, num_train_epochs=50,
    )  # fmt: skip
    return raw


def make_in(folder: str, **shape: int) -> None:
    """Model, data and a config of 150 steps in a folder, for tests of whole processes."""
    model = make_model(Path(folder) / "tiny", **shape)
    raw = raw_config(model, write_instructions(Path(folder) / "rows.jsonl"))
    raw["lora"].update(lora_dropout=0.1)
    raw["train"].update(max_steps=150, eval_steps=60, save_steps=10)
    (Path(folder) / "run.json").write_text(json.dumps(raw), encoding="utf-8")


def weights(folder: JobFolder, name: str = "") -> dict[str, torch.Tensor]:
    """What was trained, of the checkpoint of this name, or of the newest good one."""
    from safetensors.torch import load_file

    from core.train.keep import checkpoint

    place = folder.checkpoints / name if name else checkpoint.latest_good(folder)
    assert place is not None
    (file,) = (place / folder.config().learns.folder).glob("*.safetensors")
    return load_file(file)


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether two adapters have the same tensors, bit for bit."""
    import torch

    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
