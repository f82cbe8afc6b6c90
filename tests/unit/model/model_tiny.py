"""Tiny random models of every family, as folders and in memory. All sizes are multiples of 64, as NF4 wants them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from core.model.adapters import trainable
from core.model.attention import packed as attention

SIZES = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
EXTRA: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 5},
    "gemma2": {"sliding_window": 5, "final_logit_softcapping": 3.0, "attn_logit_softcapping": 2.0},
    "gemma3_text": {"sliding_window": 5},
    "granite": {"logits_scaling": 4.0},
    "cohere": {"logit_scale": 0.25},
}


def build(family: str, seed: int = 0, **changes: Any) -> Any:
    """A random float32 model of this family with packed attention."""
    attention.register()
    config = AutoConfig.for_model(family, **{**SIZES, **EXTRA.get(family, {}), **changes})
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="luthier_packed")
    model.requires_grad_(False)
    model.config.use_cache = False
    with torch.no_grad():  # layer norms start as ones (or zeros): make them say something
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def adapt(model: Any, seed: int = 1, **changes: Any) -> Any:
    """peft's LoRA on all projections, B drawn at random (at zero every gradient of A would be zero), and magnitudes."""
    torch.manual_seed(seed)
    settings = {"r": 8, "lora_alpha": 16, "target_modules": "all-linear", "task_type": "CAUSAL_LM", **changes}
    wrapped = get_peft_model(model, LoraConfig(**settings))
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.05)
            elif "magnitude" in name:
                parameter.mul_(0.5 + torch.rand_like(parameter))
    return wrapped


def save_tiny(folder: Path, family: str = "llama", **changes: Any) -> Path:
    """A model folder with weights and a word tokenizer that has no padding token."""
    build(family, **changes).save_pretrained(str(folder))
    words = ["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(90))]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    tokenizer.save_pretrained(str(folder))
    return folder


def gradients(model: Any) -> dict[str, torch.Tensor]:
    """The trainable parameters' gradients, and none left behind."""
    actual = {name: parameter.grad.clone() for name, parameter in trainable(model)}
    model.zero_grad()
    return actual


def assert_close(actual: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], bound: float = 1e-5) -> None:
    """Each tensor within ``bound`` by norm, and none of them zero."""
    assert actual.keys() == wanted.keys()
    for name, value in wanted.items():
        assert value.norm() > 0, name
        assert (actual[name] - value).norm() / value.norm() <= bound, name


def packed_batch(lengths: list[int], vocabulary: int = 97, seed: int = 3) -> dict[str, Any]:
    """Rows of these lengths in one batch row, with bounds, and every token but the first two of a row trained."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, vocabulary, (1, sum(lengths)), generator=generator)
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    bounds = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
    labels = torch.where(positions < 2, -100, ids)
    longest = max(lengths)
    return {
        "input_ids": ids,
        "labels": labels,
        "position_ids": positions,
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds,
        "max_length_q": longest,
        "max_length_k": longest,
    }


def rows_of(batch: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a packed batch, each as a batch of its own without bounds."""
    edges = batch["cu_seq_lens_q"].tolist()
    pairs = pairwise(edges)
    return [{"input_ids": batch["input_ids"][:, s:e], "labels": batch["labels"][:, s:e]} for s, e in pairs]
