"""SFT on transformers' Trainer, DPO on TRL's DPOTrainer, each with the same mixin of ours before it.

SFT stands on the plain Trainer since TRL's SFTTrainer puts its own head, collator and metrics where ours are. DPO
keeps TRL's loss (Rafailov et al. 2023, arXiv:2305.18290) and its collator; rows come tokenised as the preview shows
them. Its reference is the model without the adapter, or, where a run goes on from another's adapter, a frozen copy of
that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import AutocastKwargs
from datasets import Dataset
from torch.nn import functional
from transformers import PrinterCallback, Trainer, TrainingArguments
from trl import DPOConfig, DPOTrainer
from trl.trainer.dpo_trainer import DataCollatorForPreference
from trl.trainer.utils import use_adapter

from core.contract.config import RunConfig
from core.model.adapters import trainable
from core.train.mixin import StepEnd, WindowTrainer
from core.train.passes import IGNORED, pack, pad
from core.train.rows import PairRows, TextRows

__all__ = [
    "PreferenceTrainer",
    "TextTrainer",
    "arguments",
    "passes_line",
    "preference_trainer",
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


class PreferenceTrainer(WindowTrainer, DPOTrainer):
    """DPO. TRL's loss is a mean over the pairs of a pass; times their number it is the sum that the mixin wants."""

    packed = False
    textbook = False
    """TRL's own log-probabilities are Triton kernels on a card; without a compiler there the formula stands in."""

    def pass_loss(self, model: Any, rows: PairRows, chosen: Sequence[int]) -> torch.Tensor:
        """One padded pass of both sides."""
        pairs = [
            {
                "prompt_ids": rows.prompts[row].tolist(),
                "chosen_ids": rows.chosen[row].tolist(),
                "rejected_ids": rows.rejected[row].tolist(),
            }
            for row in chosen
        ]
        batch = {name: value.to(self.args.device) for name, value in self.data_collator(pairs).items()}
        loss: torch.Tensor = self.compute_loss(model, batch) * len(pairs)
        for metrics in self._metrics.values():
            metrics.clear()  # TRL keeps every pass's numbers until somebody logs them
        return loss

    def compute_loss(self, model: Any, inputs: dict[str, torch.Tensor], *rest: Any, **options: Any) -> Any:
        """Mean over the pairs of ``-log σ(β ((π_c - ρ_c) - (π_r - ρ_r)))``, π and ρ log-probabilities of answers."""
        if not self.textbook:
            return super().compute_loss(model, inputs, *rest, **options)
        policy = _answer_log_probabilities(model, inputs)
        frozen = self.accelerator.unwrap_model(self.model)
        with torch.no_grad(), use_adapter(frozen, "ref" if "ref" in frozen.peft_config else None):
            reference = _answer_log_probabilities(self.model, inputs)
        chosen, rejected = (policy - reference).chunk(2)
        return -functional.logsigmoid(self.beta * (chosen - rejected)).mean()

    def _prepare_dataset(self, dataset: Any, *_arguments: Any, **_options: Any) -> Any:
        """Rows come tokenised, and not through a dataset."""
        return dataset

    def _send_telemetry(self) -> None:
        """Nothing leaves this machine."""


def _answer_log_probabilities(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """``[rows]``: the log-probability of each row's answer; row by row, so that float32 logits are held of one only."""
    logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False).logits
    labels = inputs["input_ids"].masked_fill(inputs["completion_mask"] == 0, IGNORED)
    losses = [
        functional.cross_entropy(row[:-1].float(), target[1:], ignore_index=IGNORED, reduction="sum")
        for row, target in zip(logits, labels, strict=True)
    ]
    return -torch.stack(losses)


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
    return _quiet(trainer, settings)


def preference_trainer(
    peft_model: Any, settings: dict[str, Any], config: RunConfig, tokenizer: Any, keep_reference: bool
) -> PreferenceTrainer:
    """The DPO trainer around a PeftModel.

    TRL copies the adapter into a second, frozen one named ``ref`` and casts a quantised model's adapter to bfloat16.
    A fresh adapter adds nothing yet, so its copy goes and the reference is the model without it, bit for bit; and the
    adapter stays in float32, where small steps count.
    """
    precise = {name: parameter.data for name, parameter in trainable(peft_model)}
    trainer = PreferenceTrainer(
        model=peft_model,
        args=DPOConfig(
            **{**settings, **OURS},
            beta=config.train.beta,
            max_length=config.train.max_length,
            # TRL switches recomputing off for the reference's pass and on again after it, with these words.
            gradient_checkpointing_kwargs={"use_reentrant": False},
        ),
        train_dataset=Dataset.from_list([{"prompt_ids": [0], "chosen_ids": [0], "rejected_ids": [0]}]),  # for its type
        processing_class=tokenizer,
        data_collator=DataCollatorForPreference(tokenizer.pad_token_id, config.train.max_length),
    )
    if not keep_reference and "ref" in peft_model.peft_config:
        peft_model.delete_adapter("ref")
    for name, parameter in peft_model.named_parameters():
        if name in precise:
            parameter.data = precise[name]
    trainer.textbook = config.train.kernels == "plain"
    return _quiet(trainer, settings)


def _quiet(trainer: Any, settings: dict[str, Any]) -> Any:
    trainer.remove_callback(PrinterCallback)
    trainer.clip_norm = settings["max_grad_norm"]
    trainer.add_callback(StepEnd(trainer))
    if trainer.accelerator.scaler is not None:
        # The model computes in float16 as it is; of accelerate's mixed precision only the scaler is wanted.
        trainer.accelerator.autocast_handler = AutocastKwargs(enabled=False)
    return trainer
