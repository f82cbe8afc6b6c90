"""What tests of methods share: rows of drawn ids, a method's own trainer, and its loss and gradients over one batch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from core.contract.config import RunConfig
from core.contract.methods import Method
from core.model.adapters import Trained
from core.train.methods.sft import arguments
from core.train.methods.trainers import TRAINERS
from core.train.step.batches import BatchSampler
from core.train.step.rows import Rows
from core.train.step.trainer import Batches

CPU = torch.device("cpu")
BATCH = 5
Result = tuple[float, dict[str, torch.Tensor]]


def drawn(draw: torch.Generator) -> list[int]:
    """Ids of a length of their own."""
    length = int(torch.randint(2, 12, (), generator=draw))
    return torch.randint(4, 300, (length,), generator=draw).tolist()


def trainer_of(method: Method, model: Any, rows: Rows, tokens: int, packed: bool = True, **values: Any) -> Any:
    """Our trainer of the method."""
    train = {"beta": 0.1, "per_device_train_batch_size": BATCH, **values}
    config = RunConfig.model_validate({"method": method, "model": {"dtype": "float32"}, "train": train})
    batches = Batches(rows, BatchSampler(len(rows), BATCH, 1, 1), tokens, packed)
    recipe = arguments(config, Path(), 1, CPU, "float32")
    trainer, _ = TRAINERS[method](config, Trained(model), recipe, batches, SimpleNamespace(pad_token_id=0))
    trainer._steps = SimpleNamespace(safe_point=lambda: None)
    return trainer


def computed(trainer: Any) -> Result:
    """The mean loss and its gradients over one batch of all rows."""
    batch = list(range(len(trainer.rows)))
    trainer.measure_anew()
    trainer.prelude(trainer.model, trainer.rows, batch, trainer.tokens_per_pass)
    weight = float(sum(trainer.rows.weight(row) for row in batch))
    total = trainer.gradients(trainer.model, trainer.cut(batch), weight)
    return float(total) / weight, {name: parameter.grad for name, parameter in trainer.trained.named}


def assert_alike(ours: Result, wanted: Result, tolerance: float) -> None:
    assert ours[0] == pytest.approx(wanted[0], rel=tolerance)
    for name, gradient in wanted[1].items():
        assert gradient.norm() > 0, name
        assert (ours[1][name] - gradient).norm() <= tolerance * gradient.norm(), name


def padded(parts: list[Any], value: int = 0) -> torch.Tensor:
    return nn.utils.rnn.pad_sequence(
        [torch.tensor(list(part)) for part in parts], batch_first=True, padding_value=value
    )
