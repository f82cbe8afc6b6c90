"""DPO (Rafailov et al. 2023, arXiv:2305.18290): ``StepTrainer`` over TRL's DPOTrainer, of which loss and collator are
used.

The reference is the model without the adapter or, with ``resume_from``, a frozen copy of that adapter. Only a run of
DPO imports this.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from datasets import Dataset
from torch.nn import functional
from trl import DPOConfig, DPOTrainer
from trl.trainer.dpo_trainer import DataCollatorForPreference

from core.contract.config import RunConfig
from core.model.adapters import Trained
from core.train.step.rows import IGNORED, PairRows
from core.train.step.trainer import OURS, Batches, StepTrainer

_TOLD = {"margin": "rewards/margins", "accuracy": "rewards/accuracies"}
"""TRL's names of these; it keeps the mean over a micro-batch."""


class PreferenceTrainer(StepTrainer, DPOTrainer):
    """DPO. TRL's mean over the pairs of a micro-batch, times their number, is the sum that ``pass_loss`` returns."""

    measures = tuple(_TOLD)

    def __init__(
        self, trained: Trained, settings: dict[str, Any], config: RunConfig, batches: Batches, tokenizer: Any
    ) -> None:
        """Undoes two things of TRL's: the frozen copy ``ref`` of a fresh adapter, which adds nothing to the base, and
        the cast of a quantised model's adapter to bfloat16.
        """
        precise = [(parameter, parameter.data) for parameter in trained.parameters]
        self.textbook = config.train.kernels == "plain"
        """TRL's log-probabilities need Triton on a card; without a compiler the formula in PyTorch is used."""
        super().__init__(
            trained,
            batches,
            settings["max_grad_norm"],
            model=trained.model,
            args=DPOConfig(
                **{**settings, **OURS},
                beta=config.train.beta,
                max_length=config.train.max_length,
                # TRL switches recomputing off for the reference's forward and on again with these options.
                gradient_checkpointing_kwargs={"use_reentrant": False},
            ),
            train_dataset=Dataset.from_list([{"prompt_ids": [0], "chosen_ids": [0], "rejected_ids": [0]}]),  # its type
            processing_class=tokenizer,
            data_collator=DataCollatorForPreference(tokenizer.pad_token_id, config.train.max_length),
        )
        if not config.resume_from:
            trained.drop_reference()
        for parameter, data in precise:
            parameter.data = data

    def pass_loss(self, model: Any, rows: PairRows, chosen: Sequence[int]) -> torch.Tensor:
        """One padded micro-batch of both sides."""
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
        means = {key: values[-1] for told in self._metrics.values() for key, values in told.items() if values}
        for told in self._metrics.values():
            told.clear()  # TRL keeps them until they are logged
        self.measure([means.get(_TOLD[name], math.nan) * len(pairs) for name in self.measures])
        return loss

    def compute_loss(self, model: Any, inputs: dict[str, torch.Tensor], *rest: Any, **options: Any) -> Any:
        """Mean over the pairs of ``-log σ(β ((π_c - ρ_c) - (π_r - ρ_r)))``, π and ρ log-probabilities of answers."""
        if not self.textbook:
            return super().compute_loss(model, inputs, *rest, **options)
        policy = _answer_log_probabilities(model, inputs)
        with torch.no_grad(), self.trained.reference():
            reference = _answer_log_probabilities(self.model, inputs)
        chosen, rejected = (policy - reference).chunk(2)
        margins = self.beta * (chosen - rejected)
        told = self._metrics["train"]
        told[_TOLD["margin"]].append(margins.detach().mean())
        told[_TOLD["accuracy"]].append((margins.detach() > 0).float().mean())
        return -functional.logsigmoid(margins).mean()

    def _prepare_dataset(self, dataset: Any, *_arguments: Any, **_options: Any) -> Any:
        """Rows come tokenised, and not through a dataset."""
        return dataset

    def _send_telemetry(self) -> None:
        """Nothing leaves this machine."""


def _answer_log_probabilities(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """``[rows]``: log-probability of each row's answer; row by row, to hold float32 logits of one only."""
    logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False).logits
    labels = inputs["input_ids"].masked_fill(inputs["completion_mask"] == 0, IGNORED)
    losses = [
        functional.cross_entropy(row[:-1].float(), target[1:], ignore_index=IGNORED, reduction="sum")
        for row, target in zip(logits, labels, strict=True)
    ]
    return -torch.stack(losses)
