"""Scaled rotary positions: as transformers computes them, on the fast layers too, and of each row alone."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from model_tiny import adapt, assert_close, gradients, packed_batch, rows_of, save_tiny
from transformers import AutoConfig, AutoModelForCausalLM

from core.contract.config import ModelChoice, RunConfig
from core.contract.config.positions import ROPE_SCALINGS
from core.model.generation import context_of
from core.model.layers import surgery
from core.model.layers.loss import LossModel
from core.model.loading.load import config_of, load_base
from core.models.checks.folder import read_config_json, spec_of
from core.models.positions import position_fields, positions_in, written_fields

MADE, FACTOR, LENGTHS = 16, 4.0, [40, 7, 55, 16, 17]
"""Tokens that the model was made for, how much further it is to reach, and rows: before, at and beyond it."""
SMALL = {"max_position_embeddings": MADE, "initializer_range": 0.2}
SCALINGS = [name for name, row in ROPE_SCALINGS.items() if row.rope_type]


def chosen(name: Any) -> ModelChoice:
    return ModelChoice(quantization="none", dtype="float32", rope_scaling=name, rope_factor=FACTOR)


def loaded(folder: Path, name: Any) -> Any:
    return load_base(folder, chosen(name), torch.device("cpu")).model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("base"), "llama", **SMALL)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a family that turns neighbours, and has no fast layers."""
    return save_tiny(tmp_path_factory.mktemp("other"), "cohere", **SMALL)


def plain(folder: Path, name: Any) -> Any:
    """By transformers alone, which is told of the scaling by its own arguments."""
    config = AutoConfig.from_pretrained(folder)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **position_fields(config, chosen(name)))


@pytest.mark.parametrize("name", SCALINGS)
def test_packed_rows_get_what_transformers_gives_each_alone(name: Any, folder: Path, other: Path) -> None:
    for place in (folder, other):
        model, batch = loaded(place, name), packed_batch(LENGTHS)
        rows = rows_of(batch)
        single = plain(place, name)
        with torch.no_grad():
            # Each by a model of its own, since transformers remembers the longest row.
            wanted = torch.cat([copy.deepcopy(single)(row["input_ids"]).logits[0] for row in rows])
            for _ in range(2):  # a second time, for the same reason
                packed = model(**{key: value for key, value in batch.items() if key != "labels"}).logits[0]
                torch.testing.assert_close(packed, wanted, rtol=1e-4, atol=2e-4)
            own = loaded(place, "none")(rows[0]["input_ids"]).logits[0]
        assert (own - packed[: LENGTHS[0]]).abs().max() > 0.02, "it is another model than the unscaled one"
        assert context_of(model) == FACTOR * MADE


@pytest.mark.parametrize("name", SCALINGS)
def test_loss_and_gradients_of_fast_layers_equal_transformers_own(name: Any, folder: Path) -> None:
    model, batch = adapt(loaded(folder, name)).train(), packed_batch(LENGTHS)
    single = adapt(plain(folder, name)).train()
    wanted_loss = torch.zeros(())
    for row in rows_of(batch):
        rotary = single.base_model.model.model.rotary_emb  # forgets what it saw
        rotary.inv_freq, rotary.max_seq_len_cached = rotary.original_inv_freq.clone(), rotary.original_max_seq_len
        labels = row["labels"][:, 1:]
        logits = single(row["input_ids"]).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits[0], labels[0], reduction="sum", ignore_index=-100)
        loss.backward()
        wanted_loss += loss.detach()
    plan = surgery.plan(model, force=True)
    assert plan.lines() == ("2 of 2 layers fast",)
    surgery.apply(model, plan)
    loss = LossModel(model)(**batch).sum()
    loss.backward()
    torch.testing.assert_close(loss.detach(), wanted_loss, rtol=1e-5, atol=0)
    assert_close(gradients(model), gradients(single), 1e-4)


def test_a_config_says_it_under_old_and_new_names(folder: Path, tmp_path: Path) -> None:
    for name in SCALINGS:
        fields = position_fields(config_of(folder), chosen(name))
        raw = read_config_json(folder) | written_fields(fields)
        old = {key: value for key, value in raw.items() if key != "rope_parameters"}
        for said in (raw, old):
            (tmp_path / "config.json").write_text(json.dumps(said), encoding="utf-8")
            read = config_of(tmp_path)
            assert read.rope_parameters == fields["rope_parameters"]
            assert read.max_position_embeddings == fields["max_position_embeddings"]
        # Opened again it reaches as far, and is not scaled a second time.
        assert positions_in(raw) == "scaled"
        assert spec_of(raw, "folder", "again", "", None).shape.max_position_embeddings == FACTOR * MADE
    theta = position_fields(config_of(folder), ModelChoice(rope_theta=5e5))
    assert theta == {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    assert written_fields(theta)["rope_theta"] == 5e5
    assert not position_fields(config_of(folder), ModelChoice()), "what nobody chose is the model's own"


def test_what_kind_of_positions_a_config_has() -> None:
    kinds: dict[str, dict[str, Any]] = {
        "rotary": {"model_type": "llama", "rope_scaling": None},
        "scaled": {"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 4.0}},
        "learned": {"model_type": "gpt2", "n_positions": 1024},
        "other": {"model_type": "bloom"},
    }
    assert {positions_in(config): name for name, config in kinds.items()} == {name: name for name in kinds}


def test_a_pairs_shared_prompt_cannot_be_placed_by_two_lengths() -> None:
    [problem] = [
        line
        for line in RunConfig(method="dpo", model=ModelChoice(rope_scaling="dynamic")).problems()
        if line.startswith("model.rope_scaling")
    ]
    assert "Choose yarn" in problem
