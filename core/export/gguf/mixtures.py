"""MIXTURES: in which type each tensor of a quantised file is held, by the published rule of llama.cpp's quantiser
(``llama-quant.cpp``), so that a file has the size and quality that its name promises."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from core.contract.forms import Quantisation

BLOCKS = {"F32": (1, 4), "F16": (1, 2), "BF16": (1, 2), "Q8_0": (32, 34), "Q4_0": (32, 18), "Q4_1": (32, 20),
          "Q5_0": (32, 22), "Q5_1": (32, 24), "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210)}  # fmt: skip
"""Values of a block, and its bytes."""
_SMALLER_BLOCKS = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
"""What takes a tensor whose rows are no multiple of 256 values."""


@dataclass(frozen=True)
class Mixture:
    """``number``: the file's type in its metadata. ``most``: of most matrices; ``head``: of the head, or of an
    embedding that is one too; ``sensitive``: of values and down projections in the layers that lose most; ``guarded``:
    of the first down projections where an importance matrix is used. ``alike``: the least cosine of its logits with
    those of the weights in 32 bits (of bfloat16 llama.cpp rounds activations, too); 0 where more may be lost."""

    number: int
    most: str
    head: str
    sensitive: str = ""
    guarded: str = ""
    alike: float = 0.0


MIXTURES: dict[Quantisation, Mixture] = {
    "bf16": Mixture(32, "BF16", "BF16", alike=0.999),
    "f16": Mixture(1, "F16", "F16", alike=0.9999),
    "q8_0": Mixture(7, "Q8_0", "Q8_0"),
    "q6_k": Mixture(18, "Q6_K", "Q6_K"),
    "q5_k_m": Mixture(17, "Q5_K", "Q6_K", sensitive="Q6_K"),
    "q4_k_m": Mixture(15, "Q4_K", "Q6_K", sensitive="Q6_K"),
    "q4_0": Mixture(2, "Q4_0", "Q6_K", guarded="Q4_1"),
}


@dataclass(frozen=True)
class Chooser:
    """The types of one model's tensors. ``grouped``: several queries share a key; ``tied``: the embedding is the head;
    ``weighed``: an importance matrix is used."""

    mixture: Mixture
    layers: int
    grouped: bool
    tied: bool
    weighed: bool = False

    def type_of(self, name: str, shape: tuple[int, ...]) -> str:
        """The type of a tensor by its GGUF name and shape as torch has it."""
        if len(shape) < 2 or not name.endswith(".weight") or name.endswith("_norm.weight"):
            return "F32"
        return fitting(self._wanted(name, shape[-1]), shape[-1])

    def _wanted(self, name: str, width: int) -> str:
        mix = self.mixture
        if name == "output.weight" or (self.tied and name == "token_embd.weight"):
            block = BLOCKS[mix.most][0]
            return mix.head if width % block == 0 else "Q8_0" if block > 1 else mix.most
        layer, _, part = name.removeprefix("blk.").partition(".")
        if part in ("attn_v.weight", "attn_qkv.weight"):
            if mix.sensitive and self._loses_most(int(layer)):
                return mix.sensitive
            large = self.layers == 80 and self.grouped  # 70B: values are an eighth of the queries
            return "Q5_K" if large and mix.most == "Q4_K" else mix.most
        if part == "ffn_down.weight":
            if mix.guarded and self.weighed and int(layer) < self.layers // 8:
                return mix.guarded
            return mix.sensitive if mix.sensitive and self._loses_most(int(layer)) else mix.most
        return mix.most

    def _loses_most(self, layer: int) -> bool:
        """The first and the last eighth, and every third layer between."""
        eighth = self.layers // 8
        return layer < eighth or layer >= 7 * self.layers // 8 or (layer - eighth) % 3 == 2


def fitting(kind: str, width: int) -> str:
    """The type, or one with smaller blocks where a row is no multiple of its own."""
    if width % BLOCKS[kind][0] == 0:
        return kind
    smaller = _SMALLER_BLOCKS.get(kind, kind)
    return smaller if width % BLOCKS[smaller][0] == 0 else "F16"


def bytes_of(kind: str, shape: tuple[int, ...]) -> int:
    """How many bytes a tensor of this type takes."""
    block, size = BLOCKS[kind]
    return prod(shape) // block * size
