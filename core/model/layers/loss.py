"""Token losses, as a module over backbone and head: what every method's loss is made of (``core.train.methods``).

Token t's hidden state is scored against label t + 1. Labels of -100, tokens after padding, and the first token of a row
(its position is 0) are no targets. Minus a loss is the log-probability of that target.

Head and cross-entropy are one op that never holds all logits (``core.kernels.linear_cross_entropy``), whether the head
is frozen or trained, on the card or in host memory. Where it is adapted or quantised, or the model is not in
``families``, the model makes the logits, at the cost of memory.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from core.kernels import reference
from core.kernels.linear_cross_entropy import cross_entropy_in_tiles, linear_cross_entropy
from core.model.attention.packed import NAME, bounds_mask
from core.model.layers.peft_bnb import base_causal_model, is_plain_linear
from core.model.streaming.head import host_head_of
from core.models.families import Head, head_of


class TrainedModel(nn.Module):
    """Wraps a model, with or without peft's wrapper.

    ``trained`` are the parameters that get gradients: clearing them needs no walk through all modules.
    """

    def __init__(self, model: nn.Module, trained: Sequence[nn.Parameter] = ()) -> None:
        super().__init__()
        self.model, self._trained = model, tuple(trained)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients."""
        if not self._trained or not set_to_none:
            super().zero_grad(set_to_none)
            return
        for parameter in self._trained:
            parameter.grad = None


class LossModel(TrainedModel):
    """Of a causal language model, with or without peft's wrapper."""

    def __init__(self, model: nn.Module, trained: Sequence[nn.Parameter] = (), plain: bool = False) -> None:
        super().__init__(model, trained)
        base = base_causal_model(model)
        self._head, self.reason = (None, "from logits") if plain else _readable_head(base)
        streams = host_head_of(base.get_output_embeddings()) is not None
        self._pieces = "the head tile by tile from the machine's memory" if streams else "chunk by chunk"

    @property
    def line(self) -> str:
        """What computes the loss, for people."""
        if self._head is None:
            return f"loss: plain ({self.reason})"
        return f"loss: head and cross-entropy in one, {self._pieces}"

    def forward(
        self,
        input_ids: torch.Tensor,
        labels: torch.Tensor,
        position_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        **bounds: Any,
    ) -> torch.Tensor:
        """Losses ``[batch, T]`` in float32, 0 where there is no target.

        Args:
            input_ids: ``[batch, T]``; packed rows are a batch of one.
            labels: ``[batch, T]``, unshifted, -100 where nothing is trained.
            position_ids: ``[batch, T]``, starting at 0 in every packed row.
            attention_mask: ``[batch, T]``, 0 on padding.
            bounds: ``cu_seq_lens_q``, ``cu_seq_lens_k`` (int32 ``[rows + 1]``), ``max_length_q``, ``max_length_k``.
        """
        targets = shift_labels(labels, position_ids, attention_mask)
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "position_ids": position_ids, **bounds}
        inputs = {name: value for name, value in inputs.items() if value is not None}
        base = base_causal_model(self.model)
        if "cu_seq_lens_q" in inputs and base.config._attn_implementation == NAME:
            inputs["attention_mask"] = bounds_mask(input_ids.device)
        if self._head is None:
            logits = base(**inputs, use_cache=False).logits
            return reference.cross_entropy(logits.flatten(0, 1), targets.flatten()).view(targets.shape)
        hidden = base.base_model(**inputs, use_cache=False).last_hidden_state
        module, shape, formula = base.get_output_embeddings(), targets.shape, (self._head.scale, self._head.softcap)
        hidden, targets = hidden.flatten(0, 1).to(module.weight.dtype), targets.flatten()

        def losses_of(some: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            if (on_host := host_head_of(module)) is not None:
                return cross_entropy_in_tiles(some, on_host.tiles, labels, *formula)
            return linear_cross_entropy(some, module.weight, labels, *formula)

        if hidden.device.type != "cpu":
            return losses_of(hidden, targets).view(shape)
        kept = targets != reference.IGNORED  # on a card this count would synchronise
        losses = losses_of(hidden[kept], targets[kept])
        return losses.new_zeros(len(targets)).masked_scatter(kept, losses).view(shape)


def shift_labels(
    labels: torch.Tensor, position_ids: torch.Tensor | None = None, attention_mask: torch.Tensor | None = None
) -> torch.Tensor:
    """``[batch, T]``: at t the token to predict, -100 where there is none; see the module."""
    targets = torch.full_like(labels, reference.IGNORED)
    targets[:, :-1] = labels[:, 1:]
    if position_ids is not None:
        targets[:, :-1].masked_fill_((position_ids[:, 1:] == 0).expand_as(targets[:, 1:]), reference.IGNORED)
    if attention_mask is not None:
        targets[:, :-1].masked_fill_(attention_mask[:, :-1] == 0, reference.IGNORED)
    return targets


def _readable_head(base: Any) -> tuple[Head | None, str]:
    head = head_of(base.config)
    if head is None:
        return None, f"model type {getattr(base.config, 'model_type', 'unknown')} is not in the table of families"
    module = base.get_output_embeddings()
    if module is None or not (is_plain_linear(module) or host_head_of(module)):
        return None, "lm_head is adapted or quantised"
    if module.bias is not None:
        return None, "lm_head has a bias"
    return head, ""
