"""LoftQ (Li et al. 2023, arXiv:2310.08659): an adapter that begins at the largest error of each quantised matrix.

With W the weight on disk, Q what the model holds of it, s the adapter's scale and R its rank::

    s B0 A0 = the R largest singular parts of W - Q        A0 = √(S/s) V'     B0 = U √(S/s)     y = Q x + s B A x

It is the paper's first alternation, with Q held: Q is not quantised anew, so with the adapter off the model stays the
one that came. A run begins nearer to the 16-bit model; a method that compares with the untrained model compares with
this beginning.

What is saved is the change since then, ``s (B A - B0 A0)``, as a plain adapter of twice the rank
(``core.model.pissa``): added to the 16-bit weights, merged too, the correction would be there twice. Over 4 bits this
program puts the correction back (``put_back``: the file holds A0 and B0, and says so in its metadata), so a checkpoint
answers as it was trained; plain peft over 4 bits has what was learned, without the correction.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn

from core.contract.config import LoraChoice
from core.contract.errors import ModelError
from core.model.layers.peft_bnb import (
    ADAPTER,
    adapted_layers,
    adapter_of,
    begin_at,
    dense_weight,
    halve,
    is_quantised,
    keep_start,
)
from core.model.pissa import CORRECTED

Original = Callable[[str], torch.Tensor]
"""Reads a weight ``[O, D]`` as it is on disk, by its layer's name in the model, onto the model's device."""
Originals = Callable[[], AbstractContextManager[Original]]
MOST_LOST = 0.5
"""Of a matrix's norm: more is no error of quantisation."""
MORE_COLUMNS, ITERATIONS = 16, 16
"""Of the randomised decomposition (Halko et al. 2009, arXiv:0909.4061): an error's singular values lie close."""
_PREFIX = "base_model.model."


def begin_at_error(model: nn.Module, lora: LoraChoice, originals: Originals | None) -> None:
    """Starts the adapter at the error of its quantised matrices; the global generator draws for the decomposition.

    What is not quantised begins at no change; so does everything without ``originals`` (random weights).
    """
    if originals is None:
        for module in adapted_layers(model).values():
            keep_start(module, *adapter_of(module))
        return
    with originals() as read:
        for name, module in adapted_layers(model).items():
            a, b = (tensor.detach().clone() for tensor in adapter_of(module))
            if is_quantised(module):
                _fill(_error(read(name.removeprefix(_PREFIX)).float(), dense_weight(module), name), a, b, lora)
            begin_at(module, a, b, taken_off=False)


def _error(weight: torch.Tensor, held: torch.Tensor, name: str) -> torch.Tensor:
    """W - Q; 4 bits lose about a tenth of a matrix.

    Raises:
        ModelError: W is not what Q was made of.
    """
    if weight.shape != held.shape or (weight - held).norm() > MOST_LOST * weight.norm():
        raise ModelError("model.original", reason=f"{name.removeprefix(_PREFIX)} is another matrix there")
    return weight - held


def _fill(error: torch.Tensor, a: torch.Tensor, b: torch.Tensor, lora: LoraChoice) -> None:
    """A and B at the principal parts of ``error [O, D]``; where R is more than it has, the rest of B stays zero."""
    rank, scale = min(len(a), *error.shape), lora.lora_alpha / lora.r
    u, s, v = torch.svd_lowrank(error, min(rank + MORE_COLUMNS, *error.shape), niter=ITERATIONS)
    roots = (s[:rank] / scale).sqrt()
    a[:rank], b[:, :rank] = roots[:, None] * v[:, :rank].T, u[:, :rank] * roots


def put_back(model: Any, folder: Path) -> None:
    """Over quantised weights, makes a loaded change since a beginning the adapter and its beginning again."""
    with safe_open(folder / "adapter_model.safetensors", "pt") as file:
        said = file.metadata() or {}
    layers = adapted_layers(model).values()
    if CORRECTED not in said or not any(map(is_quantised, layers)):
        return
    for module in layers:
        halve(module)
    config = model.peft_config[ADAPTER]
    config.r, config.lora_alpha = config.r // 2, config.lora_alpha // 2
