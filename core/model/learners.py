"""LEARNERS: how each row of LEARNS (``core.contract.tasks``) is put onto a loaded base model; and a model whose every
weight is trained."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from core.contract.config import RunConfig
from core.contract.tasks import LEARNS, LearnsName, Outputs
from core.model.adapters import Exact, Trained, add_adapter, load_adapter
from core.model.loftq import Originals
from core.models.checks.folder import check_folder

SHARD = "2GB"


@dataclass(frozen=True)
class TrainedWhole(Trained):
    """A model of transformers, all of whose weights learn.

    Weights of 16 bits are rounded copies of the optimiser's float32 numbers (``core.train.step.optimizer``). What is
    saved are these, so that a run goes on exactly; transformers rounds them as it loads a folder whose config.json
    names 16 bits.
    """

    ahead: ClassVar[int] = 128  # for each time all weights go to host memory and back
    untrained: Callable[[], Any] = lambda: None
    """Loads the base onto the CPU, in the model's dtype."""

    def save(self, folder: Path, exact: Exact | None = None) -> None:
        """Writes config.json and model.safetensors, or its shards; tied weights once. The host holds them meanwhile."""
        folder.mkdir(parents=True, exist_ok=True)
        held = exact or {}
        every = {name for name, _ in self.model.named_parameters(remove_duplicate=False)}
        tensors = {name: tensor for name, tensor in self.model.state_dict().items() if name not in every}  # buffers
        tensors |= {name: held.get(p, p).detach().to("cpu", copy=True) for name, p in self.named}
        self.model.save_pretrained(str(folder), state_dict=tensors, max_shard_size=SHARD)

    def restore(self, folder: Path, exact: Exact | None = None) -> str:
        """Reads what ``save`` wrote; returns the first name that the folder lacks, or an empty string."""
        saved, report = type(self.model).from_pretrained(
            str(folder), dtype=torch.float32, local_files_only=True, use_safetensors=True, output_loading_info=True
        )
        missing = sorted((report if isinstance(report, dict) else report.to_dict())["missing_keys"] or ())
        held, numbers = exact or {}, dict(saved.named_parameters())
        with torch.no_grad():
            for name, parameter in self.named:
                held.get(parameter, parameter).copy_(numbers[name])
                parameter.copy_(numbers[name])
        return str(missing[0]) if missing else ""

    @contextmanager
    def base(self) -> Iterator[None]:
        """A context in which the model holds the base's weights, read anew; the trained ones wait in host memory."""
        other = dict(self.untrained().named_parameters())
        self._exchange(other)
        try:
            yield
        finally:
            self._exchange(other)

    @torch.no_grad()
    def _exchange(self, other: dict[str, Any]) -> None:
        """Swaps the model's weights with those of ``other``, one tensor at a time."""
        for name, parameter in self.named:
            mine = parameter.detach().to("cpu", copy=True)
            parameter.copy_(other[name])
            other[name].copy_(mine)


@dataclass(frozen=True)
class Onto:
    """A loaded base model. ``untrained`` loads it again, onto the CPU; ``start`` holds what the run goes on from;
    ``originals`` reads its weights on disk; ``outputs`` names its head's scores."""

    model: Any
    untrained: Callable[[], Any]
    start: Path | None = None
    originals: Originals | None = None
    outputs: Outputs | None = None


def _adapter(onto: Onto, config: RunConfig) -> Trained:
    if onto.start:
        model = load_adapter(onto.model, onto.start, trainable=True)
    else:
        lora, train, row = config.lora, config.train, config.learns
        model = add_adapter(onto.model, lora, train.seed, row.ends, config.learning.task, onto.originals)
    ratio, rate = config.lora.loraplus_lr_ratio, config.train.embedding_learning_rate
    return Trained(model, ratio, rate, outputs=onto.outputs)


def _everything(onto: Onto, _config: RunConfig) -> Trained:
    onto.model.requires_grad_(True)
    trained = TrainedWhole(onto.model, untrained=onto.untrained, outputs=onto.outputs)
    if onto.start:
        check_folder(onto.start, tokenizer=False)
        trained.restore(onto.start)
    return trained


def opened(learns: LearnsName, onto: Onto) -> Trained:
    """The model as a checkpoint has it (``onto.start``), to be asked; ``onto.outputs`` names a head's scores.

    Raises:
        ModelError: the checkpoint holds something else.
    """
    assert onto.start is not None
    if LEARNS[learns].adapter:
        return Trained(load_adapter(onto.model, onto.start, trainable=False), outputs=onto.outputs)
    trained = _everything(onto, RunConfig())
    onto.model.requires_grad_(False)
    return trained


LEARNERS: dict[LearnsName, Callable[[Onto, RunConfig], Trained]] = {
    "adapter": _adapter,
    "adapter_embeddings": _adapter,
    "everything": _everything,
}
