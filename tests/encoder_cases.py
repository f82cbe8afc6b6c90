"""Tiny encoders of every family of the table, and rows for them; shared by CPU and GPU tests."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, PreTrainedTokenizerFast

from core.model.encoders.load import new_classifier
from core.models.encoders import ENCODERS

VOCABULARY = 97
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film")
LENGTHS = (9, 3, 31, 1, 14, 30, 2)
SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
DISTILBERT = {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48}
MORE: dict[str, dict[str, Any]] = {
    "distilbert": DISTILBERT,
    # The second layer sees the whole row, the others five tokens to each side.
    "modernbert": {"global_attn_every_n_layers": 2, "local_attention": 10, "cls_token_id": 1, "sep_token_id": 2},
    # As in DeBERTa-v3.
    "deberta-v2": {
        "relative_attention": True, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"], "share_att_key": True,
        "norm_rel_ebd": "layer_norm", "position_biased_input": False, "type_vocab_size": 0,
        "max_relative_positions": -1,
    },
}  # fmt: skip
CASES = [*((name, {}) for name in ENCODERS), ("modernbert", {"classifier_pooling": "mean"})]
OFF = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout", "seq_classif_dropout",
       "embedding_dropout", "mlp_dropout", "classifier_dropout", "pooler_dropout", "cls_dropout")  # fmt: skip


def config_of(family: str, dropout: bool = False, **changes: Any) -> Any:
    """A tiny config of three layers; without dropout unless asked for."""
    sizes = {} if family in MORE and "dim" in MORE[family] else SIZES
    given = {"vocab_size": VOCABULARY, "max_position_embeddings": 40, "num_labels": 3, "pad_token_id": 0}
    config = AutoConfig.for_model(family, **{**given, **sizes, **MORE.get(family, {}), **changes})
    for name in OFF:
        if hasattr(config, name) and not dropout:
            setattr(config, name, 0.0)
    return config


def encoder_folder(folder: Path, family: str, form: str = "AutoModelForMaskedLM", **changes: Any) -> Path:
    """A tiny encoder of this family as transformers saves it, with a vocabulary of whole words."""
    model = getattr(transformers, form).from_config(config_of(family, **changes))
    model.save_pretrained(str(folder))
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    return folder


def build(config: Any, attention: str = "", device: torch.device | str = "cpu", std: float = 0.2) -> Any:
    """A classifier whose weights are all drawn, biases and norms too: at their start many gradients are zero."""
    model = new_classifier(config, torch.device(device), attention=attention)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator) * std
            parameter.copy_(drawn + (1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0))
    return model


def save_tiny(folder: Path, family: str, **changes: Any) -> Path:
    """An encoder's folder, without a head, and a word tokenizer that writes [CLS] text [SEP] second text [SEP]."""
    config = config_of(family, **changes)
    config.num_labels = 2
    model = build(config)
    getattr(model, model.base_model_prefix).save_pretrained(str(folder))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{number}" for number in range(VOCABULARY - 4))]
    core = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    names = ["input_ids", "token_type_ids", "attention_mask"]
    PreTrainedTokenizerFast(tokenizer_object=core, model_input_names=names, **special).save_pretrained(str(folder))
    return folder


def rows_of(lengths: tuple[int, ...] = LENGTHS, seed: int = 5) -> list[torch.Tensor]:
    """Rows of drawn token ids, none of them the padding's."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, VOCABULARY, (length,), generator=generator) for length in lengths]


def packed_batch(rows: list[torch.Tensor], device: torch.device | str = "cpu") -> dict[str, Any]:
    """Rows end to end, as the trainer's batches are."""
    edges = [0, *torch.tensor([len(row) for row in rows]).cumsum(0).tolist()]
    return {
        "input_ids": torch.cat(rows)[None].to(device),
        "position_ids": torch.cat([torch.arange(end - start) for start, end in pairwise(edges)])[None].to(device),
        "cu_seq_lens_q": torch.tensor(edges, dtype=torch.int32, device=device),
        "max_length_q": max(len(row) for row in rows),
    }


def padded_batch(rows: list[torch.Tensor], device: torch.device | str = "cpu") -> dict[str, Any]:
    """transformers' way: filled up with the padding's id, and a mask."""
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    return {"input_ids": ids.to(device), "attention_mask": mask.to(device)}


def gradients(model: Any, logits: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of every parameter that got one, for a sum of the logits with drawn weights; they are cleared."""
    seed = torch.randn(logits.shape, generator=torch.Generator().manual_seed(7)).to(logits)
    model.zero_grad()
    (logits * seed).sum().backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found
