"""A causal model put together by transformers out of tensors that we bring.

transformers' ``from_pretrained`` takes a state dict in place of a folder, and asks each entry for its tensor only when
its turn comes: ``entry[...]``. So we hand it entries that read, copy or draw their tensor there on the device, and
everything else stays transformers' own: which layers become 4-bit, renamed and joined weights, what stays in float32,
tied weights, buffers, the marks that peft and saving look at. While it quantises it takes one tensor after another,
so one of them at a time lies on the card in 16 bits.
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
    """A tensor that is made when it is asked for; ``entry[...]`` is all that is asked."""

    def __getitem__(self, index: Any, /) -> torch.Tensor:
        """The tensor, on its device, in the dtype in which it is kept."""
        ...


@dataclass(frozen=True)
class Target:
    """Where the model goes and in which form."""

    device: torch.device
    dtype: torch.dtype
    quantization: str
    """A name of ``core.contract.weight_forms``."""
    attention: str

    @property
    def form(self) -> HeldForm:
        """How the decoder's matrices are held."""
        return HELD_FORMS[self.quantization]

    def options(self) -> dict[str, Any]:
        """What every call of ``from_pretrained`` is given."""
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
        """bitsandbytes' options of the form, computing in the target's dtype."""
        return BitsAndBytesConfig(**self.form.loading, bnb_4bit_compute_dtype=self.dtype)


def auto_class() -> Any:
    """transformers' class that chooses a model's class by its config."""
    return getattr(transformers, TASKS[DEFAULT_TASK].model_class)


def classes_of(config: Any) -> tuple[Any, ...]:
    """The model classes that transformers has for such a config; where there are several it chooses by other things."""
    classes = getattr(transformers, TASKS[DEFAULT_TASK].classes).get(type(config), ())
    return classes if isinstance(classes, tuple) else (classes,)


def assemble(config: Any, entries: Mapping[str, Entry], target: Target, name: str) -> tuple[Any, dict[str, Any]]:
    """The model and transformers' report of missing, unexpected and mismatched keys.

    Args:
        config: one for which ``classes_of`` names a class; it is not changed.
        entries: by the names that a checkpoint would have.
        name: where the model is from, as transformers notes a folder.
    """
    model, report = classes_of(config)[0].from_pretrained(
        None, config=config, state_dict=dict(entries), **target.options()
    )
    model.config.name_or_path = name
    for module in model.modules():
        if hasattr(module, "name_or_path"):
            module.name_or_path = name
    return model, report if isinstance(report, dict) else report.to_dict()
