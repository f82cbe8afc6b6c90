"""An NF4 weight's tensors, and its dequantisation in plain torch."""

from dataclasses import dataclass

import torch
from torch.nn import functional as F


@dataclass(frozen=True)
class Nf4:
    """An NF4 weight; its tensors are on one device.

    ``nested_absmax``, ``nested_code`` and ``offset`` are None where ``absmax`` is float32 (not quantised again).
    """

    packed: torch.Tensor  # uint8, two values a byte
    absmax: torch.Tensor  # [blocks], uint8 or float32
    code: torch.Tensor  # [16], float32
    blocksize: int
    nested_absmax: torch.Tensor | None  # [groups of blocks], float32
    nested_code: torch.Tensor | None  # [256], float32
    nested_blocksize: int
    offset: torch.Tensor | None  # one value, float32
    shape: tuple[int, int]  # O, D
    dtype: torch.dtype  # what values are rounded to


def dequantize(weight: Nf4, out: torch.Tensor | None = None) -> torch.Tensor:
    """``level4[n] · m`` in float32, rounded to the weight's dtype (Dettmers et al. 2023, arXiv:2305.14314).

    Args:
        out: ``[O, D]``, rows may be strided; rounded values are converted to its dtype.
    """
    packed = weight.packed.reshape(-1)
    numbers = torch.stack((packed >> 4, packed & 15), dim=-1).view(-1)[: weight.shape[0] * weight.shape[1]]
    magnitudes = weight.absmax
    if weight.nested_absmax is not None and weight.nested_code is not None and weight.offset is not None:
        levels = weight.nested_code[weight.absmax.int()]  # double quantisation: m = level8[q] · nested + offset
        magnitudes = _scaled(levels, weight.nested_absmax, weight.nested_blocksize) + weight.offset
    values = _scaled(weight.code[numbers.int()], magnitudes, weight.blocksize)
    values = values.to(weight.dtype).view(weight.shape)
    return values if out is None else out.copy_(values)


def _scaled(values: torch.Tensor, scales: torch.Tensor, blocksize: int) -> torch.Tensor:
    """Each block of ``values`` times its scale; the last block may be short."""
    count = values.numel()
    blocks = F.pad(values, (0, -count % blocksize)).view(-1, blocksize)
    return blocks.mul_(scales[:, None]).view(-1)[:count]
