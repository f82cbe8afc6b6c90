"""Unsloth Studio's YAML: the sections model, data, training, lora and logging."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.runs.recipes.keys import (
    OPTIMISER,
    SCHEDULE,
    Found,
    Key,
    Recipe,
    checkpointing,
    data_file,
    from_zero,
    given,
    if_set,
    needless,
    number,
    switch,
    targets,
    word,
)

_LAYOUTS = {"auto": "auto", "alpaca": "alpaca", "sharegpt": "sharegpt", "chatml": "messages", "raw": "text",
            "text": "text"}  # fmt: skip
_LEARNS = {"lora": "adapter", "qlora": "adapter", "lora/qlora": "adapter", "full": "everything",
           "full finetuning": "everything"}  # fmt: skip


def _together(fields: Mapping[str, Any], folder: Path) -> Found:
    """The data; and that full finetuning has whole weights."""
    values: dict[str, Any] = {}
    left: dict[str, str] = {}
    for key in ("data.dataset", "data.local_datasets"):
        named = fields.get(key)
        if named := named[0] if isinstance(named, list) and named else named:
            path, why = data_file(folder, named)
            values |= {"data.path": (path, (key,))} if path else {}
            left |= {key: why} if why else {}
    whole = str(fields.get("training.training_type", "")).lower().startswith("full")
    four = str(fields.get("training.load_in_4bit", True)).lower() in ("true", "yes")
    held = ("nf4" if four and not whole else "none", ("training.load_in_4bit",))
    return Found({**values, "model.quantization": held}, left)


UNSLOTH_STUDIO = Recipe(
    title="Unsloth Studio",
    keys={
        "model": Key("model.name", str),
        "model_name": Key("model.name", str),
        "data.format_type": Key("data.layout", word(_LAYOUTS, "it is recognised")),
        "training.training_type": Key("train.learns", word(_LEARNS, "an adapter is trained")),
        "training.max_seq_length": Key("train.max_length", number),
        "training.num_epochs": Key("train.num_train_epochs", if_set),
        "training.max_steps": Key("train.max_steps", from_zero),
        "training.learning_rate": Key("train.learning_rate", number),
        "training.embedding_learning_rate": Key("train.embedding_learning_rate", number),
        "training.batch_size": Key("train.per_device_train_batch_size", number),
        "training.gradient_accumulation_steps": Key("train.gradient_accumulation_steps", number),
        "training.warmup_steps": Key("train.warmup_steps", number),
        "training.weight_decay": Key("train.weight_decay", number),
        "training.max_grad_norm": Key("train.max_grad_norm", number),
        "training.random_seed": Key("train.seed", number),
        "training.packing": Key("train.packing", switch),
        "training.train_on_completions": Key(
            "data.train_on", lambda value: "answers" if switch(value) else "everything"
        ),
        "training.gradient_checkpointing": Key("train.checkpointing", checkpointing),
        "training.optim": Key("train.optim", OPTIMISER),
        "training.lr_scheduler_type": Key("train.lr_scheduler_type", SCHEDULE),
        "training.save_steps": Key("train.save_steps", number),
        "training.eval_steps": Key("train.eval_steps", lambda value: number(value) if number(value) >= 1 else None),
        "training.eval_split": Key("data.eval_fraction", number),
        "lora.lora_r": Key("lora.r", number),
        "lora.lora_alpha": Key("lora.lora_alpha", number),
        "lora.lora_dropout": Key("lora.lora_dropout", number),
        "lora.target_modules": Key("lora.target_modules", targets),
        "lora.use_rslora": Key("lora.use_rslora", switch),
        "lora.use_dora": Key("lora.use_dora", switch),
        "lora.use_loftq": Key("lora.init_lora_weights", given("loftq")),
        **needless("data.dataset", "data.local_datasets", "training.load_in_4bit", why="read together with others"),
        **needless(
            "training.output_dir", "lora.vision_all_linear", "lora.finetune_vision_layers",
            "lora.finetune_language_layers", "lora.finetune_attention_modules", "lora.finetune_mlp_modules",
            "logging.log_frequency", "training.hf_token", "training.trust_remote_code",
        ),
        "logging.enable_wandb": Key("train.report_to", given("wandb")),
        "logging.enable_tensorboard": Key("train.report_to", given("tensorboard")),
        **needless(
            "logging.wandb_project", "logging.tensorboard_dir", "logging.wandb_token",
            why="the library's own variables say it, such as WANDB_PROJECT",
        ),
        **needless(
            "inference.temperature", "inference.top_p", "inference.top_k", "inference.min_p",
            "inference.trust_remote_code", "inference.repetition_penalty", "inference.presence_penalty",
            why="of answers, not of training: see Try",
        ),
    },
    marks=frozenset(
        {
            "training.training_type", "training.max_seq_length", "lora.lora_r", "lora.use_loftq",
            "training.train_on_completions", "lora.vision_all_linear", "logging.enable_wandb"
        }
    ),
    usual={
        "data.train_on": "everything",
        "train.per_device_train_batch_size": 2,
        "train.gradient_accumulation_steps": 4,
        "train.optim": "adamw_8bit",
        "train.lr_scheduler_type": "linear",
        "train.packing": False,
    },
    together=_together,
)  # fmt: skip
