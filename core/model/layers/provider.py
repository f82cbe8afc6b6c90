"""Where a model's frozen weights lie, and what a fast layer does before it reads its own.

A provider is asked once a layer, when layers are swapped. What it answers is called by that layer before it computes,
in a forward pass and again where it is recomputed, and by nobody per projection. Weights that lie on the card need
nothing: no call is made. A provider that moves weights waits there for its copy and starts the next layer's; since the
backward pass of a layer that was kept reads its weights unasked, such a provider wants every layer recomputed.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from torch import nn

Ready = Callable[[], None]
"""Returns when the layer's weights may be read by what is launched next."""
WeightProvider = Callable[[nn.Module, int], Ready | None]
"""Of a layer and its index what that layer calls; None where its weights are always ready."""

WEIGHT_PROVIDERS: Mapping[str, WeightProvider] = MappingProxyType({"card": lambda _layer, _index: None})
"""By where the weights lie."""
