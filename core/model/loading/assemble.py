"""Has transformers build a causal model from tensors that we supply.

``from_pretrained`` accepts a state dict in place of a folder, and asks an entry for its tensor (``entry[...]``) only
when it needs it. Our entries then read or draw the tensor on the device. transformers does the rest: quantisation,
renamed and joined weights, dtypes, tied weights, buffers. It quantises one tensor at a time, so only one lies on the
card in 16 bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import transformers
from transformers import BitsAndBytesConfig

from core.contract.tasks import DEFAULT_TASK, TASKS
from core.kernels.weights.forms import HELD_FORMS, HeldForm


class Entry(Protocol):
    """A tensor that is made when ``entry[...]`` asks for it."""

    def __getitem__(self, index: Any, /) -> torch.Tensor:
        """The tensor on its device, in its stored dtype."""
        ...


@dataclass(frozen=True)
class Target:
    """Device, dtype, weight form and attention of the model."""

    device: torch.device
    dtype: torch.dtype
    quantization: str
    """A name of ``core.contract.weight_forms``."""
    attention: str
    streamed: int = 0
    """Decoder layers whose weights stay in the machine's memory."""

    @property
    def form(self) -> HeldForm:
        """How the decoder's matrices are held."""
        return HELD_FORMS[self.quantization]

    def options(self) -> dict[str, Any]:
        """Arguments of every call of ``from_pretrained``."""
        return {
            "dtype": self.dtype,
            "device_map": {"": self.device},
            "quantization_config": self.quantization_config() if self.form.loading else None,
            "attn_implementation": self.attention,
            "use_safetensors": True,
            "trust_remote_code": False,
            "local_files_only": True,
            "output_loading_info": True,
        }

    def quantization_config(self) -> BitsAndBytesConfig:
        """bitsandbytes' options of the form, with the target's compute dtype."""
        return BitsAndBytesConfig(**self.form.loading, bnb_4bit_compute_dtype=self.dtype)


def auto_class() -> Any:
    """transformers' auto class, which chooses a model's class by its config."""
    return getattr(transformers, TASKS[DEFAULT_TASK].model_class)


def classes_of(config: Any) -> tuple[Any, ...]:
    """The model classes that transformers has for such a config."""
    classes = getattr(transformers, TASKS[DEFAULT_TASK].classes).get(type(config), ())
    return classes if isinstance(classes, tuple) else (classes,)


def assemble(config: Any, entries: Mapping[str, Entry], target: Target, name: str) -> tuple[Any, dict[str, Any]]:
    """The model and transformers' report of missing, unexpected and mismatched keys.

    Args:
        config: one for which ``classes_of`` names a class; it is not changed.
        entries: by checkpoint names.
        name: the model's ``name_or_path``.
    """
    model, report = classes_of(config)[0].from_pretrained(
        None, config=config, state_dict=dict(entries), **target.options()
    )
    model.config.name_or_path = name
    for module in model.modules():
        if hasattr(module, "name_or_path"):
            module.name_or_path = name
    return model, report if isinstance(report, dict) else report.to_dict()
