"""What makes a folder of weights a classifier of transformers: the names of its tensors, and fields of its config."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig

from core.contract.errors import ModelError
from core.contract.tasks import TASKS, Outputs
from core.machine.limits import reading_model

TASK = next(task for task in TASKS.values() if task.scores)
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Head:
    """The scores of a head, and the padding's id, which transformers looks for where a text ends."""

    outputs: Outputs
    pad_id: int

    def settings(self) -> dict[str, Any]:
        """Fields of a config."""
        return {**self.outputs.settings(), "pad_token_id": self.pad_id}


def classifier_of(base: Path, head: Head) -> tuple[dict[str, Any], Shapes]:
    """The fields of config.json, and the shape of every tensor, of transformers' classifier with this base.

    Raises:
        ModelError: there is no such class for this type of model.
    """
    with reading_model(base.name):
        config = AutoConfig.from_pretrained(str(base), trust_remote_code=False, local_files_only=True)
    made: Any = getattr(transformers, TASK.classes).get(type(config), None)
    if made is None:
        raise ModelError("model.no_scores", kind=config.model_type)
    settings = head.settings()
    for name, value in settings.items():
        setattr(config, name, value)
    with torch.device("meta"):
        shapes = {name: tuple(tensor.shape) for name, tensor in made(config).state_dict().items()}
    return {"architectures": [made.__name__], **settings}, shapes


def own_name(name: str, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """What the classifier calls a tensor of its base, whose names may lack the body's; empty where it has none."""
    prefix = next(iter(shapes)).partition(".")[0]
    return next((own for own in (name, f"{prefix}.{name}") if own in shapes), "")
