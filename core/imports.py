"""Importing the heavy libraries in half the time: what a process does about it before and while it imports them.

Light: whoever imports torch knows this first.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

__all__ = ["importing", "without_card"]

_DYNAMO = "TORCHDYNAMO_DISABLE"


def without_card(base: Mapping[str, str]) -> dict[str, str]:
    """What the environment ``base`` of a process that computes on the CPU lacks; told before torch is imported.

    Nothing is compiled there: FlexAttention is for cards, and bitsandbytes brings the CPU its own library. Its mere
    decorators would import all of torch's compiler, though, 1.7 s of it. What a person has chosen stays.
    """
    return {} if _DYNAMO in base else {_DYNAMO: "1"}


@contextmanager
def importing() -> Iterator[None]:
    """Keeps the garbage collector still while the block imports libraries, and what they made out of its way for good.

    Half a million objects are made that all stay: every look through them, then and in each later full collection, is
    for nothing. Where torch is there already nothing is done: what a process has made since must not be kept for good.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
