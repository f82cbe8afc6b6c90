"""Axolotl's YAML (``axolotl train``)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.runs.recipes.keys import (
    COMMON,
    OPTIMISER,
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

_METHODS = {"dpo": ("dpo", "sigmoid"), "ipo": ("dpo", "ipo"), "orpo": ("orpo", "auto"), "simpo": ("simpo", "auto"),
            "kto": ("kto", "auto")}  # fmt: skip
_LAYOUTS = {"alpaca": "alpaca", "alpaca_chat": "alpaca", "sharegpt": "sharegpt", "chat_template": "auto",
            "completion": "text", "pretrain": "text"}  # fmt: skip
_RAW = {"completion": "pretrain", "pretrain": "pretrain"}


def _method(fields: Mapping[str, Any]) -> Found:
    asked = str(fields.get("rl") or "")
    if asked in _METHODS:
        method, kind = _METHODS[asked]
        return Found({"method": (method, ("rl",)), "train.loss_type": (kind, ("rl",))}, {})
    if asked:
        return Found({}, {"rl": "no such method here"})
    if fields.get("reward_model"):
        return Found({"method": ("reward", ("reward_model",))}, {})
    return Found({}, {})


def _data(fields: Mapping[str, Any], folder: Path) -> Found:
    """The first data set: a file, and how its rows are read."""
    sets = fields.get("datasets") or fields.get("pretraining_dataset") or []
    key = "datasets" if fields.get("datasets") else "pretraining_dataset"
    first = sets[0] if isinstance(sets, list) and sets else sets
    if not isinstance(first, Mapping) or not first.get("path"):
        return Found({}, {})
    named = first.get("data_files") or first["path"]
    path, why = data_file(folder, named[0] if isinstance(named, list) else named)
    kind = str(first.get("type") or "").partition(".")[0]
    paired = bool(fields.get("rl")) and _METHODS.get(str(fields["rl"])) is not None
    values: dict[str, Any] = {"data.path": (path, (key,))} if path else {}
    if kind in _LAYOUTS and not paired:
        values["data.layout"] = (_LAYOUTS[kind], (key,))
    if kind in _RAW or key == "pretraining_dataset":
        values["method"] = ("pretrain", (key,))
    more = [why] if why else []
    more += ["only its first data set is taken: join the others in New run"] if len(sets) > 1 else []
    return Found(values, {key: "; ".join(more)} if more else {})


def _learns(fields: Mapping[str, Any]) -> Found:
    """Without an adapter every weight learns; ``qlora`` is an adapter over 4 bits."""
    adapter = str(fields.get("adapter") or "")
    known = {"": "everything", "lora": "adapter", "qlora": "adapter"}
    if adapter not in known:
        return Found({}, {"adapter": "an adapter of plain LoRA is trained"})
    four = adapter.startswith("q") or str(fields.get("load_in_4bit")).lower() in ("true", "yes")
    held = {"model.quantization": ("nf4" if four and adapter else "none", ("adapter", "load_in_4bit"))}
    left = {"load_in_8bit": "weights are held in 16 bits or in 4"} if fields.get("load_in_8bit") else {}
    return Found({"train.learns": (known[adapter], ("adapter",)), **held}, left)


def _excess(value: Any) -> dict[str, Any]:
    """What becomes of rows that are too long."""
    if str(value).lower() != "truncate":
        raise NoPlaceError("longer rows lose their end here: leave them out in the table of rows, by their length")
    return {}


_ROPE = {
    "rope_scaling.type": Key("model.rope_scaling", SCALING),
    "rope_scaling.rope_type": Key("model.rope_scaling", SCALING),
    "rope_scaling.factor": Key("model.rope_factor", number),
    "rope_scaling.original_max_position_embeddings": Key(why="as the model says it", decides=False),
    "rope_theta": Key("model.rope_theta", number),
}
_SIXTEEN = {"bf16": "bfloat16", "fp16": "float16"}


def _half(name: str) -> Key:
    read = given(_SIXTEEN[name])
    return Key("model.dtype", lambda value: None if str(value).lower() in ("auto", "full") else read(value))


AXOLOTL = Recipe(
    title="Axolotl",
    keys={
        **COMMON,
        "base_model": Key("model.name", str),
        "revision_of_model": Key("model.revision", str),
        **{f"{part}{key}": row for part in ("", "overrides_of_model_config.") for key, row in _ROPE.items()},
        "lora_r": Key("lora.r", number),
        "lora_target_modules": Key("lora.target_modules", targets),
        "lora_target_linear": Key("lora.target_modules", lambda value: targets("all") if switch(value) else None),
        "peft_use_dora": Key("lora.use_dora", switch),
        "peft_use_rslora": Key("lora.use_rslora", switch),
        "rl_beta": Key("train.beta", number),
        "dpo_beta": Key("train.beta", number),
        "orpo_alpha": Key("train.beta", number),
        "rpo_alpha": Key("train.rpo_alpha", number),
        "cpo_alpha": Key("train.cpo_alpha", number),
        "kto_desirable_weight": Key("train.desirable_weight", number),
        "kto_undesirable_weight": Key("train.undesirable_weight", number),
        "center_rewards_coefficient": Key("train.center_rewards_coefficient", number),
        "sequence_len": Key("train.max_length", number),
        "excess_length_strategy": Key(read=_excess),
        "sample_packing": Key("train.packing", switch),
        "train_on_inputs": Key("data.train_on", lambda value: "everything" if switch(value) else "answers"),
        "val_set_size": Key("data.eval_fraction", held_out),
        "default_system_message": Key("data.system_prompt", str),
        "micro_batch_size": Key("train.per_device_train_batch_size", number),
        "num_epochs": Key("train.num_train_epochs", number),
        "embedding_lr": Key("train.embedding_learning_rate", number),
        "lr_scheduler": Key("train.lr_scheduler_type", SCHEDULE),
        "optimizer": Key("train.optim", OPTIMISER),
        "bf16": _half("bf16"),
        "fp16": _half("fp16"),
        "chat_template": Key(
            "data.template",
            word({"tokenizer_default": "model", "chatml": "chatml"}, "the model's own is taken where it has one"),
        ),
        **needless(
            "rl", "adapter", "datasets", "load_in_4bit", "load_in_8bit", "pretraining_dataset", "reward_model",
            why="read together with others",
        ),
        **needless(
            "model_type", "tokenizer_type", "is_llama_derived_model", "strict", "dataset_prepared_path",
            "output_dir", "eval_sample_packing", "pad_to_sequence_len", "tf32", "logging_steps", "flash_attention",
            "attn_implementation", "sdp_attention", "xformers_attention", "loss_watchdog_threshold",
            "loss_watchdog_patience", "evals_per_epoch", "saves_per_epoch", "save_first_step", "local_rank",
            "debug", "eval_table_size", "eval_max_new_tokens", "gradient_checkpointing_kwargs",
            "tiled_mlp", "tiled_mlp_num_shards",
            "remove_unused_columns", "group_by_length", "save_safetensors", "plugins", "liger_rope",
            "liger_rms_norm", "liger_glu_activation", "liger_layer_norm", "liger_fused_linear_cross_entropy",
            "lora_qkv_kernel", "lora_mlp_kernel", "lora_o_kernel", "dataset_processes", "save_total_limit",
            "trust_remote_code", "shuffle_merged_datasets", "eval_batch_size", "torch_compile", "bnb_config_kwargs",
            "save_strategy", "eval_strategy", "early_stopping_patience", "auto_resume_from_checkpoints",
            "hub_strategy", "flash_attn_cross_entropy", "flash_attn_rms_norm", "flash_attn_fuse_mlp",
            "lora_fan_in_fan_out",
        ),
        **needless("special_tokens", why="the tokenizer's own are taken"),
        **needless("hub_model_id", why="after the export: publish RUN EXPORT --to OWNER/NAME"),
        "wandb_project": Key("train.report_to", lambda _: "wandb"),
        "use_wandb": Key("train.report_to", given("wandb")),
        "use_tensorboard": Key("train.report_to", given("tensorboard")),
        "use_mlflow": Key("train.report_to", given("mlflow")),
        "mlflow_tracking_uri": Key("train.report_to", lambda _: "mlflow"),
        "wandb_name": Key("name", str),
        **needless(
            "wandb_entity", "wandb_watch", "wandb_log_model", "wandb_run_id", "mlflow_experiment_name",
            why="the library's own variables say it, such as WANDB_PROJECT",
        ),
    },
    marks=frozenset(
        {
            "base_model", "micro_batch_size", "sequence_len", "datasets", "val_set_size", "adapter", "sample_packing",
            "num_epochs"
        }
    ),
    usual={
        "data.eval_fraction": 0.0,
        "lora.lora_dropout": 0.0,
        "train.max_length": 512,
        "train.per_device_train_batch_size": 1,
        "train.gradient_accumulation_steps": 1,
        "train.num_train_epochs": 1,
        "train.lr_scheduler_type": "cosine",
        "train.optim": "adamw_torch_fused",
        "train.weight_decay": 0.0,
        "train.packing": False,
        "train.seed": 42,
    },
    together=lambda fields, folder: _data(fields, folder) | _method(fields) | _learns(fields),
)  # fmt: skip
