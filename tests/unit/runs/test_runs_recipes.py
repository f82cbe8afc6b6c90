"""Recipes of other programs: their keys and values as facts, and what becomes of them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.cli.elsewhere import lines
from core.contract.config import TARGETS, RunConfig
from core.contract.errors import ConfigError
from core.contract.knobs import knobs
from core.runs.folder.run_yaml import read_wish
from core.runs.recipes.keys import SHARE
from core.runs.recipes.reading import RECIPES, Imported, nested, read_recipe

FACTORY_SFT: dict[str, Any] = {
    "model_name_or_path": "Qwen/Qwen3-4B-Instruct-2507", "trust_remote_code": True, "stage": "sft", "do_train": True,
    "finetuning_type": "lora", "lora_rank": 8, "lora_target": "all", "dataset": "identity",
    "template": "qwen3_nothink", "cutoff_len": 2048, "max_samples": 1000, "preprocessing_num_workers": 16,
    "output_dir": "saves/qwen3-4b/lora/sft", "logging_steps": 10, "save_steps": 500, "plot_loss": True,
    "overwrite_output_dir": True, "report_to": "none", "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 8, "learning_rate": 1.0e-4, "num_train_epochs": 3.0, "lr_scheduler_type": "cosine",
    "warmup_ratio": 0.1, "bf16": True, "ddp_timeout": 180000000, "resume_from_checkpoint": None,
}  # fmt: skip
FACTORY_DPO = {
    **FACTORY_SFT, "stage": "dpo", "pref_beta": 0.2, "pref_loss": "simpo", "learning_rate": "5e-6", "lora_alpha": 64,
    "quantization_bit": 4, "val_size": 0.1, "optim": "paged_adamw_8bit", "warmup_ratio": 0.0, "deepspeed": "z3.json",
}  # fmt: skip
AXOLOTL_QLORA: dict[str, Any] = {
    "base_model": "NousResearch/Llama-3.2-1B", "load_in_8bit": False, "load_in_4bit": True,
    "datasets": [{"path": "teknium/GPT4-LLM-Cleaned", "type": "alpaca"}],
    "dataset_prepared_path": "last_run_prepared", "val_set_size": 0.1, "output_dir": "./outputs/qlora-out",
    "adapter": "qlora", "lora_model_dir": None, "sequence_len": 2048, "sample_packing": True,
    "eval_sample_packing": True, "lora_r": 32, "lora_alpha": 16, "lora_dropout": 0.05,
    "lora_target_modules": ["gate_proj", "down_proj", "up_proj", "q_proj", "v_proj", "k_proj", "o_proj"],
    "wandb_project": None, "gradient_accumulation_steps": 4, "micro_batch_size": 2, "num_epochs": 1,
    "optimizer": "adamw_bnb_8bit", "lr_scheduler": "cosine", "learning_rate": 0.0002, "bf16": "auto", "tf32": False,
    "gradient_checkpointing": True, "logging_steps": 1, "attn_implementation": "flash_attention_2",
    "loss_watchdog_threshold": 5.0, "loss_watchdog_patience": 3, "warmup_ratio": 0.1, "evals_per_epoch": 4,
    "saves_per_epoch": 1, "weight_decay": 0.0, "special_tokens": {"pad_token": "<|end_of_text|>"},
}  # fmt: skip
AXOLOTL_KTO = {
    **AXOLOTL_QLORA, "rl": "kto", "rl_beta": 0.5, "kto_desirable_weight": 0.2, "val_set_size": 0.0, "warmup_steps": 20,
    "datasets": [{"path": "argilla/ultrafeedback-kto", "type": "llama3.ultra", "split": "train"}],
    "lora_target_linear": True, "warmup_ratio": None, "lora_target_modules": None, "fsdp": None,
}  # fmt: skip
STUDIO: dict[str, Any] = {
    "model": "unsloth/Qwen2.5-0.5B", "data": {"dataset": "tatsu-lab/alpaca", "format_type": "auto"},
    "training": {"training_type": "lora", "max_seq_length": 2048, "load_in_4bit": True, "output_dir": "outputs",
                 "num_epochs": 1, "learning_rate": 0.0002, "batch_size": 2, "gradient_accumulation_steps": 4,
                 "warmup_steps": 5, "max_steps": 0, "save_steps": 0, "weight_decay": 0.01, "random_seed": 3407,
                 "packing": False, "train_on_completions": False, "gradient_checkpointing": "unsloth"},
    "lora": {"lora_r": 64, "lora_alpha": 16, "lora_dropout": 0.0, "target_modules": "q_proj,k_proj,v_proj",
             "vision_all_linear": False, "use_rslora": False, "use_loftq": False, "finetune_vision_layers": True},
    "logging": {"enable_wandb": False, "wandb_project": "unsloth-training", "enable_tensorboard": False},
}  # fmt: skip
KOHYA = """
[additional_network_arguments]
unet_lr = 0.00025
network_dim = 64
network_alpha = 8
network_module = "networks.lora"
[optimizer_arguments]
learning_rate = 0.00025
lr_scheduler = "cosine_with_restarts"
lr_warmup_steps = 180
optimizer_type = "AdamW8bit"
optimizer_args = ["weight_decay=0.02"]
[training_arguments]
pretrained_model_name_or_path = "some/model"
max_train_epochs = 5
train_batch_size = 2
seed = 42
max_token_length = 225
"""


def read(folder: Path, fields: dict[str, Any] | str, suffix: str = ".yaml") -> Imported:
    path = folder / f"recipe{suffix}"
    path.write_text(fields if isinstance(fields, str) else yaml.safe_dump(fields), encoding="utf-8")
    return read_recipe(path)


def reasons(imported: Imported) -> dict[str, str]:
    return {one.key: one.why for one in imported.left if one.decides}


def test_every_key_of_ours_is_one_and_no_table_claims_anothers_file() -> None:
    known = {*knobs(RunConfig), "name", "model.name", "model.revision", "lora.target_modules", "method"}
    for recipe in RECIPES.values():
        ours = {row.ours for row in recipe.keys.values() if row.ours} | {*recipe.usual}
        assert ours - known - {SHARE, "lora", "train"} == set(), recipe.title
        assert recipe.marks <= {*recipe.keys}, recipe.title
        RunConfig.model_validate(nested(recipe.usual))


def test_llama_factorys_sft(tmp_path: Path) -> None:
    """The data set is a file of its dataset_info.json, and warm-up a share of the steps that follow from it."""
    (tmp_path / "data").mkdir()
    rows = [{"instruction": "a", "input": "", "output": "b"}] * 91
    (tmp_path / "data" / "identity.json").write_text(json.dumps(rows), encoding="utf-8")
    (tmp_path / "data" / "dataset_info.json").write_text('{"identity": {"file_name": "identity.json"}}')
    found = read(tmp_path, FACTORY_SFT)
    config, train = found.config, found.config.train
    assert (found.recipe.title, config.method, config.model.source) == ("LLaMA-Factory", "sft", "hub")
    assert (config.model.name, config.model.quantization) == ("Qwen/Qwen3-4B-Instruct-2507", "none")
    assert (config.lora.r, config.lora.lora_alpha, config.lora.target_modules) == (8, 16, TARGETS)
    assert (train.learning_rate, train.seed, train.weight_decay, train.optim) == (1e-4, 42, 0.0, "adamw_torch")
    assert (config.data.layout, Path(config.data.path).name) == ("alpaca", "identity.json")
    assert train.warmup_steps == 4, "a tenth of 3 epochs of 12 steps"
    assert config.data.eval_fraction == 0.0
    assert [one.theirs for one in found.mapped if one.ours == "train.warmup_steps"] == [(("warmup_ratio", 0.1),)]
    assert train.report_to == "none"
    assert {*reasons(found)} == {"max_samples"}
    assert found.problems == []
    again = tmp_path / "run.yaml"
    again.write_text(found.run_yaml(), encoding="utf-8")
    assert read_wish(again) == config


def test_llama_factorys_preferences(tmp_path: Path) -> None:
    found = read(tmp_path, FACTORY_DPO)
    config = found.config
    assert (config.method, config.beta, config.train.loss_type) == ("simpo", 0.2, "auto")
    assert (config.model.quantization, config.train.learning_rate, config.lora.lora_alpha) == ("nf4", 5e-6, 64)
    assert (config.train.optim, config.data.eval_fraction, config.train.warmup_steps) == ("paged_adamw_8bit", 0.1, 0)
    assert {*reasons(found)} == {"dataset", "max_samples", "deepspeed"}
    assert any(problem.startswith("data.path") for problem in found.problems)
    ppo = read(tmp_path, {**FACTORY_DPO, "stage": "ppo", "quantization_bit": 8, "finetuning_type": "freeze"})
    assert {"stage", "quantization_bit", "finetuning_type"} <= {*reasons(ppo)}
    assert ppo.config.method == "auto"


def test_scaled_positions_of_other_programs(tmp_path: Path) -> None:
    found = read(tmp_path, {**FACTORY_SFT, "rope_scaling": "yarn"})
    assert found.config.model.rope_scaling == "yarn"
    assert found.config.model.rope_factor == 0, "LLaMA-Factory counts the factor from the rows, as is done here"
    told = {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta": 500000}
    for changes in (told, {"overrides_of_model_config": told}):
        model = read(tmp_path, {**AXOLOTL_QLORA, **changes}, ".yml").config.model
        assert (model.rope_scaling, model.rope_factor, model.rope_theta) == ("linear", 2.0, 500_000.0)
    left = read(tmp_path, {**FACTORY_SFT, "rope_scaling": "longrope"}).left
    assert [one.why for one in left if one.key == "rope_scaling"] == [
        "auto is used; known are dynamic, linear, llama3, none, yarn"
    ]


def test_axolotls_qlora_and_its_preferences(tmp_path: Path) -> None:
    found = read(tmp_path, AXOLOTL_QLORA, ".yml")
    config = found.config
    assert (found.recipe.title, config.train.learns, config.model.quantization) == ("Axolotl", "adapter", "nf4")
    assert (config.lora.r, config.lora.lora_alpha, config.lora.lora_dropout) == (32, 16, 0.05)
    assert config.lora.target_modules == TARGETS, "in our order"
    assert (config.train.packing, config.train.optim, config.data.layout) == (True, "adamw_8bit", "alpaca")
    assert (config.rows_per_step, config.data.train_on, config.model.dtype) == (8, "answers", "auto")
    assert {*reasons(found)} == {"datasets", "warmup_ratio"}
    assert "once the data is chosen" in reasons(found)["warmup_ratio"]
    assert config.train.report_to == "none", "its project has no name"
    for told, kept in (("truncate", []), ("drop", ["drop"]), ("raise", ["raise"])):
        excess = read(tmp_path, {**AXOLOTL_QLORA, "excess_length_strategy": told}).left
        assert [one.value for one in excess if one.key == "excess_length_strategy" and one.decides] == kept
    kto = read(tmp_path, {**AXOLOTL_KTO, "wandb_project": "mine"}).config
    assert kto.train.report_to == "wandb"
    assert (kto.method, kto.beta, kto.train.desirable_weight, kto.train.warmup_steps) == ("kto", 0.5, 0.2, 20)
    assert (kto.lora.target_modules, kto.data.layout) == (TARGETS, "auto")
    whole = read(tmp_path, {**AXOLOTL_QLORA, "adapter": None, "load_in_4bit": False, "model": {"odd": 1}})
    assert (whole.config.train.learns, whole.config.model.quantization) == ("everything", "none")
    assert reasons(whole)["model"] == "no counterpart is known"


def test_unsloth_studios(tmp_path: Path) -> None:
    found = read(tmp_path, STUDIO)
    config = found.config
    assert (found.recipe.title, config.train.learns, config.model.quantization) == ("Unsloth Studio", "adapter", "nf4")
    assert (config.lora.r, config.lora.target_modules) == (64, ("q_proj", "k_proj", "v_proj"))
    assert (config.data.train_on, config.train.packing, config.train.num_train_epochs) == ("everything", False, 1)
    assert {*reasons(found)} == {"data.dataset"}
    full = {**STUDIO, "training": {**STUDIO["training"], "training_type": "full", "num_epochs": 0, "max_steps": 30}}
    assert read(tmp_path, full).config.train.learns == "everything"
    assert read(tmp_path, full).config.train.max_steps == 30


def test_kohyas_names(tmp_path: Path) -> None:
    found = read(tmp_path, KOHYA, ".toml")
    config = found.config
    assert (config.lora.r, config.lora.lora_alpha, config.train.optim) == (64, 8, "adamw_8bit")
    assert (config.train.weight_decay, config.train.max_length, config.train.warmup_steps) == (0.02, 225, 180)
    assert {*reasons(found)} == {"lr_scheduler"}
    assert config.train.lr_scheduler_type == "constant", "what it does by itself"
    assert next(one for one in found.left if one.key == "unet_lr").why == "belongs to training on pictures"


def test_what_is_no_recipe_or_out_of_range_is_said(tmp_path: Path) -> None:
    found = read(tmp_path, {**FACTORY_SFT, "lora_rank": 0, "learning_rate": [1], "lora_dropout": "lots"})
    assert {"lora_rank", "learning_rate", "lora_dropout"} <= {*reasons(found)}
    assert "greater than or equal" in reasons(found)["lora_rank"]
    for text, code in (
        ("a: 1\n", "recipe.unknown"), ("- 1\n", "config.yaml/no_fields"), ("a: [\n", "config.yaml/syntax"),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as caught:
            read(tmp_path, text)
        assert caught.value.code == code.partition("/")[0]


@pytest.mark.parametrize("program", RECIPES)
def test_no_value_of_a_recipe_is_more_than_a_sentence(program: str, tmp_path: Path) -> None:
    names = ("model_name_or_path", "base_model", "model", "pretrained_model_name_or_path", "lora_rank", "val_size",
             "val_set_size", "train_data", "data.dataset", "network_alpha")  # fmt: skip
    for key in set(RECIPES[program].keys) & {*names}:
        for value in ("x" * 5_000, "~nobodys-home/x", "a\0b", [[1]], {"x": [1]}, math.inf, math.nan, "abc"):
            (tmp_path / "r.yaml").write_text(yaml.safe_dump(nested({key: value})), encoding="utf-8")
            assert [*lines(read_recipe(tmp_path / "r.yaml", program))]


def test_a_token_in_a_recipe_is_shown_to_nobody(tmp_path: Path) -> None:
    tokens = {"hf_hub_token": "hf_SECRET", "wandb_api_key": "SECRET", "unknown": [{"password": "SECRET"}]}
    told = "\n".join(lines(read(tmp_path, {**FACTORY_SFT, **tokens})))
    assert "hf_hub_token: (not shown)" in told
    assert "SECRET" not in told
    studio = {**STUDIO, "training": {**STUDIO["training"], "hf_token": "hf_SECRET"}}
    assert "SECRET" not in "\n".join(lines(read(tmp_path, studio)))


@pytest.mark.parametrize(("keys", "ours"), [
    ({"mask_history": True, "train_on_prompt": False}, ("data.train_on", "last_answer")),
    ({"train_on_prompt": True, "mask_history": False}, ("data.train_on", "everything")),
    ({"packing": True, "neat_packing": False}, ("train.packing", True)),
])  # fmt: skip
def test_a_switch_that_is_off_takes_nothing_back(keys: dict[str, bool], ours: tuple[str, Any], tmp_path: Path) -> None:
    assert read(tmp_path, {**FACTORY_SFT, **keys}).values[ours[0]] == ours[1]
