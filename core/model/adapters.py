"""LoRA adapters, made, loaded and saved by peft.

Adapter weights are always float32: optimiser steps are smaller than half a bfloat16 digit. Plain peft casts a
projection's input to the adapter's dtype and its product back; our fast layers cast the adapter down for the product
and keep its gradient in float32. Neither needs autocast.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from peft import LoraConfig, PeftModel, get_peft_model, set_peft_model_state_dict
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file
from torch import nn

from core.contract.config import TARGETS, LoraChoice
from core.contract.errors import ModelError, first_line
from core.contract.tasks import DEFAULT_TASK, TASKS, Outputs, Task
from core.model.layers.peft_bnb import ADAPTER, begin_at_length, without_magnitudes
from core.model.loftq import Originals, begin_at_error, put_back
from core.model.pissa import begin_at_principal, read_from_plain, write_as_plain
from core.models.checks.adapter import check_adapter
from core.models.outputs import write_outputs

FUSED = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
}
"""Joint projections of some models (Phi-3) by the names of their parts."""
_EMBEDDING_RATE = 1e-6
"""peft's learning rate of an adapted embedding under LoRA+ (``loraplus_lr_embedding``)."""


@dataclass(frozen=True)
class Targets:
    """peft's ``target_modules``, and a note for people where they are not those that were asked for."""

    modules: tuple[str, ...] | str
    note: str = ""


def adapter_targets(model: nn.Module, lora: LoraChoice) -> Targets:
    """Maps the configured names to those that the model has.

    Raises:
        ModelError: names other than the default ones are not in the model.
    """
    present = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules() if name}
    names: dict[str, None] = {}
    absent: list[str] = []
    for name in lora.target_modules:
        actual = name if name in present else FUSED.get(name, "")
        if actual in present:
            names[actual] = None
        else:
            absent.append(name)
    if absent and lora.target_modules != TARGETS:
        raise ModelError(
            "model.targets/absent", target_modules=", ".join(lora.target_modules), absent=", ".join(absent)
        )
    if not names:
        return Targets("all-linear", "Adapters on all linear layers: this model names its projections its own way.")
    fused = [name for name in names if name in FUSED.values()]
    note = f"Adapters on {', '.join(fused)}: this model holds these projections in one." if fused else ""
    return Targets(tuple(names), note)


def ends_of(model: Any) -> tuple[str, ...]:
    """The names of embedding and head, as peft's ``modules_to_save`` has them; of tied ones the embedding's alone."""
    ends = [model.get_input_embeddings(), model.get_output_embeddings()]
    names = [name.rsplit(".", 1)[-1] for end in ends for name, module in model.named_modules() if module is end]
    return tuple(names[:1] if is_tied(model) else names)


def is_tied(model: Any) -> bool:
    """Whether embedding and head are one matrix."""
    head = model.get_output_embeddings()
    return head is not None and head.weight is model.get_input_embeddings().weight


BEGINNINGS: dict[str, Callable[[Any, LoraChoice, Originals | None], None]] = {
    "pissa_niter_16": lambda model, lora, _originals: begin_at_principal(model, lora),
    "loftq": begin_at_error,
}
"""By ``core.contract.tasks``: where a fresh adapter begins."""


def add_adapter(
    model: Any,
    lora: LoraChoice,
    seed: int,
    ends: bool = False,
    task: Task = TASKS[DEFAULT_TASK],
    originals: Originals | None = None,
) -> Any:
    """Wraps ``model`` into a PeftModel with one fresh adapter; only the adapter is trainable, and a head of scores.

    The adapter depends on ``seed`` alone; global generators are restored. ``ends``: copies of embedding and head are
    trained as well, in the base's dtype; tied ones stay one. ``originals`` reads the weights on disk.
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
        task_type=task.peft_type,
        modules_to_save=list(ends_of(model)) if ends else None,
        ensure_weight_tying=ends and is_tied(model),
    )
    cards = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=cards):
        torch.manual_seed(seed)
        adapted = get_peft_model(model, config, autocast_adapter_dtype=True)
        begin_at_length(adapted)
        if begin := BEGINNINGS.get(lora.init_lora_weights):
            begin(adapted, lora, originals)
    return adapted


def load_adapter(model: Any, folder: Path, trainable: bool) -> Any:
    """Puts the adapter of ``folder`` (peft's format, safetensors) on ``model``.

    Raises:
        ModelError: the folder holds no plain LoRA adapter, or one for another model.
    """
    check_adapter(folder)
    with _fitting(folder):
        model = PeftModel.from_pretrained(model, str(folder), is_trainable=trainable, autocast_adapter_dtype=True)
        put_back(model, folder)
    return model


def load_beside(model: Any, folder: Path, name: str) -> None:
    """Loads a further adapter onto a PeftModel, under this name; none that corrects quantised weights (``put_back``).

    Raises:
        ModelError: as ``load_adapter``.
    """
    check_adapter(folder)
    with _fitting(folder):
        model.load_adapter(str(folder), adapter_name=name, is_trainable=False, autocast_adapter_dtype=True)


@contextmanager
def _fitting(folder: Path) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError, KeyError) as error:
        reason = first_line(error)
        raise ModelError("model.adapter/other_model", folder=folder, reason=reason) from error


def trainable(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters that training changes, with their names, in the model's order."""
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]


_ENDS = ".modules_to_save."
"""In names of embedding and head that are trained beside an adapter."""
_NEW = tuple(row.head for row in TASKS.values() if row.head)
"""Heads that are drawn anew: they learn at the adapter's rate."""
ENDS_SHARE = 0.1
"""Their usual learning rate over the adapter's."""
Exact = Mapping[nn.Parameter, torch.Tensor]
"""What an optimiser holds of each parameter: itself, or float32 numbers of which it is a rounded copy."""


def of_layer(name: str, parameter: torch.Tensor) -> bool:
    """Whether a parameter of this name is a matrix of a layer, by the names of decoders or of encoders."""
    return parameter.ndim == 2 and (".layers." in name or ".layer." in name)


@dataclass(frozen=True)
class Group:
    """Parameters that are stepped alike; ``times`` multiplies the learning rate."""

    parameters: list[nn.Parameter]
    decays: bool
    times: float = 1.0
    matrices: bool = False
    """Whether they are all matrices of layers, and stepped as such."""


@dataclass(frozen=True)
class Trained:
    """The trained part of ``model``, a PeftModel: its adapter, with embedding and head where they learn.

    ``loraplus_lr_ratio`` is LoRA+'s: how many times larger the learning rate of B is than A's; 0: as large.
    """

    model: Any
    loraplus_lr_ratio: float = 0.0
    embedding_learning_rate: float = 0.0
    """Of embedding and head; 0: a tenth of the learning rate."""
    start: tuple[torch.Tensor, ...] = ()
    """``parameters`` as they were before the run, in host memory; empty where they added nothing to the base."""
    outputs: Outputs | None = None
    """Names of a head of scores, which are kept beside an adapter."""

    ahead: ClassVar[int] = 0
    """How many rows are read at a time under the reference, where that is slow to come to; 0: those of a pass."""

    def keeping_start(self) -> Trained:
        """The same with the parameters as they are now in ``start``, for a loss that compares with them."""
        pinned = torch.cuda.is_available()
        kept = (parameter.detach().to("cpu", copy=True) for parameter in self.parameters)
        return replace(self, start=tuple(copy.pin_memory() if pinned else copy for copy in kept))

    @cached_property
    def named(self) -> list[tuple[str, nn.Parameter]]:
        """The parameters that training changes, with their names, in the model's order."""
        return trainable(self.model)

    @cached_property
    def _layers(self) -> list[LoraLayer]:
        return [module for module in self.model.modules() if isinstance(module, LoraLayer)]

    @property
    def parameters(self) -> list[nn.Parameter]:
        """``named`` without names."""
        return [parameter for _, parameter in self.named]

    @property
    def count(self) -> int:
        """Trained numbers."""
        return sum(parameter.numel() for parameter in self.parameters)

    @property
    def bytes(self) -> int:
        """Their size in memory."""
        return sum(parameter.nbytes for parameter in self.parameters)

    def groups(self, decayed: Collection[str], learning_rate: float) -> list[Group]:
        """Parameters whose names are in ``decayed`` (they get weight decay), and the others.

        With LoRA+ (Hayou et al. 2024, arXiv:2402.12354) those of A, then all others, which peft steps with B; an
        adapted embedding has peft's own rate.
        """
        ratio = self.loraplus_lr_ratio or 1.0
        rates = {"A": 1.0, "B": ratio, "embedding": _EMBEDDING_RATE / learning_rate} if ratio != 1.0 else {"": 1.0}
        ends = {name for name, _ in self.named if _ENDS in name and not name.partition(_ENDS)[0].endswith(_NEW)}
        if ends:
            own = self.embedding_learning_rate
            rates["ends"] = own / learning_rate if own else ENDS_SHARE

        def part(name: str, parameter: nn.Parameter) -> str:
            if name in ends:
                return "ends"
            if ratio == 1.0:
                return ""
            if "lora_embedding_" in name:
                return "embedding"
            return "B" if "lora_B" in name or parameter.ndim == 1 else "A"

        sorted_ = {
            (of, decays): [p for name, p in self.named if (part(name, p), name in decayed) == (of, decays)]
            for of in rates
            for decays in (True, False)
        }
        first, *rest = (Group(found, decays, rates[of]) for (of, decays), found in sorted_.items())
        return [first, *(group for group in rest if group.parameters or ratio == 1.0)]

    def save(self, folder: Path, exact: Exact | None = None) -> None:
        """Writes adapter_config.json and adapter_model.safetensors, without the reference.

        ``save_embedding_layers`` is False because at "auto" peft asks the hub for the base model's vocabulary.

        Args:
            exact: the optimiser's numbers in place of parameters of 16 bits.
        """
        folder.mkdir(parents=True, exist_ok=True)
        held = {name: exact[p] for name, p in self.named if p.dtype != torch.float32} if exact else {}
        self.model.save_pretrained(
            str(folder),
            safe_serialization=True,
            save_embedding_layers=False,
            selected_adapters=[ADAPTER],
            **({"state_dict": self.model.state_dict() | held} if held else {}),
        )
        write_as_plain(self.model, folder)
        if self.outputs:
            write_outputs(self.outputs, folder)

    def restore(self, folder: Path, exact: Exact | None = None) -> str:
        """Reads what ``save`` wrote; returns the first name in the file that this adapter lacks, or an empty string."""
        saved = load_file(folder / "adapter_model.safetensors")
        result = set_peft_model_state_dict(self.model, read_from_plain(self.model, dict(saved)), adapter_name=ADAPTER)
        for name, parameter in self.named if exact else ():
            inside = name.replace(".modules_to_save.default", "").replace(".default", "")  # as peft names it in a file
            numbers = saved.get(inside.replace(".base_layer.bias", ".bias"))
            if numbers is not None and exact and parameter.dtype != torch.float32:
                exact[parameter].copy_(numbers)
        return str(result.unexpected_keys[0]) if result.unexpected_keys else ""

    def base(self) -> AbstractContextManager[Any]:
        """A context in which the model is the base model, bit for bit."""
        context: AbstractContextManager[Any] = self.model.disable_adapter()
        return context

    @contextmanager
    def reference(self) -> Iterator[None]:
        """A context in which the model is as before the run, on the same layers: rounding then differs in nothing.

        The base is the model with the adapter's scales at 0, and without DoRA's magnitudes, which multiply the base's
        rows too. An adapter that was not fresh lies in the trained parameters meanwhile, which go to host memory, and
        without dropout.
        """
        if self.start:
            with _swapped(self.parameters, self.start), _without_dropout(self.model):
                yield
        else:
            with _unscaled(self._layers):
                yield


@contextmanager
def _swapped(parameters: Sequence[nn.Parameter], others: Sequence[torch.Tensor]) -> Iterator[None]:
    """The parameters with other values for a while."""
    own = [parameter.detach().to("cpu", copy=True) for parameter in parameters]
    try:
        _fill(parameters, others)
        yield
    finally:
        _fill(parameters, own)


def _fill(parameters: Sequence[nn.Parameter], values: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(value)


@contextmanager
def _without_dropout(model: nn.Module) -> Iterator[None]:
    """The model with its dropout off."""
    drawing = [module for module in model.modules() if isinstance(module, nn.Dropout) and module.training]
    try:
        for module in drawing:
            module.training = False
        yield
    finally:
        for module in drawing:
            module.training = True


@contextmanager
def _unscaled(layers: Sequence[LoraLayer]) -> Iterator[None]:
    """The layers with their adapters' scales at 0, and without magnitudes."""
    before = [(layer.scaling, layer.lora_variant) for layer in layers]
    try:
        for layer in layers:
            layer.scaling = dict.fromkeys(layer.scaling, 0.0)
            layer.lora_variant = without_magnitudes(layer)
        yield
    finally:
        for layer, (scaling, variants) in zip(layers, before, strict=True):
            layer.scaling, layer.lora_variant = scaling, variants
