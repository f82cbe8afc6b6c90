"""STARTS: where a fresh adapter begins other than at no change, a row each; makers are ``BEGINNINGS`` in
``core.model.adapters``."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

StartName = Literal["default", "pissa_niter_16", "loftq"]
"""As ``lora.init_lora_weights`` has it in a config: peft's names."""


@dataclass(frozen=True)
class AdapterStart:
    """One beginning. Beside the adapter lies a frozen copy of it, and what is saved is the change since."""

    taken_off: bool
    """Whether the copy is taken from the base's product, so that nothing changes at first."""
    of_quantised: bool
    """Whether it corrects quantised weights by those on disk: whole ones have nothing to correct."""


STARTS: Mapping[str, AdapterStart] = MappingProxyType(
    {
        "pissa_niter_16": AdapterStart(taken_off=True, of_quantised=False),
        "loftq": AdapterStart(taken_off=False, of_quantised=True),
    }
)
