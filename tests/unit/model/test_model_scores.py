"""A decoder with a head of scores, under every kind of adapter, on tied weights, with the padding as rows' end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from encoder_cases import encoder_folder, packed_batch
from transformers import AutoConfig, AutoModelForCausalLM

from core.contract.config import LoraChoice, ModelChoice, RunConfig
from core.contract.errors import ModelError
from core.contract.tasks import Outputs
from core.model.adapters import load_adapter
from core.model.attention import packed
from core.model.learners import LEARNERS, Onto
from core.model.scores import ScoreHead, ScoreModel, load_model, with_scores

OUTPUTS = Outputs(("a", "b", "c"))
END = 2
ROWS = [torch.tensor([5, 6, 7, END]), torch.tensor([8, END])]
KINDS: list[dict[str, Any]] = [
    {}, {"use_dora": True}, {"init_lora_weights": "pissa_niter_16"}, {"use_rslora": True}, {"bias": "lora_only"},
    {"target_modules": ("q_proj", "embed_tokens")}, {"lora_dropout": 0.1},
]  # fmt: skip


def scored(tied: bool, seed: int = 1) -> Any:
    packed.register()
    config = AutoConfig.for_model(
        "llama", hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=97, tie_word_embeddings=tied, pad_token_id=END, eos_token_id=END,
        bos_token_id=1, attn_implementation=packed.NAME,
    )  # fmt: skip
    torch.manual_seed(0)
    return with_scores(AutoModelForCausalLM.from_config(config).requires_grad_(False), OUTPUTS, seed)


@pytest.mark.parametrize("lora", KINDS, ids=str)
def test_every_kind_of_adapter_learns_beside_a_head_and_comes_back(lora: dict[str, Any], tmp_path: Path) -> None:
    """Its head too; the scores after loading are those before saving."""
    config = RunConfig(method="classify", lora=LoraChoice(**{"r": 4, **lora}))
    assert not [line for line in config.problems() if not line.startswith("data.path")]
    trained = LEARNERS["adapter"](Onto(scored(tied=True), lambda: None, outputs=OUTPUTS), config)
    ScoreModel(trained.model.train())(**packed_batch(ROWS)).sum().backward()
    heads = [one for name, one in trained.named if ".score." in name]
    assert [one.grad is not None and bool(one.grad.any()) for one in heads] == [True]
    with torch.no_grad():
        for parameter in trained.parameters:
            parameter.add_(0.01)
        wanted = ScoreModel(trained.model.eval())(**packed_batch(ROWS))
    trained.save(tmp_path)
    again = load_adapter(scored(tied=True, seed=2), tmp_path, trainable=False)
    with torch.no_grad():
        assert torch.allclose(ScoreModel(again.eval())(**packed_batch(ROWS)), wanted, atol=1e-5)


@pytest.mark.parametrize("tied", [False, True])
def test_scores_are_those_of_transformers_though_the_padding_ends_the_rows(tied: bool) -> None:
    """Its own class, one row at a time: it pools the last token that is no padding."""
    model = scored(tied).eval()
    ours = ScoreModel(model)(**packed_batch(ROWS))
    for row, logits in zip(ROWS, ours, strict=True):
        assert torch.allclose(model(input_ids=row[None]).logits[0], logits, atol=1e-5)


def test_an_encoder_whose_tokenizer_swells_is_not_loaded(tmp_path: Path) -> None:
    folder = encoder_folder(tmp_path / "it", "bert")
    swell = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 99}
    (folder / "tokenizer.json").write_text(json.dumps({"normalizer": swell, "model": {"type": "WordPiece"}}))
    with pytest.raises(ModelError, match="at most 64 times as long"):
        load_model(folder, ModelChoice(quantization="none"), torch.device("cpu"), ScoreHead(OUTPUTS))
