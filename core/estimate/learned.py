"""What earlier runs on this machine taught: speed and memory, predicted and measured, and what follows for the next.

Pure: the lines come from ``core.runs.learned``. A run is *like* another when card, method, kernels and quantisation are
the same; the more of model, checkpointing and length is the same too, the nearer it is. Of the like, the nearest count.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.contract.catalogue import ModelSpec
from core.contract.estimate import LearnedRun

__all__ = ["Learned", "shape_name"]


@dataclass(frozen=True)
class Learned:
    """The lines of finished runs, oldest first."""

    runs: tuple[LearnedRun, ...] = ()


def shape_name(spec: ModelSpec) -> str:
    """The model by its numbers: ``mistral-32x4096x14336-32768``."""
    shape = spec.shape
    return (
        f"{spec.model_type}-{shape.num_hidden_layers}x{shape.hidden_size}x{shape.intermediate_size}-{shape.vocab_size}"
    )
