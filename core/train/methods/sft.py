"""SFT: ``StepTrainer`` over transformers' Trainer; and the ``TrainingArguments`` of every method.

Not over TRL's trainers, whose heads, collators and metrics would replace ours, and which take a second to import: they
are what tests compare with.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import Trainer, TrainingArguments

from core.contract.config import RunConfig
from core.contract.optimisers import MATRICES, OPTIMISERS, chosen_optimiser
from core.model.adapters import Trained
from core.train.step.batches import pack, pad
from core.train.step.rows import Rows, Tokens
from core.train.step.trainer import OURS, Batches, StepTrainer


class Micro(NamedTuple):
    """A micro-batch: what the model reads, side by side, and the tensors of it on the device."""

    sequences: list[Tokens]
    tensors: dict[str, Any]


class TextTrainer(StepTrainer, Trainer):
    """SFT over a ``LossModel``: the sum of its token losses."""

    def __init__(
        self, loss_model: Any, trained: Trained, settings: dict[str, Any], batches: Batches, pad_id: int
    ) -> None:
        self._pad_id = pad_id
        self._ahead: tuple[Rows, list[int], Micro] | None = None
        recipe = TrainingArguments(**{**settings, **OURS})
        super().__init__(trained, batches, settings["max_grad_norm"], model=loss_model, args=recipe)

    def pass_loss(self, model: Any, rows: Rows, chosen: Sequence[int]) -> torch.Tensor:
        """One packed or padded micro-batch."""
        loss: torch.Tensor = model(**self.micro_batch(rows, chosen).tensors).sum()
        return loss

    def sequences(self, rows: Rows, chosen: Sequence[int]) -> list[Tokens]:
        """What the model reads of these rows."""
        return [sequence for row in chosen for sequence in rows.sequences(row)]

    def micro_batch(self, rows: Rows, chosen: Sequence[int]) -> Micro:
        """A micro-batch, made now or ahead."""
        ahead = self._ahead
        if ahead and ahead[0] is rows and ahead[1] == list(chosen):
            self._ahead = None
            return ahead[2]
        sequences = self.sequences(rows, chosen)
        return Micro(sequences, self.tensors(sequences))

    def look_ahead(self, rows: Rows, chosen: Sequence[int]) -> None:
        """Makes that micro-batch and starts the copy of its tensors to the device."""
        self._ahead = (rows, list(chosen), self.micro_batch(rows, chosen))

    def forget_ahead(self) -> None:
        """Frees the next micro-batch."""
        self._ahead = None

    def tensors(self, sequences: Sequence[Tokens]) -> dict[str, Any]:
        """Sequences packed or padded, on the device."""
        device = self.args.device
        return pack(sequences, device) if self.packed else pad(sequences, self._pad_id, device)


def arguments(config: RunConfig, output: Path, total_steps: int, device: torch.device, dtype: str) -> dict[str, Any]:
    """The recipe as TrainingArguments; saving and evaluating are done here, so the Trainer's are off."""
    train = config.train
    optim = chosen_optimiser(train.optim, gpu=device.type == "cuda")
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
        "optim": OPTIMISERS[optim].others or optim,
        "optim_args": f"{MATRICES}{optim}" if OPTIMISERS[optim].others else None,
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


def passes_line(trainer: StepTrainer) -> str:
    """The plan's line on micro-batches."""
    how = "packed without padding" if trainer.packed else "padded"
    if trainer.packed and trainer.rows.sides > 1:
        how += ", a pair's prompt read once"
    return f"passes: {how}, up to {trainer.tokens_per_pass:,} tokens each"
