"""The 8-bit formats that products are computed in."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch


@dataclass(frozen=True)
class Format:
    """An 8-bit format. ``capability``: of the oldest card whose matrix units multiply it."""

    name: str
    dtype: torch.dtype
    largest: float
    capability: tuple[int, int]

    @property
    def whole(self) -> bool:
        """Whether its values are integers."""
        return not self.dtype.is_floating_point


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        one.name: one
        for one in (
            Format("fp8", torch.float8_e4m3fn, 448.0, (8, 9)),
            Format("int8", torch.int8, 127.0, (7, 5)),
        )
    }
)
OF_DTYPE: Mapping[torch.dtype, Format] = MappingProxyType({one.dtype: one for one in FORMATS.values()})
