"""LLaMA-Factory's YAML (``llamafactory-cli train``): flat keys of transformers and its own; data sets by their name in
``dataset_info.json``."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.machine.disk import read_plain
from core.runs.recipes.keys import (
    COMMON,
    OPTIMISER,
    REPORTS,
    SCALING,
    SCHEDULE,
    Found,
    Key,
    NoPlaceError,
    Recipe,
    data_file,
    given,
    held_out,
    needless,
    number,
    switch,
    targets,
    word,
)

_MOST_BYTES = 4 << 20
_METHODS = {"pt": "pretrain", "sft": "sft", "rm": "reward", "kto": "kto"}
_PAIRS = {"sigmoid": ("dpo", "sigmoid"), "hinge": ("dpo", "hinge"), "ipo": ("dpo", "ipo"), "orpo": ("orpo", "auto"),
          "simpo": ("simpo", "auto")}  # fmt: skip
_FORMATS = {"alpaca": "alpaca", "sharegpt": "sharegpt", "openai": "messages"}


def _method(fields: Mapping[str, Any]) -> Found:
    stage, loss = str(fields.get("stage", "sft")), str(fields.get("pref_loss", "sigmoid"))
    if stage in _METHODS:
        return Found({"method": (_METHODS[stage], ("stage",))}, {})
    if stage == "ppo" or loss not in _PAIRS:
        return Found({}, {"stage" if stage == "ppo" else "pref_loss": "no such method here"})
    method, kind = _PAIRS[loss]
    from_ = tuple(key for key in ("stage", "pref_loss") if key in fields)
    return Found({"method": (method, from_), "train.loss_type": (kind, from_)}, {})


def _data(fields: Mapping[str, Any], folder: Path) -> Found:
    """The first named data set's file, as ``dataset_info.json`` says it."""
    names = [name.strip() for name in str(fields.get("dataset") or "").split(",") if name.strip()]
    if not names:
        return Found({}, {})
    place = folder / str(fields.get("dataset_dir") or "data")
    try:
        listed = json.loads(read_plain(place / "dataset_info.json", _MOST_BYTES))[names[0]]
        path, why = data_file(place, listed["file_name"])
    except (OSError, ValueError, KeyError, TypeError):
        path, why = None, f"no file of that name in {place.name}/dataset_info.json; choose it as data.path"
    if path is None:
        return Found({}, {"dataset": why})
    kind = "preference" if listed.get("ranking") else _FORMATS.get(str(listed.get("formatting", "alpaca")), "auto")
    more = [f"only {names[0]}: join the others in New run"] if names[1:] else []
    more += ["columns are known by their usual names; choose others in New run"] if listed.get("columns") else []
    values = {"data.path": (path, ("dataset",)), "data.layout": (kind, ("dataset",))}
    return Found(values, {"dataset": "; ".join(more)} if more else {})


def _together(fields: Mapping[str, Any], folder: Path) -> Found:
    found = _method(fields) | _data(fields, folder)
    if "lora_alpha" not in fields:
        with suppress(NoPlaceError):  # said of the rank
            alpha = 2 * number(fields.get("lora_rank", 8))
            found |= Found({"lora.lora_alpha": (alpha, ("lora_rank",))}, {})
    return found


KEYS: dict[str, Key] = {
    **COMMON,
    "model_name_or_path": Key("model.name", str),
    "model_revision": Key("model.revision", lambda value: "" if value == "main" else str(value)),
    "quantization_bit": Key("model.quantization", word({"4": "nf4"}, "weights are held in 16 bits or in 4")),
    "finetuning_type": Key(
        "train.learns", word({"lora": "adapter", "full": "everything"}, "an adapter is trained")
    ),
    "rope_scaling": Key("model.rope_scaling", SCALING),
    "lora_rank": Key("lora.r", number),
    "lora_target": Key("lora.target_modules", targets),
    "use_rslora": Key("lora.use_rslora", switch),
    "use_dora": Key("lora.use_dora", switch),
    "pissa_init": Key("lora.init_lora_weights", given("pissa_niter_16")),
    "pref_beta": Key("train.beta", number),
    "pref_ftx": Key("train.rpo_alpha", number),
    "kto_chosen_weight": Key("train.desirable_weight", number),
    "kto_rejected_weight": Key("train.undesirable_weight", number),
    "template": Key(
        why="the model's own chat template is taken; data.template changes that", decides=False
    ),
    "cutoff_len": Key("train.max_length", number),
    "packing": Key("train.packing", switch),
    "neat_packing": Key("train.packing", given(True)),
    "train_on_prompt": Key("data.train_on", given("everything")),
    "mask_history": Key("data.train_on", given("last_answer")),
    "default_system": Key("data.system_prompt", str),
    "val_size": Key("data.eval_fraction", held_out),
    "per_device_train_batch_size": Key("train.per_device_train_batch_size", number),
    "num_train_epochs": Key("train.num_train_epochs", number),
    "lr_scheduler_type": Key("train.lr_scheduler_type", SCHEDULE),
    "optim": Key("train.optim", OPTIMISER),
    "bf16": Key("model.dtype", given("bfloat16")),
    "fp16": Key("model.dtype", given("float16")),
    "disable_gradient_checkpointing": Key("train.checkpointing", lambda value: "none" if switch(value) else "auto"),
    **needless(
        "stage", "pref_loss", "dataset", "dataset_dir",
        why="read together with others",
    ),
    **needless(
        "do_train", "do_eval", "trust_remote_code", "overwrite_cache", "preprocessing_num_workers",
        "dataloader_num_workers", "output_dir", "logging_steps", "plot_loss", "overwrite_output_dir",
        "save_only_model", "save_total_limit", "ddp_timeout", "per_device_eval_batch_size", "eval_strategy",
        "save_strategy", "flash_attn", "use_fast_tokenizer", "include_num_input_tokens_seen", "quantization_method",
        "double_quantization", "quantization_type", "enable_liger_kernel", "use_unsloth", "upcast_layernorm",
        "pure_bf16", "dataloader_pin_memory", "tokenized_path", "load_best_model_at_end", "metric_for_best_model",
        "greater_is_better", "ray_run_name", "use_cache", "cache_dir",
    ),
    "report_to": Key("train.report_to", REPORTS),
    "run_name": Key("name", str),
}  # fmt: skip

LLAMA_FACTORY = Recipe(
    title="LLaMA-Factory",
    keys=KEYS,
    marks=frozenset({"stage", "finetuning_type", "cutoff_len", "lora_rank", "lora_target", "pref_loss", "template"}),
    usual={
        "model.quantization": "none",
        "data.eval_fraction": 0.0,
        "lora.r": 8,
        "train.max_length": 2048,
        "train.per_device_train_batch_size": 8,
        "train.gradient_accumulation_steps": 1,
        "train.learning_rate": 5e-5,
        "train.warmup_steps": 0,
        "train.weight_decay": 0.0,
        "train.optim": "adamw_torch",
        "train.seed": 42,
    },
    together=_together,
)
