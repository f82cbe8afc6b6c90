"""TRAINERS: the maker of each method's trainer."""

from collections.abc import Callable
from typing import Any

from core.contract.config import RunConfig
from core.contract.methods import Method
from core.model.adapters import Trained
from core.model.layers.loss import LossModel
from core.train.methods.sft import TextTrainer
from core.train.step.trainer import Batches

Maker = Callable[[RunConfig, Trained, dict[str, Any], Batches, Any], tuple[Any, str]]


def _sft(
    _config: RunConfig, trained: Trained, settings: dict[str, Any], batches: Batches, tokenizer: Any
) -> tuple[Any, str]:
    loss_model = LossModel(trained.model, trained.parameters)
    return TextTrainer(loss_model, trained, settings, batches, tokenizer.pad_token_id), loss_model.line


def _dpo(
    config: RunConfig, trained: Trained, settings: dict[str, Any], batches: Batches, tokenizer: Any
) -> tuple[Any, str]:
    from core.train.methods.dpo import PreferenceTrainer  # imports TRL

    trainer = PreferenceTrainer(trained, settings, config, batches, tokenizer)
    how = "the formula" if trainer.textbook else "TRL's"
    reference = "the adapter as it came" if config.resume_from else "the base"
    return trainer, f"loss: DPO, {how}; reference: {reference}"


TRAINERS: dict[Method, Maker] = {"sft": _sft, "pretrain": _sft, "dpo": _dpo}
"""From config, trained model, ``TrainingArguments`` as a dict, batches and tokenizer to the trainer and the plan's line
on its loss."""
