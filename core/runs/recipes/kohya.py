"""Key names of kohya's sd-scripts (TOML, or the JSON of its window), which trainers of language models took over. The
names of sections say nothing there."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.runs.recipes.keys import (
    OPTIMISER,
    REPORTS,
    SCHEDULE,
    Found,
    Key,
    NoPlaceError,
    Recipe,
    checkpointing,
    data_file,
    if_set,
    needless,
    not_here,
    number,
    word,
)

_OF_PICTURES = "belongs to training on pictures"
_ARGUMENTS = {"weight_decay": "train.weight_decay", "loraplus_lr_ratio": "lora.loraplus_lr_ratio",
              "use_dora": "lora.use_dora", "dora_wd": "lora.use_dora", "rs_lora": "lora.use_rslora"}  # fmt: skip


def _arguments(value: Any) -> dict[str, Any]:
    """``["weight_decay=0.01", "betas=0.9,0.99"]``, or the same with blanks between."""
    words = value if isinstance(value, list) else str(value).split()
    pairs = dict(str(one).partition("=")[::2] for one in words if one)
    if lost := [name for name in pairs if name not in _ARGUMENTS]:
        raise NoPlaceError(f"{', '.join(lost)}: no such argument here")
    read = {"true": True, "false": False}
    return {_ARGUMENTS[name]: read.get(text.lower(), text) for name, text in pairs.items()}


def _together(fields: Mapping[str, Any], folder: Path) -> Found:
    named = fields.get("train_data_dir") or fields.get("train_data") or fields.get("in_json")
    path, why = data_file(folder, named) if named else (None, "")
    key = next((name for name in ("train_data_dir", "train_data", "in_json") if fields.get(name)), "")
    return Found({"data.path": (path, (key,))} if path else {}, {key: why} if why else {})


KOHYA = Recipe(
    title="kohya's key names",
    keys={
        "pretrained_model_name_or_path": Key("model.name", str),
        "network_dim": Key("lora.r", number),
        "network_alpha": Key("lora.lora_alpha", number),
        "network_dropout": Key("lora.lora_dropout", number),
        "network_args": Key("lora", _arguments),
        "optimizer_args": Key("train", _arguments),
        "learning_rate": Key("train.learning_rate", number),
        "train_batch_size": Key("train.per_device_train_batch_size", number),
        "gradient_accumulation_steps": Key("train.gradient_accumulation_steps", number),
        "max_train_epochs": Key("train.num_train_epochs", if_set),
        "epoch": Key("train.num_train_epochs", if_set),
        "max_train_steps": Key("train.max_steps", number),
        "lr_scheduler": Key("train.lr_scheduler_type", SCHEDULE),
        "lr_warmup_steps": Key("train.warmup_steps", number),
        "optimizer_type": Key("train.optim", OPTIMISER),
        "optimizer": Key("train.optim", OPTIMISER),
        "max_token_length": Key("train.max_length", number),
        "max_grad_norm": Key("train.max_grad_norm", number),
        "mixed_precision": Key(
            "model.dtype", word({"bf16": "bfloat16", "fp16": "float16", "no": "float32"}, "chosen by the card")
        ),
        "gradient_checkpointing": Key("train.checkpointing", checkpointing),
        "save_every_n_steps": Key("train.save_steps", number),
        "seed": Key("train.seed", number),
        **needless("train_data_dir", "train_data", "in_json", why="read together with others"),
        **needless(
            "output_dir", "output_name", "logging_dir", "save_model_as", "save_precision", "save_every_n_epochs",
            "save_last_n_epochs", "network_module", "xformers", "sdpa", "mem_eff_attn", "max_data_loader_n_workers",
            "persistent_data_loader_workers", "dynamo_backend", "lowram", "save_state", "log_prefix", "full_bf16",
            "num_cpu_threads_per_process", "LoRA_type", "lr_scheduler_args", "lr_scheduler_power",
        ),
        "log_with": Key("train.report_to", REPORTS),
        **needless("wandb_api_key", "log_tracker_name", why="the library's own variables say it"),
        **not_here(
            "unet_lr", "text_encoder_lr", "clip_skip", "resolution", "enable_bucket", "bucket_no_upscale",
            "min_snr_gamma", "bucket_reso_steps", "max_bucket_reso", "min_bucket_reso", "cache_latents",
            "cache_latents_to_disk", "vae", "caption_extension", "noise_offset", "prior_loss_weight", "keep_tokens",
            "shuffle_caption", "v2", "sdxl", "v_parameterization", "flip_aug", "color_aug", "conv_dim",
            "conv_alpha", "sample_prompts", "sample_sampler", "multires_noise_discount",
            "multires_noise_iterations", "huber_c", "huber_schedule", "max_timestep", "min_timestep",
            "weighted_captions", "reg_data_dir", "no_half_vae", "network_train_unet_only",
            why=_OF_PICTURES, decides=False,
        ),
    },
    marks=frozenset(
        {
            "network_dim", "network_alpha", "network_module", "train_batch_size", "max_train_epochs", "optimizer_type"
        }
    ),
    usual={
        "model.quantization": "none",
        "lora.r": 4,
        "lora.lora_alpha": 1,
        "data.eval_fraction": 0.0,
        "train.per_device_train_batch_size": 1,
        "train.gradient_accumulation_steps": 1,
        "train.lr_scheduler_type": "constant",
        "train.warmup_steps": 0,
    },
    together=_together,
    flat=True,
)  # fmt: skip
