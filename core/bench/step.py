"""Measures one setting: loads the model, adds an adapter, and trains.

The fast side runs ``TextTrainer`` and ``Attempt`` of ``core.train`` over a temporary run folder, so a step costs what
it costs in a run, without checkpoints and evaluations between steps. The plain side is ``core.bench.plain``. Both start
from the same weights and adapter.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from peft import prepare_model_for_kbit_training

from core.bench.effects import cosines, right_answers
from core.bench.plain import collate, plain_lines, plain_trainer
from core.bench.report import command_of, figures, machine_facts
from core.bench.rows import BenchRows, dealt, read_rows
from core.bench.setting import Setting, check
from core.bench.watch import GIB, Watch, allowed_bytes, cap
from core.contract.config import LoraChoice, ModelChoice, RunConfig
from core.contract.data import DataFacts
from core.contract.errors import MachineError, first_line
from core.contract.events import Evaluation
from core.contract.events import Step as StepEvent
from core.contract.weight_forms import DEFAULT_ARITHMETIC, WEIGHT_FORMS
from core.estimate import resolve
from core.kernels.dispatch import reference_only
from core.machine.hardware import Machine, read_machine
from core.model.adapters import Trained, add_adapter
from core.model.attention.packed import NAME as PACKED_ATTENTION
from core.model.attention.packed import attention_line
from core.model.layers import surgery
from core.model.layers.checkpointing import set_checkpointing
from core.model.layers.loss import LossModel
from core.model.loading.load import LoadedModel, load_base
from core.model.loading.random_weights import find_shape, random_model
from core.models.catalog import find_model
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventTail, EventWriter
from core.train.attempt import Attempt, Subject
from core.train.channel.reporter import EventReporter
from core.train.methods.sft import TextTrainer, arguments, passes_line
from core.train.safety.memory import state_bytes
from core.train.step.batches import BatchSampler
from core.train.step.trainer import Batches

B_SPREAD = 0.02
"""Standard deviation of a drawn B."""


def measure(setting: Setting, say: Callable[[str], None] = print, every: int = 0) -> dict[str, Any]:
    """Trains the setting's steps and returns the measurements as JSON.

    Args:
        say: gets a line every ``every`` steps; with 0 none.

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
    steps = dealt(len(rows.train), setting)[: setting.steps_taken]
    lengths = [rows.train.length(row) for row in range(len(rows.train))]
    return {
        "bench": "step",
        "command": command_of(setting),
        "setting": asdict(setting),
        **machine_facts(device),
        "plan": trained.pop("plan"),
        "rows": {
            "count": len(lengths), "held_out": len(rows.held_out), "left_over": rows.left_over,
            "mean_tokens": round(sum(lengths) / len(lengths), 1), "longest": max(lengths),
            "sha256": rows.train.sha256(),
        },
        "load_seconds": round(loaded_at - begun, 3),
        "loaded_to_first_step_seconds": round(watch.first_step_at - loaded_at, 3),
        "first_step_seconds": round(watch.seconds[0], 3),
        **figures(setting, watch, [sum(map(rows.train.tokens, step)) for step in steps], device),
        "trained_tokens": sum(rows.train.trained(row) for step in steps for row in step),
        **trained,
    }  # fmt: skip


def _load(setting: Setting, device: torch.device) -> LoadedModel:
    attention = {"auto": "sdpa" if setting.plain else "", "packed": PACKED_ATTENTION}
    name = attention.get(setting.attention, setting.attention)
    if not setting.model.startswith("random:"):
        folder = Path(setting.model).expanduser().resolve()
        names = {"source": "folder", "name": str(folder), "quantization": setting.quantization, "dtype": setting.dtype}
        choice = ModelChoice.model_validate({**names, "streamed_layers": setting.streamed})
        return load_base(folder, choice, device, attn_implementation=name)
    return random_model(
        setting.model.removeprefix("random:"), device, layers=setting.layers, seed=setting.seed,
        quantization=setting.quantization, dtype=setting.dtype, attn_implementation=name, streamed=setting.streamed,
    )  # fmt: skip


def _train(setting: Setting, loaded: LoadedModel, rows: BenchRows, watch: Watch) -> dict[str, Any]:
    """The result's part from training: loss and gradient norm of each step, held-out loss, and what ran."""
    torch.manual_seed(setting.drawn)
    model = loaded.model
    if setting.upcast:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    peft_model = add_adapter(model, LoraChoice(), setting.drawn)
    if setting.draw_b:  # at zero, A has no gradient in the first step
        draw = torch.Generator().manual_seed(setting.drawn)
        with torch.no_grad():
            for name, parameter in Trained(peft_model).named:
                if "lora_B" in name:
                    parameter.copy_(torch.randn(parameter.shape, generator=draw) * B_SPREAD)
    with tempfile.TemporaryDirectory(prefix="luthier-bench-") as place:
        device = next(peft_model.parameters()).device
        output = Path(place) / "checkpoints"
        recipe = arguments(config_of(setting), output, setting.total_steps, device, loaded.dtype_name)
        side = _plain if setting.plain else _fast
        return side(setting, replace(loaded, model=peft_model), rows, recipe, watch)


def _plain(
    setting: Setting, loaded: LoadedModel, rows: BenchRows, recipe: dict[str, Any], watch: Watch
) -> dict[str, Any]:
    steps = dealt(len(rows.train), setting)
    trainer = plain_trainer(setting, loaded.model, rows.train, steps, recipe, loaded.dtype)
    trainer.add_callback(watch)
    trainer.train()
    watch.finish()
    return {
        "plan": plain_lines(setting, loaded.model),
        "losses": trainer.losses(),
        "grad_norms": trainer.grad_norms,
        "held_out_loss": trainer.held_out_loss(rows.held_out, collate(setting)),
    }


def _fast(
    setting: Setting, loaded: LoadedModel, rows: BenchRows, recipe: dict[str, Any], watch: Watch
) -> dict[str, Any]:
    trainer, lines = _fast_trainer(setting, loaded.model, recipe, rows)
    folder = JobFolder(Path(recipe["output_dir"]).parent)
    subject = Subject(config_of(setting), trainer, loaded.tokenizer, rows.held_out)
    ops = reference_only() if setting.kernels == "twins" else contextlib.nullcontext()
    with contextlib.closing(EventWriter(folder.events, attempt=1)) as writer, ops:
        attempt = Attempt.unsteered(subject, EventReporter(writer))
        trainer.add_callback(watch)
        attempt.train()
        watch.finish()
        attempt.loop.evaluate()
        spoken = setting.effects and loaded.tokenizer is not None  # a random model has nothing to say
        right = right_answers(subject, rows.asked) if spoken else None
        turned = []
        if setting.effects and setting.arithmetic != DEFAULT_ARITHMETIC:
            turned = cosines(trainer, loaded.model, setting.arithmetic)
    events = EventTail(folder.events).read()
    steps = [event for event in events if isinstance(event, StepEvent)]
    held_out = [[event.step, event.loss] for event in events if isinstance(event, Evaluation)]
    config, dtype, device = loaded.model.config, loaded.dtype, next(loaded.model.parameters()).device
    used = config._attn_implementation
    attention = attention_line(device, dtype, config) if used == PACKED_ATTENTION else f"attention: {used}"
    weights = f"{WEIGHT_FORMS[setting.quantization].words}, {str(dtype).removeprefix('torch.')} on {device}"
    return {
        "plan": [*filter(None, [loaded.line]), f"{weights}; {attention}", *lines],
        "losses": [event.loss for event in steps],
        "grad_norms": [event.grad_norm for event in steps],
        "held_out_loss": held_out[-1][1] if held_out else None,
        "held_out_curve": held_out,
        "cosines": turned,
        "answers": right,
    }


def _fast_trainer(setting: Setting, peft_model: Any, recipe: dict[str, Any], rows: BenchRows) -> tuple[Any, list[str]]:
    """The trainer as ``core.train.setup`` makes it, plus the ladder's switches."""
    config, plain_torch = config_of(setting), setting.kernels == "twins"
    trained = Trained(peft_model)
    loss_model = LossModel(peft_model, trained.parameters, plain=setting.loss == "plain")
    sampler = BatchSampler(len(rows.train), config.rows_per_step, setting.drawn, setting.total_steps)
    tokens = setting.tokens_per_pass or planned_tokens(setting, config, rows, read_machine())
    tokens = tokens or setting.batch * (setting.dense_tokens or setting.max_length)
    trainer = TextTrainer(loss_model, trained, recipe, Batches(rows.train, sampler, tokens, setting.packed), 0)
    mode: surgery.Mode = "plain" if setting.kernels == "plain" else "auto"
    swaps = surgery.plan(peft_model, mode, force=plain_torch, arithmetic=setting.arithmetic)
    surgery.apply(peft_model, swaps)
    allowed = allowed_bytes(trainer.args.device, setting.vram_gb)
    state = state_bytes(recipe["optim"], trained)
    activations = set_checkpointing(peft_model, setting.checkpointing, allowed, state)  # type: ignore[arg-type]
    return trainer, [
        *swaps.lines(),
        *(["kernels: their references in plain torch"] if plain_torch else []),
        loss_model.line,
        *activations,
        passes_line(trainer),
    ]


def planned_tokens(setting: Setting, config: RunConfig, rows: BenchRows, machine: Machine) -> int:
    """Tokens of a micro-batch that a run's plan chooses for a card of ``--vram-gb``; 0 where nothing is planned."""
    if setting.checkpointing != "auto" or not setting.vram_gb or machine.gpu is None:
        return 0
    name = setting.model.removeprefix("random:")
    spec = find_shape(name) if name != setting.model else find_model("folder", name)
    if setting.layers:
        shape = spec.shape.model_copy(update={"num_hidden_layers": setting.layers})
        spec = spec.model_copy(update={"shape": shape})
    lengths = tuple(rows.train.length(row) for row in range(len(rows.train)))
    facts = DataFacts(
        rows=len(lengths), lengths=lengths, trained=lengths, max_length=config.train.max_length,
        longest=max(lengths), mean=sum(lengths) / len(lengths),
    )  # fmt: skip
    card = replace(machine.gpu, free_bytes=int(setting.vram_gb * GIB))
    train = {"checkpointing": "auto", "memory_gib": setting.vram_gb, "tokens_per_pass": 0}
    wanted = config.model_copy(update={"train": config.train.model_copy(update=train)})
    full, _ = resolve(wanted, spec, facts, replace(machine, gpus=(card,)))
    return full.train.tokens_per_pass


def config_of(setting: Setting) -> RunConfig:
    """The usual recipe: AdamW, linear schedule, 10 steps of warm-up, clipping at 1."""
    return RunConfig.model_validate(
        {
            "train": {
                "max_length": max(32, setting.dense_tokens or setting.max_length),
                "per_device_train_batch_size": setting.batch, "gradient_accumulation_steps": setting.accumulation,
                "learning_rate": setting.learning_rate, "warmup_steps": 10, "weight_decay": 0.01, "max_grad_norm": 1.0,
                "lr_scheduler_type": "linear", "optim": setting.optim, "seed": setting.drawn,
                "save_minutes": 0, "save_steps": 0, "eval_steps": setting.evaluate_every, "sample_rows": 0,
            }
        }
    )  # fmt: skip
