"""Which errors are faults of the card, and which say that memory ran out.

After a fault of the card its context is lost for this process, whatever is caught; memory that ran out is none: what
did not fit can be done in smaller parts. By the names of classes and by words, since torch may be what could not be
imported; nothing heavy is imported here.
"""

_HOST_WORDS = ("DefaultCPUAllocator", "Cannot allocate memory", "failed to map segment", "std::bad_alloc")
"""torch's, the system's, the loader's of a library that is being imported, and C++'s."""
_FAULT_WORDS = (
    "CUDA error",
    "Triton Error [CUDA]",
    "cuDNN error",
    "CUDA driver error",
    "CUDA unknown error",
    "No CUDA GPUs are available",
)
"""What torch, Triton and cuDNN say when the driver refuses them: after a sleep, a reset, or a fault of a kernel."""
_CARD_WORDS = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")


def is_card_fault(error: BaseException) -> bool:
    """Whether only a fresh process can go on, from the last checkpoint; a full card is no such fault."""
    if is_out_of_memory(error):
        return False
    said = isinstance(error, RuntimeError) and any(word in str(error) for word in _FAULT_WORDS)
    return is_named(error, "AcceleratorError") or said


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the card's memory or the machine's ran out in what torch or a library of the card's was asked to do.

    torch says the first by a class of its own. What asks the driver by itself (a kernel's own room, page-locked memory,
    cuBLAS) says it in words, and a compiler may say it around another's words. Python's own ``MemoryError`` is another
    matter: what raises it is no pass.
    """
    if is_named(error, "OutOfMemoryError"):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in (*_CARD_WORDS, _HOST_WORDS[0]))


def is_host_full(error: BaseException) -> bool:
    """Whether it is the machine's memory, not the card's, that ran out."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, (RuntimeError, OSError, ImportError)) and any(word in str(error) for word in _HOST_WORDS)


def is_named(error: BaseException, name: str) -> bool:
    """Whether the error is of a class of this name, or of one that inherits from it."""
    return any(base.__name__ == name for base in type(error).__mro__)
