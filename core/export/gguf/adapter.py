"""An adapter as a GGUF LoRA, for llama.cpp's ``--lora`` and Ollama's ``ADAPTER``: A and B in float32, as they were
trained.

llama.cpp adds ``alpha / rank · B A``, so that ``alpha = scale · rank``, whatever way the adapter is scaled by.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from core.contract.errors import ModelError
from core.export.changes import Pair, placed, read_changes
from core.export.gguf.architectures import Config, of
from core.export.gguf.model import Check, Names, Progress
from core.export.gguf.writer import Tensor, write_gguf
from core.export.sources import Held
from core.export.weights import tensors_of


def write_adapter(path: Path, config: Config, base: Path, adapter: Path, on_tensor: Progress, check: Check) -> None:
    """Writes it.

    Raises:
        ModelError: the adapter holds more than matrices A and B (``gguf.adapter``), or llama.cpp lacks the family.
    """
    changes = placed(read_changes(adapter), {name: held.shape for name, held in tensors_of(base).items()})
    names, tensors, alphas = Names(of(config), config), [], set()
    for name, change in changes.items():
        if not isinstance(change, Pair) or change.magnitude is not None or change.transposed:
            raise ModelError("gguf.adapter", part=name)
        alphas.add(change.scale * change.rank)
        target = names.of(name)
        tensors += [_tensor(f"{target}.lora_a", change.a), _tensor(f"{target}.lora_b", change.b, names, name)]
    if len(alphas) != 1:
        raise ModelError("gguf.adapter", part=f"{len(alphas)} ways to scale")
    facts = {
        "general.architecture": of(config).name,
        "general.type": "adapter",
        "adapter.type": "lora",
        "adapter.lora.alpha": float(alphas.pop()),
    }
    write_gguf(path, facts, tensors, on_tensor, check)


def _tensor(target: str, held: Held, names: Names | None = None, name: str = "") -> Tensor:
    """A or B; B's rows are the projection's, in llama.cpp's order."""

    def rows() -> Iterator[torch.Tensor]:
        values = held.whole().float()
        yield names.arranged(name, values) if names else values

    return Tensor(target, held.shape, "F32", rows)
