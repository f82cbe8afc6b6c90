"""NEFTune: noise on the embeddings of what is trained (Jain et al. 2023, arXiv:2310.05914)::

    e[t, d] + u · α / √(L D)        u uniform in [-1, 1), L the row's own length, D the embedding's width

Each row's noise is drawn from (seed, step, row) alone: a resume, a repetition and every cut into micro-batches have the
same. Where two answers share a prompt that is read once, it has the first one's. There is none where no gradient is
computed: held-out rows, samples, references.
"""

import hashlib
from typing import Any

import torch
from torch import nn

from core.model.layers.peft_bnb import base_causal_model


def add_noise(trainer: Any, alpha: float, seed: int) -> tuple[str, ...]:
    """Adds noise to the embeddings of ``trainer``'s model, under hooks; lines for the plan. ``alpha`` 0: none."""
    if not alpha:
        return ()
    base, noise = base_causal_model(trainer.trained.model), _Noise(trainer, alpha, seed)
    base.base_model.register_forward_pre_hook(noise.see_bounds, with_kwargs=True)
    base.get_input_embeddings().register_forward_hook(noise.add)
    return (f"embeddings: NEFTune noise of alpha {alpha:g} while training",)


class _Noise:
    """The hooks: one sees where rows end, the other adds their noise."""

    def __init__(self, trainer: Any, alpha: float, seed: int) -> None:
        self._trainer, self._alpha, self._seed = trainer, alpha, seed
        self._packed = False

    def see_bounds(self, _backbone: nn.Module, _inputs: Any, named: dict[str, Any]) -> None:
        """Notes whether sequences lie end to end, or one on each line."""
        self._packed = "cu_seq_lens_q" in named

    def add(self, embedding: nn.Module, _inputs: Any, embedded: torch.Tensor) -> torch.Tensor:
        """``[batch, T, D]`` with its noise."""
        if not embedding.training or not torch.is_grad_enabled():
            return embedded
        noise, start = torch.zeros_like(embedded), 0
        generator = torch.Generator(embedded.device)
        rows = self._trainer.rows
        sides = [
            (row, side, length) for row in self._trainer.in_pass for side, length in enumerate(rows.side_lengths(row))
        ]
        for number, (row, side, length) in enumerate(sides):
            shared = rows.shared(row) if self._packed and side else 0
            drawn = noise.new_empty(length, noise.shape[2])
            generator.manual_seed(self._seed_of(row, side))
            most = self._alpha / (length * embedded.shape[2]) ** 0.5
            drawn.uniform_(-most, most, generator=generator)
            place = noise[0, start : start + length - shared] if self._packed else noise[number, :length]
            place.copy_(drawn[shared:])
            start += length - shared
        return embedded + noise

    def _seed_of(self, row: int, side: int) -> int:
        named = f"{self._seed} {self._trainer.step} {row} {side}".encode()
        return int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), "big") >> 1
