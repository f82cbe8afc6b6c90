"""Tells faults of the card, after which this process has lost its CUDA context, from memory that ran out.

Errors are recognised by class names and messages, so that this works where torch cannot be imported.
"""

_HOST_WORDS = ("DefaultCPUAllocator", "Cannot allocate memory", "failed to map segment", "std::bad_alloc")
"""Of torch, the system, the loader of shared libraries, and C++."""
_FAULT_WORDS = (
    "CUDA error",
    "Triton Error [CUDA]",
    "cuDNN error",
    "CUDA driver error",
    "CUDA unknown error",
    "No CUDA GPUs are available",
)
"""Messages of torch, Triton and cuDNN after a sleep or reset of the card, or a fault of a kernel."""
_CARD_WORDS = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")


def is_card_fault(error: BaseException) -> bool:
    """Whether only a fresh process can go on; memory that ran out is no such fault."""
    if is_out_of_memory(error):
        return False
    in_words = isinstance(error, RuntimeError) and any(word in str(error) for word in _FAULT_WORDS)
    return is_named(error, "AcceleratorError") or in_words


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the card's or the machine's memory ran out in torch or a CUDA library.

    torch has a class for it; cuBLAS, cuDNN, kernels and page-locked memory only say it in a RuntimeError. Python's
    ``MemoryError`` does not count: no micro-batch raises it.
    """
    if is_named(error, "OutOfMemoryError"):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in (*_CARD_WORDS, _HOST_WORDS[0]))


def is_host_full(error: BaseException) -> bool:
    """Whether the machine's memory ran out, not the card's."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, (RuntimeError, OSError, ImportError)) and any(word in str(error) for word in _HOST_WORDS)


def is_named(error: BaseException, name: str) -> bool:
    """Whether a class of this name is among the error's class and its bases."""
    return any(base.__name__ == name for base in type(error).__mro__)
