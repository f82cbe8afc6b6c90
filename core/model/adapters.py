"""LoRA adapters, made, loaded and saved exactly as peft does it.

Adapter weights are float32 whatever the base's dtype is: they are small, and the optimiser's steps are smaller than
half a bfloat16 digit. Plain peft casts a projection's input to the adapter's dtype and its product back; our fast
layers cast the adapter down for the product and keep its gradient in float32. No autocast is needed on either path.
"""

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, set_peft_model_state_dict
from safetensors.torch import load_file
from torch import nn

from core.contract.config import TARGETS, LoraChoice
from core.contract.errors import ModelError, first_line
from core.contract.tasks import DEFAULT_TASK, TASKS
from core.models.checks.adapter import check_adapter

FUSED = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
}
"""Names under which some models (Phi-3) hold several projections in one."""
_REFERENCE = "ref"
"""TRL's name for the frozen copy of an adapter."""


@dataclass(frozen=True)
class Targets:
    """Which modules get an adapter: peft's ``target_modules``, and a sentence where it is not what was asked."""

    modules: tuple[str, ...] | str
    note: str = ""


def adapter_targets(model: nn.Module, lora: LoraChoice) -> Targets:
    """Maps the asked names to those that the model has.

    Raises:
        ModelError: some names of the person's own choosing are not in the model.
    """
    present = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules() if name}
    found: dict[str, None] = {}
    absent: list[str] = []
    for name in lora.target_modules:
        actual = name if name in present else FUSED.get(name, "")
        if actual in present:
            found[actual] = None
        else:
            absent.append(name)
    if absent and lora.target_modules != TARGETS:
        raise ModelError(
            "model.targets/absent", target_modules=", ".join(lora.target_modules), absent=", ".join(absent)
        )
    if not found:
        return Targets("all-linear", "Adapters on all linear layers: this model names its projections its own way.")
    fused = [name for name in found if name in FUSED.values()]
    note = f"Adapters on {', '.join(fused)}: this model holds these projections in one." if fused else ""
    return Targets(tuple(found), note)


def add_adapter(model: Any, lora: LoraChoice, seed: int) -> Any:
    """Wraps ``model`` into a PeftModel with one fresh adapter; only the adapter is trainable.

    The draw depends on ``seed`` alone: the same seed gives the same adapter, and the global generators are left as
    they were.
    """
    targets = adapter_targets(model, lora).modules
    config = LoraConfig(
        r=lora.r,
        lora_alpha=lora.lora_alpha,
        lora_dropout=lora.lora_dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        bias=lora.bias,
        use_rslora=lora.use_rslora,
        use_dora=lora.use_dora,
        task_type=TASKS[DEFAULT_TASK].peft_type,
    )
    cards = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=cards):
        torch.manual_seed(seed)
        return get_peft_model(model, config, autocast_adapter_dtype=True)


def load_adapter(model: Any, folder: Path, trainable: bool) -> Any:
    """Puts the adapter of ``folder`` (peft's format, safetensors) on ``model``.

    Raises:
        ModelError: the folder holds no plain LoRA adapter, or one for another model.
    """
    check_adapter(folder)
    try:
        return PeftModel.from_pretrained(model, str(folder), is_trainable=trainable, autocast_adapter_dtype=True)
    except (RuntimeError, ValueError, KeyError) as error:
        reason = first_line(error)
        raise ModelError("model.adapter/other_model", folder=folder, reason=reason) from error


def trainable(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters that training changes, with their names, in the model's order."""
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]


@dataclass(frozen=True)
class Trained:
    """What a run learns: the adapter of ``model``. Optimiser, checkpoints, reference and export read it here."""

    model: Any

    @cached_property
    def named(self) -> list[tuple[str, nn.Parameter]]:
        """The parameters that training changes, with their names, in the model's order."""
        return trainable(self.model)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The same without their names."""
        return [parameter for _, parameter in self.named]

    @property
    def count(self) -> int:
        """Trained numbers."""
        return sum(parameter.numel() for parameter in self.parameters)

    @property
    def bytes(self) -> int:
        """What they take."""
        return sum(parameter.nbytes for parameter in self.parameters)

    def groups(self, decayed: Collection[str]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """The optimiser's two: those whose names are in ``decayed``, which weight decay draws to zero, and the rest."""
        return ([p for name, p in self.named if name in decayed], [p for name, p in self.named if name not in decayed])

    def save(self, folder: Path) -> None:
        """Writes adapter_config.json and adapter_model.safetensors, as peft's ``save_pretrained`` does, and no
        reference.

        ``save_embedding_layers`` stays False: at "auto" peft asks the hub for the base model's vocabulary every time.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.model.save_pretrained(
            str(folder), safe_serialization=True, save_embedding_layers=False, selected_adapters=["default"]
        )

    def restore(self, folder: Path) -> str:
        """Reads again what ``save`` wrote; the first name in the file that this adapter does not have, else empty."""
        weights = load_file(folder / "adapter_model.safetensors")
        result = set_peft_model_state_dict(self.model, weights, adapter_name="default")
        return str(result.unexpected_keys[0]) if result.unexpected_keys else ""

    def base(self) -> AbstractContextManager[Any]:
        """While it lasts the model is the base model, bit for bit."""
        context: AbstractContextManager[Any] = self.model.disable_adapter()
        return context

    @contextmanager
    def reference(self) -> Iterator[None]:
        """While it lasts the model is what it was before the run: a frozen copy of the adapter that it goes on from,
        where TRL keeps one, else the base model."""
        if _REFERENCE not in self.model.peft_config:
            with self.base():
                yield
            return
        self.model.set_adapter(_REFERENCE)
        try:
            yield
        finally:
            self.model.set_adapter("default")

    def drop_reference(self) -> None:
        """Lets TRL's frozen copy go."""
        if _REFERENCE in self.model.peft_config:
            self.model.delete_adapter(_REFERENCE)
