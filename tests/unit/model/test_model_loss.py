"""LossModel: equal to transformers' own loss, packed equal to one by one, rows blind to each other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_tiny import adapt, assert_close, build, gradients, packed_batch, rows_of

from core.model.attention.packed import keeps_apart
from core.model.layers.loss import LossModel, shift_labels
from core.models.families import FAMILIES

LENGTHS = [7, 1, 12, 3]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_equals_transformers_loss_on_padded_rows(family: str) -> None:
    model = adapt(build(family))
    ids = torch.randint(3, 97, (3, 11))
    mask = torch.ones_like(ids)
    mask[1, 6:], mask[2, 9:] = 0, 0
    labels = torch.where(mask == 1, ids, -100)
    labels[:, :3] = -100
    count = (labels[:, 1:] != -100).sum()

    wanted = model(input_ids=ids, attention_mask=mask, labels=labels).loss
    wanted.backward()
    expected = gradients(model)
    ours = LossModel(model)(input_ids=ids, attention_mask=mask, labels=labels).sum() / count
    ours.backward()

    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=0)
    assert_close(gradients(model), expected)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_packed_equals_one_by_one(family: str) -> None:
    model = adapt(build(family))
    batch = packed_batch(LENGTHS)
    loss_model = LossModel(model)

    alone = torch.stack([loss_model(**row).sum() for row in rows_of(batch)]).sum()
    alone.backward()
    expected = gradients(model)
    together = loss_model(**batch).sum()
    together.backward()

    torch.testing.assert_close(together, alone, rtol=1e-5, atol=0)
    assert_close(gradients(model), expected)


def bit_equal_beside_another_row(model: Any) -> bool:
    loss_model = LossModel(model)
    batch = packed_batch([9, 14])
    batch["labels"][:, :11] = -100
    batch["labels"][:, 11:] = batch["input_ids"][:, 11:]
    before = loss_model(**batch).sum()
    batch["input_ids"] = batch["input_ids"].clone()
    batch["input_ids"][:, :9] = torch.randint(3, 97, (1, 9))
    return torch.equal(loss_model(**batch).sum(), before)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_changed_row_leaves_the_others_loss_bit_equal(family: str) -> None:
    model = build(family)
    assert keeps_apart(model.config)
    assert bit_equal_beside_another_row(model)


MIXERS = {
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "granitemoehybrid": {
        "layer_types": ["linear_attention", "full_attention"], "num_local_experts": 0, "mamba_n_heads": 8,
        "mamba_d_head": 16, "mamba_d_state": 8, "position_embedding_type": "rope",
    },
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "nemotron": {},
}  # fmt: skip


@pytest.mark.parametrize("family", sorted(MIXERS))
def test_rows_of_models_that_would_mix_them_are_not_packed(family: str) -> None:
    """By convolutions, recurrences, or an attention that is not told where rows end."""
    model = build(family, **MIXERS[family]).eval()
    assert not bit_equal_beside_another_row(model), "else it could be packed"
    assert not keeps_apart(model.config)


@pytest.mark.parametrize(
    ("family", "changes", "said"),
    [("olmo2", {}, "olmo2"), ("llama", {"target_modules": ["q_proj", "lm_head"]}, "lm_head")],
)
def test_an_unknown_model_and_an_adapted_head_take_the_plain_head(
    family: str, changes: dict[str, object], said: str
) -> None:
    model = adapt(build(family), **changes)
    loss_model = LossModel(model)
    assert "plain" in loss_model.line
    assert said in loss_model.line
    ids = torch.randint(3, 97, (2, 9))
    wanted = model(input_ids=ids, labels=ids).loss
    torch.testing.assert_close(loss_model(input_ids=ids, labels=ids).sum() / 16, wanted, rtol=1e-5, atol=0)
    batch = packed_batch(LENGTHS)
    alone = torch.stack([loss_model(**row).sum() for row in rows_of(batch)]).sum()
    torch.testing.assert_close(loss_model(**batch).sum(), alone, rtol=1e-5, atol=0)


def test_the_first_token_of_a_row_and_what_follows_padding_are_no_targets() -> None:
    labels = torch.tensor([[5, 6, 7, 8]])
    assert shift_labels(labels).tolist() == [[6, 7, 8, -100]]
    assert shift_labels(labels, torch.tensor([[0, 1, 0, 1]])).tolist() == [[6, -100, 8, -100]]
    assert shift_labels(labels, None, torch.tensor([[0, 0, 1, 1]])).tolist() == [[-100, -100, 8, -100]]
