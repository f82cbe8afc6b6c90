"""Importing the heavy libraries in half the time, and without going deaf: what a process does before and meanwhile;
and which of them are there, without importing any.

Light: whoever imports torch knows this first.
"""

import ctypes
import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

_ON_A_CPU = {"TORCHDYNAMO_DISABLE": "1", "OMP_WAIT_POLICY": "PASSIVE"}
_LAZY_GLOBAL = 0x1 | ctypes.RTLD_GLOBAL
_NOW = 0x2


def version_of(library: str) -> str:
    """A library's installed version with its build, such as ``2.13.0+cpu``; empty where it is not there."""
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


def without_card(base: Mapping[str, str]) -> dict[str, str]:
    """What the environment ``base`` of a process that computes on the CPU lacks; told before torch is imported.

    Nothing is compiled there: FlexAttention is for cards, and bitsandbytes brings the CPU its own library. Its mere
    decorators would import all of torch's compiler, though, 1.7 s of it. And OpenMP's threads wait asleep: spinning, as
    they would by themselves, each waits for one that has no core while browser and studio want one too, and a step of
    the tiny model takes 1.4 s in place of 0.05. What a person has chosen stays.
    """
    return {name: value for name, value in _ON_A_CPU.items() if name not in base}


@contextmanager
def importing() -> Iterator[None]:
    """Keeps the garbage collector still while the block imports libraries, and what they made out of its way for good.

    Half a million objects are made that all stay: every look through them, then and in each later full collection, is
    for nothing. Where torch is there already nothing is done: what a process has made since must not be kept for good.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    map_libraries()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def map_libraries() -> bool:
    """Maps torch's libraries into this process while its other threads run on; True where that was done.

    An import maps them too, with Python's lock held: half a second to three, in which no ear hears. The same files are
    opened here in torch's own order, by a call that lets the lock go; the import then finds them there. They know
    nothing of Python. What fails here is left to the import, and so is a build for CUDA, which chooses between its own
    libraries and the system's in ways of its own.
    """
    spec = find_spec("torch")
    if sys.platform != "linux" or spec is None or not spec.submodule_search_locations:
        return False
    folder = Path(spec.submodule_search_locations[0]) / "lib"
    if (folder / "libtorch_cuda.so").exists():
        return False
    try:
        dlopen = ctypes.CDLL(None).dlopen
    except (OSError, AttributeError):
        return False
    dlopen.restype, dlopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_int]
    files = (("libtorch_global_deps.so", _LAZY_GLOBAL), ("libtorch.so", _NOW))
    return all(dlopen(bytes(folder / name), mode) is not None for name, mode in files)
