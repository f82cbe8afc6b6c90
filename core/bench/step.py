"""One setting, measured: a model, an adapter, rows, and steps through the very trainer that runs use.

The fast side is ``core.train``'s own: ``TextTrainer`` and ``Attempt`` over a run folder that is thrown away, with
adamw, schedule, clipping, guard and events, so that everything a run pays is in the figure (checkpoints and evaluations
between steps are not). The plain side is ``core.bench.plain``. Both start from the same weights and the same adapter,
drawn by the same functions from the same seed.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from core.bench.plain import PlainLoss, collate, make_plain, plain_lines, plain_trainer
from core.bench.planned import planned_tokens
from core.bench.report import command_of, figures, machine_facts
from core.bench.rows import BenchRows, dealt, read_rows
from core.bench.setting import Setting, check
from core.bench.watch import Watch, allowed_bytes, cap
from core.contract.config import LoraChoice, ModelChoice, RunConfig
from core.contract.errors import MachineError, first_line
from core.contract.events import Evaluation
from core.contract.events import Step as StepEvent
from core.contract.weight_forms import WEIGHT_FORMS
from core.kernels.dispatch import reference_only
from core.machine.hardware import read_machine
from core.model.adapters import Trained, add_adapter
from core.model.attention.packed import NAME as PACKED_ATTENTION
from core.model.attention.packed import attention_line
from core.model.layers import surgery
from core.model.layers.checkpointing import set_checkpointing
from core.model.layers.loss import LossModel
from core.model.loading.load import LoadedModel, load_base
from core.model.loading.random_weights import random_model
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventTail, EventWriter
from core.train.attempt import Attempt, Subject
from core.train.channel.reporter import EventReporter
from core.train.methods.sft import TextTrainer, arguments, passes_line
from core.train.safety.memory import state_bytes
from core.train.step.batch_sampler import BatchSampler
from core.train.step.trainer import Batches

B_SPREAD = 0.02
"""Standard deviation of a drawn B."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Side:
    """What one side gives back: a value a step, and what ran."""

    losses: list[float | None]
    grad_norms: list[float | None]
    held_out_loss: float | None
    lines: list[str]


def measure(setting: Setting, say: Say = print, every: int = 0) -> dict[str, Any]:
    """Trains the setting's steps and returns what was measured; see ``core.bench.report``.

    Args:
        say: takes a line of progress every ``every`` steps; 0 says nothing.

    Raises:
        Fault: the setting, the model or the rows cannot be used, or memory was too small.
    """
    check(setting)
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    cap(device, setting.vram_gb)
    watch = Watch(device, setting.warm_up, say, every, setting.until)
    begun = time.perf_counter()
    try:
        loaded = _load(setting, device)
        loaded_at = time.perf_counter()
        rows = read_rows(setting, int(loaded.model.config.vocab_size), loaded.tokenizer)
        trained = _train(setting, loaded, rows, watch)
    except torch.OutOfMemoryError as error:
        raise MachineError("bench.memory", reason=first_line(error)) from error
    watch.finish()
    windows = dealt(len(rows.train), setting)[: setting.steps_taken]
    lengths = [rows.train.length(row) for row in range(len(rows.train))]
    return {
        "bench": "step",
        "command": command_of(setting),
        "setting": asdict(setting),
        **machine_facts(device),
        "plan": trained.lines,
        "rows": {
            "count": len(lengths), "held_out": len(rows.held_out), "left_over": rows.left_over,
            "mean_tokens": round(sum(lengths) / len(lengths), 1), "longest": max(lengths),
            "sha256": rows.train.sha256(),
        },
        "load_seconds": round(loaded_at - begun, 3),
        "loaded_to_first_step_seconds": round(watch.first_step_at - loaded_at, 3),
        "first_step_seconds": round(watch.seconds[0], 3),
        **figures(setting, watch, [sum(map(rows.train.tokens, window)) for window in windows], device),
        "trained_tokens": sum(rows.train.trained(row) for window in windows for row in window),
        "losses": trained.losses,
        "grad_norms": trained.grad_norms,
        "held_out_loss": trained.held_out_loss,
    }  # fmt: skip


def _load(setting: Setting, device: torch.device) -> LoadedModel:
    attention = {"auto": "sdpa" if setting.plain else "", "packed": PACKED_ATTENTION}
    name = attention.get(setting.attention, setting.attention)
    if not setting.model.startswith("random:"):
        folder = Path(setting.model).expanduser().resolve()
        names = {"source": "folder", "name": str(folder), "quantization": setting.quantization, "dtype": setting.dtype}
        choice = ModelChoice.model_validate(names)
        return load_base(folder, choice, device, attn_implementation=name)
    return random_model(
        setting.model.removeprefix("random:"), device, layers=setting.layers, seed=setting.seed,
        quantization=setting.quantization, dtype=setting.dtype, attn_implementation=name,
    )  # fmt: skip


def _train(setting: Setting, loaded: LoadedModel, rows: BenchRows, watch: Watch) -> Side:
    torch.manual_seed(setting.seed)
    model = make_plain(loaded.model, setting) if setting.plain else loaded.model
    peft_model = add_adapter(model, LoraChoice(), setting.seed)
    if setting.draw_b:  # at zero, A has no gradient in the first step
        draw = torch.Generator().manual_seed(setting.seed)
        with torch.no_grad():
            for name, parameter in Trained(peft_model).named:
                if "lora_B" in name:
                    parameter.copy_(torch.randn(parameter.shape, generator=draw) * B_SPREAD)
    with tempfile.TemporaryDirectory(prefix="luthier-bench-") as place:
        config = _config(setting)
        device = next(peft_model.parameters()).device
        dtype = str(loaded.dtype).removeprefix("torch.")
        recipe = arguments(config, Path(place) / "checkpoints", setting.total_steps, device, dtype)
        if setting.plain:
            return _plain(setting, (peft_model, loaded.dtype), rows, recipe, watch)
        return _fast(setting, (peft_model, loaded), rows, recipe, watch)


def _plain(
    setting: Setting, parts: tuple[Any, torch.dtype], rows: BenchRows, recipe: dict[str, Any], watch: Watch
) -> Side:
    peft_model, dtype = parts
    windows = dealt(len(rows.train), setting)
    trainer = plain_trainer(setting, peft_model, rows.train, windows, recipe, dtype)
    trainer.add_callback(watch)
    trainer.train()
    watch.finish()
    held_out = trainer.held_out_loss(rows.held_out, collate(setting))
    return Side(list(trainer.losses()), trainer.grad_norms, held_out, plain_lines(setting, peft_model))


def _fast(
    setting: Setting, parts: tuple[Any, LoadedModel], rows: BenchRows, recipe: dict[str, Any], watch: Watch
) -> Side:
    passes = setting.tokens_per_pass or planned_tokens(setting, _config(setting), rows, read_machine())
    trainer, lines = _fast_trainer(setting, parts, recipe, rows, passes)
    folder = JobFolder(Path(recipe["output_dir"]).parent)
    writer = EventWriter(folder.events, attempt=1)
    subject = Subject(_config(setting), trainer, parts[0], parts[1].tokenizer, rows.held_out)
    attempt = Attempt.unsteered(subject, EventReporter(writer))
    trainer.add_callback(watch)
    try:
        with reference_only() if setting.kernels == "twins" else contextlib.nullcontext():
            attempt.train()
            watch.finish()
            attempt.loop.evaluate()
    finally:
        writer.close()
    events: list[Any] = list(EventTail(folder.events).read())
    steps = [event for event in events if isinstance(event, StepEvent)]
    held_out = [event.loss for event in events if isinstance(event, Evaluation)]
    return Side(
        [event.loss for event in steps],
        [event.grad_norm for event in steps],
        held_out[-1] if held_out else None,
        [*filter(None, [parts[1].line]), _weights_line(parts[1], setting), *lines],
    )


def _fast_trainer(
    setting: Setting, parts: tuple[Any, LoadedModel], recipe: dict[str, Any], rows: BenchRows, passes: int
) -> tuple[Any, list[str]]:
    """The trainer as ``core.train.setup`` makes it, but for the switches of the ladder; ``passes`` 0: a batch each."""
    peft_model = parts[0]
    loss_model = PlainLoss(peft_model) if setting.loss == "plain" else LossModel(peft_model)
    sampler = BatchSampler(len(rows.train), _config(setting).rows_per_step, setting.seed, setting.total_steps)
    tokens = passes or setting.batch * (setting.dense_tokens or setting.max_length)
    trainer = TextTrainer(loss_model, recipe, Batches(rows.train, sampler, tokens, setting.packed), 0)
    plain_torch = setting.kernels == "twins"
    swaps = surgery.plan(peft_model, "plain" if setting.kernels == "plain" else "auto", force=plain_torch)
    surgery.apply(peft_model, swaps)
    allowed = allowed_bytes(trainer.args.device, setting.vram_gb)
    activations = set_checkpointing(peft_model, setting.checkpointing, allowed, state_bytes(recipe["optim"]))  # type: ignore[arg-type]
    return trainer, [
        *swaps.lines(),
        *(["kernels: their references in plain torch"] if plain_torch else []),
        loss_model.line,
        *activations,
        passes_line(trainer),
    ]


def _config(setting: Setting) -> RunConfig:
    """The recipe of the field: AdamW in 8 bits, linear, 10 steps of warm-up, clipping at 1."""
    return RunConfig.model_validate(
        {
            "train": {
                "max_length": max(32, setting.dense_tokens or setting.max_length),
                "per_device_train_batch_size": setting.batch, "gradient_accumulation_steps": setting.accumulation,
                "learning_rate": 2e-4, "warmup_steps": 10, "weight_decay": 0.01, "max_grad_norm": 1.0,
                "lr_scheduler_type": "linear", "optim": setting.optim, "seed": setting.seed,
                "save_minutes": 0, "save_steps": 0, "eval_steps": 0, "sample_rows": 0,
            }
        }
    )  # fmt: skip


def _weights_line(loaded: LoadedModel, setting: Setting) -> str:
    weights = WEIGHT_FORMS[setting.quantization].words
    model, device = loaded.model, next(loaded.model.parameters()).device
    used = model.config._attn_implementation
    attention = attention_line(device, loaded.dtype, model.config) if used == PACKED_ATTENTION else f"attention: {used}"
    return f"{weights}, {str(loaded.dtype).removeprefix('torch.')} on {device}; {attention}"
