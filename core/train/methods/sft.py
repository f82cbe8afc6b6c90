"""SFT on transformers' Trainer with the mixin of ours before it, and what DPO's (``preference``) shares with it.

SFT stands on the plain Trainer since TRL's SFTTrainer puts its own head, collator and metrics where ours are. So TRL,
which takes a second to import, is left to DPO.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import AutocastKwargs
from transformers import PrinterCallback, Trainer, TrainingArguments

from core.contract.config import RunConfig
from core.train.step.micro_batches import pack, pad
from core.train.step.mixin import StepEnd, WindowTrainer
from core.train.step.rows import TextRows

__all__ = [
    "OURS",
    "TextTrainer",
    "arguments",
    "passes_line",
    "settled",
    "state_bytes",
    "text_trainer",
]


OURS: dict[str, Any] = {"max_grad_norm": 0.0, "logging_strategy": "no"}
"""What ``WindowTrainer`` does by itself: clipping over flat parameters, and the word on each step."""


class TextTrainer(WindowTrainer, Trainer):
    """SFT. What it wraps is a ``LossModel``, which returns the sum of token losses."""

    pad_id = 0
    _ahead: tuple[TextRows, list[int], dict[str, Any]] | None = None

    def pass_loss(self, model: Any, rows: TextRows, chosen: Sequence[int]) -> torch.Tensor:
        """One packed or padded pass."""
        ahead, batch = self._ahead, None
        if ahead and ahead[0] is rows and ahead[1] == list(chosen):
            batch, self._ahead = ahead[2], None
        loss: torch.Tensor = model(**(batch or self._batch(rows, chosen)))
        return loss

    def look_ahead(self, rows: TextRows, chosen: Sequence[int]) -> None:
        """Makes that pass's tensors and sends them off."""
        self._ahead = (rows, list(chosen), self._batch(rows, chosen))

    def forget_ahead(self) -> None:
        """The next pass's tensors go, too."""
        self._ahead = None

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Also tells the ``LossModel`` whose gradients there are to clear."""
        optimizer = super().create_optimizer(model)
        if self.flat:
            self.model.trained = tuple(self.flat.parameters)
        return optimizer

    def _batch(self, rows: TextRows, chosen: Sequence[int]) -> dict[str, Any]:
        device = self.args.device
        return pack(rows, chosen, device) if self.packed else pad(rows, chosen, self.pad_id, device)


def arguments(config: RunConfig, output: Path, total_steps: int, device: torch.device, dtype: str) -> dict[str, Any]:
    """The recipe as TrainingArguments. Saving and evaluating are ours, so the Trainer's own are off."""
    train = config.train
    optim = train.optim if train.optim != "auto" else ("adamw_8bit" if device.type == "cuda" else "adamw_torch")
    return {
        "output_dir": str(output),
        "per_device_train_batch_size": config.rows_per_step,
        "gradient_accumulation_steps": 1,
        "max_steps": total_steps,
        "learning_rate": train.learning_rate,
        "lr_scheduler_type": train.lr_scheduler_type,
        "warmup_steps": train.warmup_steps,
        "weight_decay": train.weight_decay,
        "max_grad_norm": train.max_grad_norm,
        "optim": optim,
        "seed": train.seed,
        "fp16": dtype == "float16" and device.type == "cuda",
        "bf16": False,
        "use_cpu": device.type == "cpu",
        "gradient_checkpointing": False,
        "logging_strategy": "steps",
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "eval_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "remove_unused_columns": False,
    }


def state_bytes(optim: str) -> int:
    """What an optimiser keeps of each trained number: two moments, of one byte or of four."""
    return 2 if optim == "adamw_8bit" else 8


def passes_line(trainer: WindowTrainer) -> str:
    """How rows come together in a pass, said to a person."""
    how = "packed without padding" if trainer.packed else "padded"
    return f"passes: {how}, up to {trainer.tokens_per_pass:,} tokens each"


def text_trainer(loss_model: Any, settings: dict[str, Any], pad_id: int) -> TextTrainer:
    """The SFT trainer around a ``LossModel``."""
    trainer = TextTrainer(model=loss_model, args=TrainingArguments(**{**settings, **OURS}))
    trainer.pad_id = pad_id
    return settled(trainer, settings)


def settled(trainer: Any, settings: dict[str, Any]) -> Any:
    """A fresh trainer with what ``WindowTrainer`` does by itself switched over to it."""
    trainer.remove_callback(PrinterCallback)
    trainer.clip_norm = settings["max_grad_norm"]
    trainer.add_callback(StepEnd(trainer))
    if trainer.accelerator.scaler is not None:
        # The model computes in float16 as it is; of accelerate's mixed precision only the scaler is wanted.
        trainer.accelerator.autocast_handler = AutocastKwargs(enabled=False)
    return trainer
