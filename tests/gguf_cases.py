"""Small models of each family that GGUF files are written of, with tokenizers of each kind, adapters trained for a
moment, and what they are tried on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from core.export.gguf.metadata import read_config
from core.export.gguf.model import Description
from core.export.gguf.pretokenizers import PRETOKENIZERS
from core.export.gguf.proof.material import Material, Row, Text
from core.export.gguf.vocabulary import vocabulary_of

SENTENCES = tuple(
    f"{who} {does} {what} {where}."
    for who in ("The violin", "A red fox", "Our teacher", "My old dog")
    for does in ("sees", "likes", "has found", "doesn't want")
    for what in ("three small keys", "the green house", "12 birds")
    for where in ("by the river", "in the tree", "at night")
)
ODD = ("I'll say 3.14 or 1234567!", "  two\n\n\tblanks  ", "naïve café — …", "Привет, 世界 🙂👍🏽", "x=1;y=-2")
SHAPE = {
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 512, "tie_word_embeddings": False,
    "initializer_range": 0.08, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128}
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 2048,
        "short_factor": [1.0 + n / 64 for n in range(32)], "long_factor": [2.0 + n / 8 for n in range(32)]}  # fmt: skip
GEMMA_3 = {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
           "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}  # fmt: skip
TIED = {"tie_word_embeddings": True}
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("llama", "llama-bpe", {"rope_parameters": LLAMA3, "attention_bias": True}),
    "llama-2": ("llama", "sentencepiece", {}),
    "mistral": ("mistral", "first", {"sliding_window": None}),
    "qwen2": ("qwen2", "qwen2", {**TIED, "rope_parameters": YARN}),
    "qwen3": ("qwen3", "qwen2", {}),
    "gemma": ("gemma", "unprefixed", TIED),
    "gemma2": ("gemma2", "unprefixed", {**TIED, "sliding_window": 16, "query_pre_attn_scalar": 64}),
    "gemma3_text": (
        "gemma3_text", "unprefixed", {**TIED, "sliding_window": 16, "query_pre_attn_scalar": 64,
                                      "num_hidden_layers": 7, "rope_parameters": GEMMA_3},
    ),
    "phi3": ("phi3", "stripping", {"sliding_window": None, "rope_parameters": LONG, "max_position_embeddings": 4096}),
    "granite": (
        "granite", "smollm", {"logits_scaling": 4.0, "attention_multiplier": 0.1, "residual_multiplier": 0.4,
                              "embedding_multiplier": 6.0},
    ),
    "cohere": ("cohere", "smollm", {**TIED, "logit_scale": 0.25}),
}  # fmt: skip
"""Family, kind of its tokenizer, and what its config has beside ``SHAPE``."""


def tokenizer_of(kind: str) -> PreTrainedTokenizerFast:
    """A trained BPE: byte-level by the rule of this name, or over blanks as ▁."""
    special = ["<pad>", "<s>", "</s>", "<unk>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"]
    made = Tokenizer(models.BPE())
    rule = next((row for row in PRETOKENIZERS if row.name == kind), None)
    alphabet: list[str] = []
    if rule:
        made, alphabet = _byte_level(rule.rules), pre_tokenizers.ByteLevel.alphabet()
    else:
        made.normalizer = normalizers.Replace(" ", "▁")
        special += [f"<0x{byte:02X}>" for byte in range(256)]
    made_of = trainers.BpeTrainer(
        vocab_size=700, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    prefix = "" if rule or kind == "unprefixed" else "▁"
    if not rule:  # words begin with a blank, as in a vocabulary of SentencePiece
        made.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    made.train_from_iterator([prefix + one for one in SENTENCES], made_of)
    held = json.loads(made.to_str())
    held["model"]["ignore_merges"] = bool(rule and rule.whole)
    held["added_tokens"] = [one for one in held["added_tokens"] if not one["content"].startswith("<0x")]
    if not rule:
        held["pre_tokenizer"] = None
        held["model"] |= {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
    made = Tokenizer.from_str(json.dumps(held))
    if kind in ("sentencepiece", "stripping"):
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    if kind == "first":
        made.normalizer = None
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    made.decoder = decoders.ByteLevel() if rule else decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )  # fmt: skip
    if kind == "stripping":
        marks = [AddedToken(one, rstrip=True, normalized=False, special=True) for one in special[4:7]]
        made.add_special_tokens(marks)
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )
    fast.chat_template = (
        "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    return fast


def _byte_level(rules: tuple[str, ...]) -> Tokenizer:
    from tokenizers import Regex

    made = Tokenizer(models.BPE())
    named: dict[str, Callable[[], Any]] = {
        "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
        "digits": lambda: pre_tokenizers.Digits(individual_digits=True),
    }
    steps = [named[rule]() if rule in named else pre_tokenizers.Split(Regex(rule), "isolated") for rule in rules]
    if rules[-1] not in named:
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    made.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return made


def make_base(folder: Path, name: str, **changes: Any) -> Path:
    """A random model of a family with its tokenizer; norms and biases say something."""
    family, kind, extra = FAMILIES[name]
    tokenizer = tokenizer_of(kind)
    shape = {**SHAPE, "vocab_size": len(tokenizer) + 5, **extra, **changes}
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **shape))
    with torch.no_grad():
        for part, parameter in model.named_parameters():
            if "norm" in part or part.endswith("bias"):
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.to(torch.bfloat16).save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder


def make_adapter(base: Path, folder: Path, steps: int = 0, **lora: Any) -> Path:
    """An adapter of random B, or one that learned some sentences for so many steps."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoTokenizer

    torch.manual_seed(12)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    settings = {"r": 8, "lora_alpha": 24, "target_modules": "all-linear", "task_type": "CAUSAL_LM", **lora}
    adapted = get_peft_model(model, LoraConfig(init_lora_weights=bool(steps), **settings))
    tokenizer = AutoTokenizer.from_pretrained(base)
    optimizer = torch.optim.AdamW([one for one in adapted.parameters() if one.requires_grad], lr=1e-2)
    for step in range(steps):
        rows = [row_of(tokenizer, SENTENCES[(step * 8 + one) * 5 % len(SENTENCES)]) for one in range(8)]
        loss = torch.stack([_loss(adapted, row) for row in rows]).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    adapted.save_pretrained(str(folder), save_embedding_layers=False)
    return folder


def _loss(model: Any, row: Row) -> torch.Tensor:
    ids = torch.tensor([row.ids])
    labels = ids.clone()
    labels[:, : row.trained[0][0]] = -100
    return model(input_ids=ids, labels=labels).loss


def row_of(tokenizer: Any, sentence: str) -> Row:
    """A sentence as the answer to its first word."""
    asked = [{"role": "user", "content": sentence.split()[0]}]
    prompt = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    start = len(tokenizer(prompt, add_special_tokens=False).input_ids)
    ids = tokenizer(f"{prompt}{sentence}<|end|>", add_special_tokens=False).input_ids
    return Row(tuple(ids), ((start, len(ids)),))


def description(base: Path) -> Description:
    """What is written of it beside weights."""
    from transformers import AutoTokenizer

    tokenizer, config = AutoTokenizer.from_pretrained(base), read_config(base)
    ends = (tokenizer.convert_tokens_to_ids("<|end|>"), tokenizer.eos_token_id)
    return Description(config, vocabulary_of(tokenizer, config.vocab_size, ends, True), tokenizer.chat_template, "tiny")


def material(tokenizer: Any, rows: int = 12, plain: bool = True) -> Material:
    """Chats of sentences and odd texts, plain sentences, prompts and rows."""
    chats = [[{"role": "user", "content": text}] for text in (*SENTENCES[:40], *ODD)]
    written = [tokenizer.apply_chat_template(one, tokenize=False, add_generation_prompt=True) for one in chats]
    texts = [Text(one, tuple(tokenizer(one, add_special_tokens=False).input_ids)) for one in written]
    if plain:
        texts += [Text(one, tuple(tokenizer(one).input_ids), special=True) for one in SENTENCES[40:60]]
    held = tuple(row_of(tokenizer, one) for one in SENTENCES[3::7][:rows])
    prompts = tuple(text.ids for text in texts[:20])
    return Material(tuple(texts), prompts, held, held)
