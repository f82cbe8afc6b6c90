"""The plain side: transformers' Trainer over peft's model, with its own loss from logits (normalised over the trained
tokens of a step, ``num_items_in_batch``), mixed precision and gradient checkpointing.

Each step has the rows of the fast side in the same order, padded to the longest of their batch or packed with positions
from 0 each.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import PrinterCallback, Trainer, TrainingArguments

from core.bench.setting import Setting
from core.model.attention.packed import NAME, bounds_mask
from core.model.layers.peft_bnb import base_causal_model
from core.train.step.batches import pack, pad
from core.train.step.rows import TextRows


class PlainTrainer(Trainer):
    """A Trainer with given batches that keeps its losses, as tensors: reading one would synchronise with the card."""

    batches: DataLoader[Any]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.part_losses: list[torch.Tensor] = []
        self.grad_norms: list[float | None] = []

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The given batches."""
        return self.batches

    def training_step(self, *inputs: Any, **options: Any) -> torch.Tensor:
        """Keeps the returned loss, which is the batch's share of the step's mean."""
        loss: torch.Tensor = super().training_step(*inputs, **options)
        self.part_losses.append(loss.detach())
        return loss

    def log(self, logs: dict[str, float], *_: Any) -> None:
        """Keeps the gradient norm of each step."""
        if "loss" in logs:
            self.grad_norms.append(logs.get("grad_norm"))

    def compute_loss(self, model: Any, inputs: dict[str, Any], *rest: Any, **options: Any) -> Any:
        """Where the attention reads row bounds, hides the missing mask, so that no T×T mask is built."""
        if "cu_seq_lens_q" in inputs and base_causal_model(self.model).config._attn_implementation == NAME:
            inputs = {**inputs, "attention_mask": bounds_mask(inputs["input_ids"].device)}
        return super().compute_loss(model, inputs, *rest, **options)

    def losses(self) -> list[float]:
        """Mean loss of each step."""
        parts = torch.stack(self.part_losses).double()
        a_step = self.args.gradient_accumulation_steps
        return [float(value) for value in parts.view(-1, a_step).sum(1)]

    def held_out_loss(self, rows: TextRows, collate: Any) -> float | None:
        """Mean loss over the trained tokens of ``rows``; None without rows."""
        if not len(rows):
            return None
        model, size = self.model, self.args.per_device_train_batch_size
        weight, total = sum(rows.weight(row) for row in range(len(rows))), 0.0
        model.eval()
        with torch.no_grad(), self.compute_loss_context_manager():
            for first in range(0, len(rows), size):
                batch = self._prepare_inputs(collate(rows, range(first, min(first + size, len(rows)))))
                total += float(model(**batch, num_items_in_batch=weight).loss)
        model.train()
        return total


def plain_trainer(
    setting: Setting,
    peft_model: Any,
    rows: TextRows,
    dealt: Sequence[Sequence[int]],
    arguments: dict[str, Any],
    dtype: torch.dtype,
) -> PlainTrainer:
    """The Trainer around a PeftModel.

    Args:
        dealt: the rows of each step.
        arguments: the fast side's; batch, accumulation, mixed precision and checkpointing are replaced.
    """
    on_card = not arguments["use_cpu"]
    recompute = setting.checkpointing == "recompute"
    settings = {
        **arguments,
        "per_device_train_batch_size": setting.batch,
        "gradient_accumulation_steps": setting.accumulation,
        "gradient_checkpointing": recompute,
        "bf16": on_card and dtype == torch.bfloat16,
        "fp16": on_card and dtype == torch.float16,
        **({"gradient_checkpointing_kwargs": {"use_reentrant": False}} if recompute else {}),
    }
    trainer = PlainTrainer(model=peft_model, args=TrainingArguments(**settings))
    trainer.remove_callback(PrinterCallback)
    order = [row for step in dealt for row in step]
    trainer.batches = DataLoader(
        order,  # type: ignore[arg-type] # any sequence will do
        batch_size=setting.batch,
        shuffle=False,
        collate_fn=partial(collate(setting), rows),
        pin_memory=on_card,
    )
    return trainer


def collate(setting: Setting) -> Any:
    """Makes a batch on the host of row numbers; the Trainer moves it to the card."""
    host = torch.device("cpu")
    if setting.packed:
        return lambda rows, chosen: pack([rows.sequences(row)[0] for row in chosen], host)
    return lambda rows, chosen: pad([rows.sequences(row)[0] for row in chosen], 0, host)


def plain_lines(setting: Setting, peft_model: Any) -> list[str]:
    """What runs, as lines for people."""
    return [
        "plain: transformers' Trainer, peft's layers" + (", norms, embedding and head in float32" * setting.upcast),
        f"attention: transformers' {base_causal_model(peft_model).config._attn_implementation}",
        "loss: transformers' own, from logits",
        f"activations: {'recomputed in every layer' if setting.checkpointing == 'recompute' else 'kept'}",
        f"batches: {setting.batch} rows {'one after another' if setting.packed else 'padded'} × {setting.accumulation}",
    ]
