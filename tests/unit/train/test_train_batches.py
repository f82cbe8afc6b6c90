"""However a batch is cut into micro-batches, gradients are the same."""

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.contract.config import LoraChoice, ModelChoice, RunConfig
from core.model.adapters import Trained, add_adapter
from core.model.layers.loss import LossModel
from core.model.loading.load import load_base
from core.train.channel.reporter import EventReporter
from core.train.methods.sft import TextTrainer, arguments
from core.train.safety.guard import Guard
from core.train.step.batches import BatchLoader, BatchSampler, cut_padded, pack, pad
from core.train.step.rows import IGNORED, PairRows, TextRows
from core.train.step.trainer import Batches

CPU = torch.device("cpu")


def some_rows(count: int = 8) -> TextRows:
    rows = TextRows()
    for number in range(count):
        ids = [(number * 31 + place * 7) % 300 + 4 for place in range(5 + 3 * number)]
        rows.append(ids, [-100] * (number % 4) + ids[number % 4 :])
    return rows


def test_rows_keep_their_tokens_and_tell_what_they_cost() -> None:
    rows, pairs = TextRows(), PairRows()
    rows.append([5, 6, 7], [5, -100, 7])
    rows.append([1, 2], [1, 2])
    assert (rows.ids[0].tolist(), rows.labels[0].tolist()) == ([5, 6, 7], [5, -100, 7])
    assert [rows.trained(0), rows.trained(1)] == [1, 1], "the first token of a row is never a target"
    assert rows.take([1]).ids[0].tolist() == [1, 2]
    pairs.append([1, 2], [3, 4, 5], [6])
    assert (pairs.length(0), pairs.length(0, packed=False), pairs.trained(0), pairs.weight(0)) == (7, 10, 4, 1)
    chosen, rejected = pairs.sequences(0)
    assert (chosen.ids.tolist(), chosen.labels.tolist(), chosen.answer) == ([1, 2, 3, 4, 5], [-100, -100, 3, 4, 5], 2)
    assert rejected.ids.tolist() == [1, 2, 6]


def test_the_prompt_of_a_pair_is_read_once() -> None:
    """But for its last token, which predicts the first of either answer."""
    pairs = PairRows()
    pairs.append([1, 2, 3], [4, 5], [6, 7, 8])
    pairs.append([9], [10], [11])
    sequences = [one for row in range(2) for one in pairs.sequences(row)]
    made = pack(sequences, torch.device("cpu"))
    assert made["input_ids"].tolist() == [[1, 2, 3, 4, 5, 3, 6, 7, 8, 9, 10, 9, 11]]
    assert made["position_ids"].tolist() == [[0, 1, 2, 3, 4, 2, 3, 4, 5, 0, 1, 0, 1]]
    ignored = IGNORED
    assert made["labels"].tolist() == [[*[ignored] * 3, 4, 5, ignored, 6, 7, 8, ignored, 10, ignored, 11]]
    assert (made["cu_seq_lens_q"].tolist(), made["cu_seq_lens_k"].tolist()) == ([0, 5, 9, 11, 13], [0, 5, 11, 13, 15])
    assert made["key_tokens"].tolist() == [0, 1, 2, 3, 4, 0, 1, 5, 6, 7, 8, 9, 10, 11, 12]
    assert made["token_keys"].tolist() == [
        [0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14],
        [5, 6, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14],
    ]
    assert (made["max_length_q"], made["max_length_k"]) == (5, 6)
    assert sum(pairs.length(row) for row in range(2)) == made["input_ids"].numel()
    padded = pad(sequences, 0, torch.device("cpu"))
    assert padded["input_ids"].tolist()[1] == [1, 2, 3, 6, 7, 8]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 120))
def test_a_padded_cut_holds_every_row_once_within_the_limit(lengths: list[int], limit: int) -> None:
    groups = cut_padded(lengths, limit)
    assert sorted(row for group in groups for row in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[row] for row in group) <= limit


def test_the_feed_is_a_function_of_seed_and_step_and_starts_where_it_is_asked() -> None:
    sampler = BatchSampler(10, 4, 3, 7)
    whole = [next(iter(BatchLoader(sampler, lambda step=step: step)))["rows"] for step in range(7)]
    assert len(sampler) == 3
    for epoch in (whole[:3], whole[3:6]):
        assert sorted(itertools.chain(*epoch)) == list(range(10))
    assert whole[:3] != whole[3:6]
    assert [sampler.after(step) for step in range(8)] == [*whole, None]
    assert [batch["rows"] for batch in BatchLoader(sampler, lambda: 4)] == whole[4:6]
    assert list(BatchLoader(sampler, lambda: 7)) == []


@pytest.fixture(scope="module")
def gradients(tiny_model: Path) -> Callable[..., tuple[float, dict[str, torch.Tensor]]]:
    """Loss and gradients of one batch of eight rows under a cut, a packing and a precision."""

    def compute(tokens_per_pass: int, packed: bool, dtype: torch.dtype, batch: int) -> Any:
        choice = ModelChoice(source="folder", name=str(tiny_model), quantization="none", dtype="float32")
        trained = Trained(add_adapter(load_base(tiny_model, choice, CPU).model, LoraChoice(r=4, lora_alpha=8), 1))
        generator = torch.Generator().manual_seed(5)
        for name, parameter in trained.named:
            if "lora_B" in name:  # at zero every gradient of A would be zero and prove nothing
                parameter.data = torch.randn(parameter.shape, generator=generator) * 0.1
        trained.model.to(dtype)
        config = RunConfig.model_validate(
            {"train": {"per_device_train_batch_size": batch, "gradient_accumulation_steps": 8 // batch}}
        )
        batches = Batches(some_rows(), BatchSampler(8, 8, 1, 1), tokens_per_pass, packed)
        recipe = arguments(config, tiny_model, 1, CPU, "float32")
        trainer: Any = TextTrainer(LossModel(trained.model), trained, recipe, batches, 0)
        trainer.create_optimizer()
        seen: list[float] = []
        trainer._steps = SimpleNamespace(
            step_begins=lambda step: None,
            safe_point=lambda: None,
            guard=Guard(EventReporter(SimpleNamespace(write=lambda event: event))),
            batch_done=lambda batch, loss: seen.append(loss),
        )
        assert config.rows_per_step == 8
        trainer.training_step(trainer.model, {"rows": list(range(8))})
        (joined,) = trainer.flat.tensors
        return seen[0], {
            name: joined.grad[parameter.storage_offset() :][: parameter.numel()] for name, parameter in trained.named
        }

    return compute


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("packed", [True, False])
def test_batch_one_times_eight_equals_eight_times_one(
    gradients: Any, one_thread: None, packed: bool, dtype: torch.dtype, tolerance: float
) -> None:
    whole_loss, whole = gradients(10_000, packed, dtype, 8)
    single_loss, single = gradients(1, packed, dtype, 1)
    assert whole_loss == pytest.approx(single_loss, rel=1e-6)  # the loss itself is float32
    for name, gradient in whole.items():
        assert gradient.abs().max() > 0, name
        assert (single[name] - gradient).norm() <= tolerance * gradient.norm(), name


def test_packed_and_padded_are_the_same_step(gradients: Any, one_thread: None) -> None:
    packed_loss, packed = gradients(40, True, torch.float64, 4)
    padded_loss, padded = gradients(40, False, torch.float64, 4)
    assert packed_loss == pytest.approx(padded_loss, rel=1e-6)
    for name, gradient in packed.items():
        assert (padded[name] - gradient).norm() <= 1e-12 * gradient.norm(), name
