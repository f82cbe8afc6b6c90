"""A tiny random BERT without a head, and a word tokenizer that writes [CLS] text [SEP] second text [SEP]."""

from __future__ import annotations

from pathlib import Path

from tiny_run import WORDS

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def make_bert(folder: Path) -> Path:
    """Three layers of 32 dimensions, all of them drawn large enough to say something."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    core = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    PreTrainedTokenizerFast(tokenizer_object=core, model_input_names=inputs, **named).save_pretrained(folder)
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=64, pad_token_id=0, initializer_range=0.2,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    return folder
