"""Loads, makes and saves encoder classifiers, by transformers alone: safetensors only, no code of the model."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification

from core.contract.tasks import Outputs
from core.model.attention import packed
from core.model.loading.load import config_of, plain_words
from core.model.loading.weights import check_complete, quiet_bars
from core.models.encoders import encoder_of


def load_classifier(folder: Path, labels: Outputs | None, device: torch.device, seed: int = 0) -> Any:
    """A classifier with the weights of ``folder``, in float32; its head is drawn where the folder has none that fits.

    Args:
        folder: config.json and safetensors of an encoder, pretrained or a classifier already
            (``core.models.checks`` has been there).
        labels: what it shall give; None: what the folder's config says.
        seed: of what is drawn.

    Raises:
        ModelError: weights are missing outside the head, or not understood.
        MachineError: the weights do not fit in memory.
    """
    config = config_of(folder)
    for name, value in labels.settings().items() if labels else ():
        setattr(config, name, value)
    packed.register()
    with plain_words(folder), quiet_bars(lambda _done, _total: None), torch.random.fork_rng(_cards(device)):
        torch.manual_seed(seed)
        model, report = AutoModelForSequenceClassification.from_pretrained(
            str(folder), dtype=torch.float32, device_map={"": device}, attn_implementation=_attention(config),
            use_safetensors=True, trust_remote_code=False, local_files_only=True, output_loading_info=True,
            ignore_mismatched_sizes=True, config=config,
        )  # fmt: skip
    report = report if isinstance(report, dict) else report.to_dict()
    family = encoder_of(config)
    wrong = [*report["missing_keys"], *(key[0] for key in report["mismatched_keys"])]
    check_complete(folder, (name for name in wrong if family is None or not name.startswith(family.head)))
    return model


def new_classifier(config: Any, device: torch.device, seed: int = 0, attention: str = "") -> Any:
    """A classifier of this config with drawn weights, as transformers initialises them, in float32.

    Args:
        attention: of transformers' registry; empty: ours where the model's class takes it.
    """
    packed.register()
    with torch.random.fork_rng(_cards(device)):
        torch.manual_seed(seed)
        model = AutoModelForSequenceClassification.from_config(
            config, dtype=torch.float32, attn_implementation=attention or _attention(config), trust_remote_code=False
        )
    return model.to(device)


def _attention(config: Any) -> str:
    """Ours where the family's class takes its attention from transformers' registry."""
    family = encoder_of(config)
    return packed.NAME if family is not None and not family.relative else "eager"


def _cards(device: torch.device) -> list[int]:
    """Cards whose random state is put back."""
    return [device.index or 0] if device.type == "cuda" else []
