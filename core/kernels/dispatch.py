"""Chooses Triton or plain torch, and imports Triton, which torch's CPU builds lack.

``TRITON_INTERPRET=1``, set before this is imported, runs the kernels on the CPU, for tests.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from types import SimpleNamespace
from typing import Any

import torch

__all__ = [
    "block_of",
    "dense_rows",
    "jit",
    "launch",
    "reference_only",
    "rows_run",
    "switched_off",
    "tl",
    "triton",
    "uncast",
    "use_triton",
]

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of torch
    triton = None
    tl = SimpleNamespace(constexpr=None)  # kernels name it where they are defined

LOWEST_CAPABILITY = (7, 5)
FLOATS = (torch.float32, torch.bfloat16, torch.float16)

_off = os.environ.get("LUTHIER_KERNELS") == "plain"
"""``LUTHIER_KERNELS=plain`` switches kernels off: so the kernel trial's verdict reaches the worker."""


def jit(function: Callable[..., Any] | None = None, *, varying: tuple[str, ...] = ()) -> Any:
    """``triton.jit``; without Triton the function unchanged, which is then never called.

    Triton specialises on integers that are 1 or multiples of 16, and on pointers' alignment. That is good for a model's
    sizes (loads become 16 bytes wide); ``varying`` excludes token counts and tensors of one value a token, which would
    recompile from step to step.
    """
    if function is None:
        return lambda kernel: jit(kernel, varying=varying)
    return function if triton is None else triton.jit(function, do_not_specialize=list(varying))


def switched_off() -> bool:
    """Whether every op takes its reference, on whatever device."""
    return _off


@contextmanager
def reference_only() -> Iterator[None]:
    """A context in which every op takes its reference."""
    global _off
    before, _off = _off, True
    try:
        yield
    finally:
        _off = before


def use_triton(tensor: torch.Tensor) -> bool:
    """Whether an op on this tensor runs its Triton kernel rather than its reference."""
    if _off or triton is None or tensor.dtype not in FLOATS:
        return False
    if not tensor.is_cuda:
        return os.environ.get("TRITON_INTERPRET") == "1"
    return _capable(tensor.get_device())


def rows_run(first: torch.Tensor, *others: torch.Tensor | None) -> bool:
    """``use_triton`` for kernels over rows: each row must be dense; rows may be strided."""
    if not use_triton(first) or first.stride(-1) != 1:
        return False
    for other in others:  # noqa: SIM110 - a generator is slower
        if other is not None and other.stride(-1) != 1:
            return False
    return True


@lru_cache(maxsize=16)
def _capable(index: int) -> bool:
    return torch.cuda.get_device_capability(index) >= LOWEST_CAPABILITY


@lru_cache(maxsize=1)
def _one_card() -> bool:
    return torch.cuda.device_count() == 1


def block_of(size: int) -> int:
    """The power of two at or above ``size``, as Triton's blocks need."""
    return 1 << max(0, int(size) - 1).bit_length()


def dense_rows(tensor: torch.Tensor) -> torch.Tensor:
    """``[T, W]`` of ``[..., W]`` with dense rows (those of an expanded gradient are not)."""
    rows = tensor.reshape(-1, tensor.shape[-1])
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Runs ``kernel`` on the device of its first tensor, which need not be the current one."""
    first = arguments[0]
    if not first.is_cuda:
        for of_a_card in ("num_warps", "num_stages", "enable_fp_fusion"):
            constants.pop(of_a_card, None)
        kernel[grid](*arguments, **constants)
    elif _one_card() or first.get_device() == torch.cuda.current_device():
        kernel[grid](*arguments, **constants)
    else:
        with torch.cuda.device(first.device):
            kernel[grid](*arguments, **constants)


def uncast(backward: Callable[..., Any]) -> Any:
    """Runs a backward pass without autocast."""

    @wraps(backward)
    def chosen(ctx: Any, first: torch.Tensor, *rest: torch.Tensor) -> Any:
        if not torch.is_autocast_enabled(first.device.type):
            return backward(ctx, first, *rest)
        with torch.autocast(first.device.type, enabled=False):
            return backward(ctx, first, *rest)

    return chosen
