"""Which errors are faults of the card: its context is lost for this process, whatever is caught.

By the names of classes, since torch may be what could not be imported; nothing heavy is imported here.
"""

from __future__ import annotations

__all__ = ["is_card_fault", "is_named"]


def is_card_fault(error: BaseException) -> bool:
    """Whether only a fresh process can go on; a full card is no such fault."""
    if is_named(error, "OutOfMemoryError") or "out of memory" in str(error):
        return False
    return is_named(error, "AcceleratorError") or "CUDA error" in str(error)


def is_named(error: BaseException, name: str) -> bool:
    """Whether the error is of a class of this name, or of one that inherits from it."""
    return any(base.__name__ == name for base in type(error).__mro__)
