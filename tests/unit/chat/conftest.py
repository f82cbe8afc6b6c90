"""A run of the built-in model with one checkpoint, whose adapter says something else than the base."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.contract.config import RunConfig
from core.machine.locations import ASSETS, Locations
from core.runs.folder.run_yaml import dump_config

RUN = "2026-11-20_2243_chat_k3f9"


def make_adapter(folder: Path, seed: int = 1) -> None:
    """An adapter with B drawn at random: what it says is nonsense, but not the base's."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    base = AutoModelForCausalLM.from_pretrained(ASSETS / "starter", dtype=torch.float32)
    model = get_peft_model(
        base, LoraConfig(r=8, lora_alpha=256, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    )
    model.save_pretrained(str(folder), save_embedding_layers=False)


@pytest.fixture(scope="session")
def chat_home(tmp_path_factory: pytest.TempPathFactory) -> Locations:
    """A root folder with one run in it."""
    locations = Locations(tmp_path_factory.mktemp("home")).make()
    folder = locations.runs / RUN
    make_adapter(folder / "checkpoints" / "step-000002" / "adapter")
    (folder / "checkpoints" / "step-000002" / "MANIFEST.json").write_text(json.dumps({"files": {}}))
    (folder / "run.yaml").write_text(dump_config(chat_config()), encoding="utf-8")
    (folder / "events.jsonl").touch()
    return locations


def chat_config() -> RunConfig:
    """16 bits are asked for by name: on the CPU that is float32."""
    raw = RunConfig().model_dump()
    raw["model"].update(quantization="none", dtype="float32")
    raw["data"].update(path=str(ASSETS / "samples" / "instruction.jsonl"), layout="alpaca")
    return RunConfig.model_validate(raw)


@pytest.fixture(scope="session")
def config() -> RunConfig:
    return chat_config()


@pytest.fixture(scope="session")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Folders of adapters over the starter that differ, more than stay loaded."""
    folders = [tmp_path_factory.mktemp("adapter") / str(seed) for seed in range(6)]
    for seed, folder in enumerate(folders):
        make_adapter(folder, seed)
    return list(map(str, folders))


@pytest.fixture(scope="session")
def run_folder(chat_home: Locations) -> Path:
    return chat_home.runs / RUN
