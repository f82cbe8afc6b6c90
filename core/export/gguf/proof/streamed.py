"""transformers' own layers over finished weights, one layer in memory at a time: hidden states of a few rows, logits,
losses, and what flows into each matrix, for models that are larger than the memory.

The model is built without weights. Each row is sent through it with layers that only note how they are called; then
each layer gets its weights, and every row goes through it as noted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from core.export.weights import FinishedWeights
from core.models.families import head_of

Hidden = list[torch.Tensor]
"""``[T, D]`` float32 of each row, behind the last norm."""
_LEAST = 1e-6
"""Of the mean: what an input that never flows weighs."""


@dataclass
class Flow:
    """Sums of squares of what flows into each matrix ``[in]``, by its name."""

    sums: dict[str, torch.Tensor] = field(default_factory=dict)
    tokens: int = 0

    def weighings(self) -> dict[str, NDArray[np.float32]]:
        """The mean of squares for each input."""
        means = {name: values / max(self.tokens, 1) for name, values in self.sums.items()}
        return {name: values.clamp_min(float(values.mean()) * _LEAST).numpy() for name, values in means.items()}

    def noting(self, name: str) -> Callable[[nn.Module, tuple[torch.Tensor, ...]], None]:
        """A hook for a linear layer."""

        def note(_module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            squares = inputs[0].float().square().flatten(0, -2).sum(0)
            self.sums[name] = self.sums[name] + squares if name in self.sums else squares

        return note


class _Noted(nn.Module):
    """Stands in a layer's place, and notes how it is called."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.attention_type = getattr(layer, "attention_type", None)
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def forward(self, hidden: torch.Tensor, *places: Any, **named: Any) -> torch.Tensor:
        """The hidden states as they came."""
        self.calls.append((places, named))
        return hidden


class Streamed:
    """A model of one's finished weights. ``check`` is called between layers, and may raise."""

    def __init__(self, config: Any, weights: FinishedWeights, check: Callable[[], None]) -> None:
        from accelerate import init_empty_weights
        from transformers import AutoModelForCausalLM

        self._config, self._weights, self._check = config, weights, check
        with init_empty_weights(include_buffers=False):
            model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
        self._inner = model.eval().model
        self._head = "lm_head.weight"
        if config.tie_word_embeddings or self._head not in weights.entries:
            self._head = "model.embed_tokens.weight"

    @torch.no_grad()
    def hidden(self, rows: Sequence[Sequence[int]], flow: Flow | None = None) -> Hidden:
        """The last hidden states of each row; ``flow`` collects what flows into every matrix of the layers."""
        layers = list(self._inner.layers)
        noted = [_Noted(layer) for layer in layers]
        states = self._embedded(rows, noted)
        for number, layer in enumerate(layers):
            self._check()
            prefix = f"model.layers.{number}."
            hooks = self._filled(layer, prefix, flow)
            for place, (places, named) in enumerate(noted[number].calls):
                made = layer(states[place], *places, **named)
                states[place] = made[0] if isinstance(made, tuple) else made
            for hook in hooks:
                hook.remove()
            layer.to("meta")
        if flow:
            flow.tokens += sum(len(row) for row in rows)
        self._filled(self._inner.norm, "model.norm.", None)
        return [self._inner.norm(state)[0] for state in states]

    def _embedded(self, rows: Sequence[Sequence[int]], noted: list[_Noted]) -> list[torch.Tensor]:
        """Rows sent through the model with noting layers. The embedding holds the rows' own tokens alone."""
        own = sorted({token for row in rows for token in row})
        places = {token: place for place, token in enumerate(own)}
        table = torch.cat([self._weights.rows("model.embed_tokens.weight", token, token + 1) for token in own])
        embedding, layers, norm = self._inner.embed_tokens, self._inner.layers, self._inner.norm
        embedding.register_parameter("weight", nn.Parameter(table, requires_grad=False))
        embedding.padding_idx = None
        self._inner.layers, self._inner.norm = nn.ModuleList(noted), nn.Identity()
        try:
            ids = [torch.tensor([[places[token] for token in row]]) for row in rows]
            return [self._inner(input_ids=one, use_cache=False).last_hidden_state for one in ids]
        finally:
            self._inner.layers, self._inner.norm = layers, norm

    def _filled(self, module: nn.Module, prefix: str, flow: Flow | None) -> list[Any]:
        names = [name for name, _ in module.named_parameters()]
        module.load_state_dict({name: self._weights.rows(prefix + name) for name in names}, assign=True)
        if flow is None:
            return []
        linears = [(name, part) for name, part in module.named_modules() if isinstance(part, nn.Linear)]
        return [part.register_forward_pre_hook(flow.noting(f"{prefix}{name}.weight")) for name, part in linears]

    @torch.no_grad()
    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """``[P, V]`` float32 of hidden states ``[P, D]``."""
        return torch.cat([self._through(states, block) for block in self._weights.blocks(self._head)], 1)

    @torch.no_grad()
    def scored(self, states: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of each target ``[P]`` its loss in nats, and by how much its logit is behind the largest; logits of all
        tokens are never in memory at once."""
        most = torch.full((len(targets),), -torch.inf)
        summed, chosen, start = torch.zeros(len(targets)), torch.zeros(len(targets)), 0
        for block in self._weights.blocks(self._head):
            logits = self._through(states, block)
            top = torch.maximum(most, logits.amax(1))
            summed = summed * (most - top).exp() + (logits - top[:, None]).exp().sum(1)
            most, stop = top, start + len(block)
            here = ((targets >= start) & (targets < stop)).nonzero()[:, 0]
            chosen[here] = logits[here, targets[here] - start]
            start = stop
        return most + summed.log() - chosen, most - chosen

    def _through(self, states: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
        """Logits ``[P, rows]`` by some rows of the head."""
        head = head_of(self._config)
        assert head is not None
        made = states @ block.T * head.scale
        return head.softcap * torch.tanh(made / head.softcap) if head.softcap else made


def weighings_of(model: Streamed, rows: Sequence[Sequence[int]]) -> Mapping[str, NDArray[np.float32]]:
    """How much each input of each matrix matters on these rows: the importance matrix."""
    flow = Flow()
    model.hidden(rows, flow)
    return flow.weighings()
