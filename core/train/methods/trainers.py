"""TRAINERS: for each method its trainer, made from the recipe; a library that only one of them wants comes with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.contract.config import RunConfig
from core.contract.methods import Method
from core.model.attention.packed import NAME as PACKED_ATTENTION
from core.model.layers.loss import LossModel
from core.train.methods.sft import text_trainer

__all__ = ["TRAINERS"]


def _sft(config: RunConfig, peft_model: Any, settings: dict[str, Any], tokenizer: Any) -> tuple[Any, str]:
    loss_model = LossModel(peft_model)
    trainer = text_trainer(loss_model, settings, tokenizer.pad_token_id)
    trainer.packed = config.packed and peft_model.config._attn_implementation == PACKED_ATTENTION
    return trainer, loss_model.line


def _dpo(config: RunConfig, peft_model: Any, settings: dict[str, Any], tokenizer: Any) -> tuple[Any, str]:
    from core.train.methods.dpo import preference_trainer  # brings TRL along

    goes_on = bool(config.resume_from)
    trainer = preference_trainer(peft_model, settings, config, tokenizer, goes_on)
    how, reference = "the formula" if trainer.textbook else "TRL's", "the adapter as it came" if goes_on else "the base"
    return trainer, f"loss: DPO, {how}; reference: {reference}"


TRAINERS: dict[Method, Callable[[RunConfig, Any, dict[str, Any], Any], tuple[Any, str]]] = {"sft": _sft, "dpo": _dpo}
"""Config, peft model, ``TrainingArguments`` as a dict and tokenizer to the trainer, and a line that says which loss."""
