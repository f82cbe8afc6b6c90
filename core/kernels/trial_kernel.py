"""The trial's kernel, and whether a card can run it."""

import torch

from core.kernels.dispatch import LOWEST_CAPABILITY, jit, launch, tl

COUNT = 64


@jit
def _add_one(values, COUNT: tl.constexpr):  # type: ignore[no-untyped-def]
    index = tl.arange(0, COUNT)
    tl.store(values + index, tl.load(values + index) + 1.0)


def card_problem() -> str:
    """Why no kernel can run on the first card, in one line; empty when one can."""
    if not torch.cuda.is_available():
        return "torch sees no CUDA card"
    capability = torch.cuda.get_device_capability(0)
    if capability < LOWEST_CAPABILITY:
        wanted = ".".join(map(str, LOWEST_CAPABILITY))
        return f"the card has compute capability {capability[0]}.{capability[1]}; kernels need {wanted}"
    return ""


def adds_one(device: str = "cuda") -> bool:
    """Builds and runs the kernel; whether its result is right."""
    values = torch.zeros(COUNT, device=device)
    launch(_add_one, (1,), values, COUNT=COUNT)
    return bool((values == 1.0).all())
