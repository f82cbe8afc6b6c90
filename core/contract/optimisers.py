"""OPTIMISERS: how a gradient becomes a step, a row each, under transformers' names. None is ours: they are torch's,
bitsandbytes' and transformers'; what differs between them in memory and in how they are called is a column here."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

OptimiserName = Literal[
    "adamw_torch", "adamw_torch_fused", "adamw_8bit", "paged_adamw_8bit", "adafactor", "lion_8bit", "muon"
]
"""As ``optim`` of transformers' TrainingArguments."""
AskedOptimiser = Literal["auto", OptimiserName]
EIGHT_BIT_FROM, EIGHT_BIT_BLOCK = 4096, 256
"""bitsandbytes keeps the states of smaller tensors in 32 bits, and a scale in float32 for each block of the others."""
FLAT_MOST, FLAT_MOST_HALVES = 2**28, 2**24
"""Values of a flat tensor that has several parameters (bitsandbytes counts in 32 bits), and where these have 16 bits:
such a tensor's gradient is there as soon as one of them has its own."""
MATRICES = "matrices="
"""Before an optimiser's name in TrainingArguments' ``optim_args``, of which ``optim`` knows only its ``others``."""
StateBytes = Callable[[Sequence[int], int], int]
"""From a tensor's shape and its bytes a value."""
Temporary = Literal["none", "largest", "all"]

USUAL: OptimiserName = "adamw_8bit"
"""What a card takes under ``auto``."""
USUAL_ON_CPU: OptimiserName = "adamw_torch"


@dataclass(frozen=True)
class Optimiser:
    """One optimiser."""

    title: str
    """What a person chooses."""
    words: str
    """What it is, or when to take it, behind the title."""
    keeps: str
    """What it keeps of ``{numbers}``, in words."""
    state_bytes: StateBytes
    """Bytes of its state of one tensor, without counters and tables."""
    flat: bool = True
    """Whether a step over one flat tensor is bit for bit that over the tensors in it; else each keeps its shape."""
    temporary: Temporary = "none"
    """What a step needs for a moment: copies of the largest tensor, or one of all."""
    copies: int = 1
    """How many of the largest one, in float32."""
    others: OptimiserName | None = None
    """What steps all that is no matrix of a layer (embedding, head, norms, biases) in its place."""
    whole: bool = False
    """Whether it is for full finetuning only."""
    rate_share: float = 1.0
    """Its usual learning rate, of AdamW's."""
    paged: bool = False
    """Whether its state lies in memory that the driver moves between the card and the machine as there is room."""

    def card_bytes(self, shape: Sequence[int], itemsize: int) -> int:
        """Bytes of its state of one tensor that need the card."""
        return 0 if self.paged else self.state_bytes(shape, itemsize)

    def passing(self, numbers: Sequence[int]) -> list[int]:
        """Float32 numbers of the tensors that a step makes for a moment, over tensors of so many each."""
        if self.temporary == "all":
            return list(numbers)
        return self.copies * [max(numbers)] if self.temporary == "largest" and numbers else []


def _moments(count: int) -> StateBytes:
    """So many numbers for each trained one, in its own dtype."""
    return lambda shape, itemsize: count * itemsize * math.prod(shape)


def _eight_bit(count: int) -> StateBytes:
    """So many of a byte for each trained number (Dettmers et al. 2022, arXiv:2110.02861)."""

    def size(shape: Sequence[int], _itemsize: int) -> int:
        numbers = math.prod(shape)
        blocks = math.ceil(numbers / EIGHT_BIT_BLOCK)
        return count * (4 * numbers if numbers < EIGHT_BIT_FROM else numbers + 4 * blocks)

    return size


def _factored(shape: Sequence[int], _itemsize: int) -> int:
    """A float32 for each row and each column of a matrix, or for each number of what is none."""
    if len(shape) < 2:
        return 4 * math.prod(shape)
    *stacked, rows, columns = shape
    return 4 * math.prod(stacked) * (rows + columns)


OPTIMISERS: Mapping[str, Optimiser] = MappingProxyType(
    {
        # Loshchilov and Hutter 2019, arXiv:1711.05101.
        "adamw_torch": Optimiser(
            title="AdamW",
            words="the usual one, in 32 bits",
            keeps="two moments of {numbers} in 32 bits",
            state_bytes=_moments(2),
            temporary="all",
        ),
        # Its loop over a tensor rounds a vector's rest apart on a CPU, so a flat tensor's bits are others.
        "adamw_torch_fused": Optimiser(
            title="AdamW, fused",
            words="the same as one program of the card",
            keeps="two moments of {numbers} in 32 bits",
            state_bytes=_moments(2),
            flat=False,
        ),
        "adamw_8bit": Optimiser(
            title="AdamW in 8 bits",
            words="a quarter of its memory, the same result",
            keeps="two moments of {numbers} in 8 bits",
            state_bytes=_eight_bit(2),
        ),
        # Dettmers et al. 2023, arXiv:2305.14314.
        "paged_adamw_8bit": Optimiser(
            title="AdamW in 8 bits, paged",
            words="its state leaves a full card for the machine's memory",
            keeps="two moments of {numbers} in 8 bits, in the machine's memory where the card is full",
            state_bytes=_eight_bit(2),
            paged=True,
        ),
        # Shazeer and Stern 2018, arXiv:1804.04235.
        "adafactor": Optimiser(
            title="Adafactor",
            words="one number a row and a column of each matrix: least memory, coarser steps",
            keeps="a mean a row and a column of {numbers}",
            state_bytes=_factored,
            flat=False,
            temporary="largest",
            copies=2,
        ),
        # Chen et al. 2023, arXiv:2302.06675.
        "lion_8bit": Optimiser(
            title="Lion in 8 bits",
            words="half of 8-bit AdamW's memory; wants a learning rate 3 to 10 times lower",
            keeps="one moment of {numbers} in 8 bits",
            state_bytes=_eight_bit(1),
            rate_share=0.2,
        ),
        "muon": Optimiser(
            title="Muon",
            words="orthogonal steps for the layers' matrices, AdamW for all else; for full finetuning",
            keeps="one moment of the layers' matrices and two of all else, of {numbers}, in 32 bits",
            state_bytes=_moments(1),
            flat=False,
            temporary="largest",
            copies=3,  # the step, in float32; of it two in 16 bits and, of a square matrix, two products
            others="adamw_torch",
            whole=True,
        ),
    }
)


def part_of(optimiser: Optimiser, matrix: bool) -> Optimiser:
    """What steps a matrix of a layer, or all else, under this optimiser."""
    return optimiser if matrix or optimiser.others is None else OPTIMISERS[optimiser.others]


def chosen_optimiser(name: AskedOptimiser, gpu: bool) -> OptimiserName:
    """The name of a choice, ``auto`` included."""
    return (USUAL if gpu else USUAL_ON_CPU) if name == "auto" else name


def optimiser_of(name: AskedOptimiser, gpu: bool) -> Optimiser:
    """Its row."""
    return OPTIMISERS[chosen_optimiser(name, gpu)]
