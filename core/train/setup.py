"""From a config to a trainer that may start: model found, data read, weights loaded, adapter put on, layers swapped.

    tokenizer ─► data ─► weights ─► adapter ─► trainer ─► swaps ─► plan

Nothing expensive happens before what is cheap has been found in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.estimate import Resolved
from core.contract.events import Plan
from core.data.render.rendering import apply_template_to, load_tokenizer
from core.estimate import estimate, predict, resolve, total_steps
from core.estimate.predict import as_empty
from core.machine.hardware import read_machine
from core.machine.locations import Locations
from core.model.adapters import add_adapter, load_adapter, trainable
from core.model.attention.packed import attention_line
from core.model.layers import surgery
from core.model.layers.checkpointing import set_checkpointing
from core.model.loading.load import LoadedModel, ensure_padding, load_base
from core.models.catalog import check_folder, find_model
from core.models.hub.client import fetch_tokenizer
from core.runs.folder.job_folder import JobFolder
from core.train.channel.command_queue import CommandQueue
from core.train.channel.reporter import EventReporter
from core.train.fetching import fetch_base
from core.train.keep.kept_rows import KeptRows
from core.train.keep.start_adapter import start_folder
from core.train.methods.sft import arguments, passes_line, state_bytes
from core.train.methods.trainers import TRAINERS
from core.train.reading import RunData, read_data
from core.train.safety.memory import cap_allocator, may_allocate

__all__ = ["Ready", "make_trainer", "prepare"]

_AUTOMATIC: tuple[tuple[str, str, object], ...] = (
    ("model", "dtype", "auto"),
    ("train", "optim", "auto"),
    ("train", "checkpointing", "auto"),
    ("train", "tokens_per_pass", 0),
    ("train", "eval_steps", 0),
    ("train", "save_steps", 0),
)


@dataclass(frozen=True)
class Ready:
    """A trainer with everything around it, and the plan to say."""

    config: RunConfig
    trainer: Any
    peft_model: Any
    tokenizer: Any
    data: RunData
    plan: Plan


def prepare(
    config: RunConfig,
    folder: JobFolder,
    device: torch.device,
    talk: tuple[EventReporter, CommandQueue],
    tokens_per_pass: int,
    kept: KeptRows | None = None,
) -> Ready:
    """Everything up to the first step.

    Args:
        tokens_per_pass: what a checkpoint was trained with; 0 takes the config's.
        kept: which rows the run held out when it began.

    Raises:
        StudioError: model, data or adapter cannot be used; one line says why.
        Leave: somebody asked to pause or stop meanwhile.
    """
    tell, orders = talk
    spec = find_model(config.model.source, config.model.name, config.model.revision)
    tokenizer = orders.meanwhile(lambda: _tokenizer(spec))
    apply_template_to(tokenizer, config.data)  # tried out here, where a signal can interrupt it
    data = read_data(config, tokenizer, tell, orders, kept)
    config, resolved = _definite(config, spec, data)
    if tokens_per_pass:
        train = config.train.model_copy(update={"tokens_per_pass": tokens_per_pass})
        config = config.model_copy(update={"train": train})
    cap_allocator(config.train.memory_gib, device, read_machine().wsl)
    loaded = _load(config, spec, device, talk)
    peft_model = _adapter(loaded.model, config, folder)
    trainer, lines, fast = make_trainer(config, folder, peft_model, (loaded, tokenizer), data)
    plan = _plan(config, spec, data, trainer, (loaded, fast))
    came = (_where(config, loaded, device, trainer.packed), loaded.line)
    words = (*came, *lines, *(f"{r.key} = {r.value}: {r.reason}" for r in resolved))
    return Ready(config, trainer, peft_model, tokenizer, data, plan.model_copy(update={"lines": words}))


def _tokenizer(spec: ModelSpec) -> Any:
    place = Path(spec.folder) if spec.folder else fetch_tokenizer(spec.name, spec.revision)
    return ensure_padding(load_tokenizer(place))


def _definite(config: RunConfig, spec: ModelSpec, data: RunData) -> tuple[RunConfig, list[Resolved]]:
    """A run.yaml written by hand may leave values to us; one that was written by us leaves none."""
    if not any(getattr(getattr(config, part), name) == auto for part, name, auto in _AUTOMATIC):
        return config, []
    definite, resolved = resolve(config, spec, data.facts, read_machine())
    return definite, list(resolved)


def _load(
    config: RunConfig, spec: ModelSpec, device: torch.device, talk: tuple[EventReporter, CommandQueue]
) -> LoadedModel:
    tell, orders = talk
    place = Path(spec.folder) if spec.folder else fetch_base(spec, tell, orders)
    check_folder(place)

    def loading(done: int, total: int) -> None:
        tell.stage("loading", spec.title, done, total, "bytes")
        orders.check()

    loading(0, 0)
    return load_base(place, config.model, device, loading, cache=Locations.find().cache)


def _adapter(model: Any, config: RunConfig, folder: JobFolder) -> Any:
    """A fresh adapter, or the one that the run goes on from (``keep_start``); its optimiser is fresh either way."""
    if not config.resume_from:
        return add_adapter(model, config.lora, config.train.seed)
    return load_adapter(model, start_folder(folder), trainable=True)


def make_trainer(
    config: RunConfig, folder: JobFolder, peft_model: Any, parts: tuple[LoadedModel, Any], data: RunData
) -> tuple[Any, list[str], bool]:
    """The trainer over a model and its tokenizer, its layers swapped; lines that say how; whether any layer is fast."""
    loaded, tokenizer = parts
    device, steps = next(peft_model.parameters()).device, total_steps(config, len(data.train))
    settings = arguments(config, folder.checkpoints, steps, device, str(loaded.dtype).removeprefix("torch."))
    trainer, loss_line = TRAINERS[config.trained_method](config, peft_model, settings, tokenizer)
    trainer.tokens_per_pass = config.train.tokens_per_pass
    swaps = surgery.plan(peft_model, config.train.kernels, packed=trainer.packed)
    surgery.apply(peft_model, swaps)
    lines = [*swaps.lines(), loss_line, *_checkpointing(config, peft_model, device), passes_line(trainer)]
    return trainer, lines, bool(swaps.swaps)


def _checkpointing(config: RunConfig, peft_model: Any, device: torch.device) -> tuple[str, ...]:
    """What layers keep, as the config says; a budget is what the run may use, less what it is used for already."""
    chosen = config.train.checkpointing
    if chosen != "budget":
        return set_checkpointing(peft_model, "none" if chosen == "auto" else chosen)
    allowed = may_allocate(config.train.memory_gib, device)
    return set_checkpointing(peft_model, "auto", allowed, state_bytes(config.train.optim))


def _plan(config: RunConfig, spec: ModelSpec, data: RunData, trainer: Any, parts: tuple[LoadedModel, bool]) -> Plan:
    loaded, fast = parts
    machine = as_empty(config, read_machine())
    return Plan(
        total_steps=int(trainer.args.max_steps),
        train_rows=len(data.train),
        eval_rows=len(data.held_out),
        train_tokens=data.tokens,
        trained_tokens=data.trained_tokens,
        trainable_parameters=sum(parameter.numel() for _, parameter in trainable(trainer.model)),
        dtype=str(loaded.dtype).removeprefix("torch."),
        attention=str(loaded.model.config._attn_implementation),
        fast=fast,
        tokens_per_pass=config.train.tokens_per_pass,
        estimated_bytes=estimate(config, spec, data.facts, machine).peak_bytes,
        predicted=predict(config, spec, data.facts, machine),
    )


def _where(config: RunConfig, loaded: LoadedModel, device: torch.device, packed: bool) -> str:
    weights = config.model.form.words
    word: Callable[[Any], str] = lambda dtype: str(dtype).removeprefix("torch.")  # noqa: E731
    attention = attention_line(device, loaded.dtype, loaded.model.config, packed)
    return f"{weights}, {word(loaded.dtype)} on {device}; {attention}"
