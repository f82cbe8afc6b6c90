"""PiSSA (Meng et al. 2024, arXiv:2404.02948): an adapter that begins at the principal parts of each matrix.

With ``W = U S V'`` and s the adapter's scale, as peft computes them::

    A0 = √(S/s) V'     B0 = U √(S/s)     of the R largest        y = (W - s B0 A0) x + s B A x, at first A = A0, B = B0

peft writes the difference into the base. Here the base stays as it came, and a frozen copy of the start is taken off
where the adapter is used: switched off it leaves the model bit for bit, and what is saved is a plain LoRA adapter of
twice the rank for that model: ``A = [A; A0]``, ``B = [B, -B0]``. Of a quantised matrix the parts are those of what it
holds, so its quantisation error stays (in the paper's QPiSSA the difference is quantised anew).
"""

import json
from collections import OrderedDict
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch import nn

from core.contract.config import LoraChoice
from core.model.layers.peft_bnb import adapted_layers, adapter_of, begin_at, dense_weight, starts_of, starts_taken_off

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
CORRECTED = "over_quantised_add_back_the_start"
"""In the metadata of an adapter that began at the error of quantised weights (``core.model.loftq``)."""
_A, _B = ".lora_A.weight", ".lora_B.weight"


def begin_at_principal(model: nn.Module, lora: LoraChoice) -> None:
    """Starts the adapter at each matrix's principal parts; the global generator draws for the decomposition."""
    for module in adapted_layers(model).values():
        a, b = (tensor.detach().clone() for tensor in adapter_of(module))
        weight = dense_weight(module)
        outputs, inputs = weight.shape
        rank = min(lora.r, outputs, inputs)  # where R is more than W has, the rest begins as in plain LoRA
        linear = nn.Linear(inputs, outputs, bias=False, device="meta")
        linear.weight = nn.Parameter(weight.clone(memory_format=torch.contiguous_format), requires_grad=False)
        config = LoraConfig(
            r=rank,
            lora_alpha=lora.lora_alpha * rank / lora.r,  # the same scale
            target_modules=["linear"],
            init_lora_weights=lora.init_lora_weights,
        )
        (made,) = adapted_layers(get_peft_model(nn.Sequential(OrderedDict(linear=linear)), config)).values()
        a[:rank], b[:, :rank] = adapter_of(made)
        begin_at(module, a, b)


def write_as_plain(model: nn.Module, folder: Path) -> None:
    """Turns a saved adapter that has a start into the plain one of twice the rank."""
    if not (starts := starts_of(model)):
        return
    weights = load_file(folder / _WEIGHTS)
    for name, (a, b) in starts.items():
        weights[name + _A] = torch.cat((weights[name + _A], a.to(weights[name + _A])))
        weights[name + _B] = torch.cat((weights[name + _B], -b.to(weights[name + _B])), dim=1)
    config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    config |= {"r": 2 * config["r"], "lora_alpha": 2 * config["lora_alpha"]}
    (folder / _CONFIG).write_text(json.dumps(config, indent=2), encoding="utf-8")
    more = {} if starts_taken_off(model) else {CORRECTED: "true"}
    save_file(weights, folder / _WEIGHTS, metadata={"format": "pt", **more})


def read_from_plain(model: nn.Module, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The trained halves of what ``write_as_plain`` wrote; the others become ``model``'s start again, bit for bit."""
    weights = dict(weights)
    for name, (a, b) in starts_of(model).items():
        weights[name + _A], first = weights[name + _A].chunk(2)
        weights[name + _B], second = weights[name + _B].chunk(2, dim=1)
        a.copy_(first)
        b.copy_(-second)
    return weights
