"""Importing heavy libraries fast and without blocking other threads; installed versions, without an import."""

import ctypes
import gc
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

_ON_A_CPU = {"TORCHDYNAMO_DISABLE": "1", "OMP_WAIT_POLICY": "PASSIVE"}
_LAZY_GLOBAL = 0x1 | ctypes.RTLD_GLOBAL
_NOW = 0x2


@cache
def version_of(library: str) -> str:
    """A library's installed version and build, such as ``2.13.0+cpu``; empty where it is missing. Read once."""
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


def unmet_by(library: str, other: str) -> str:
    """The versions of another library that an installed one is made for, such as ``==2.10.0``, where this one's is none
    of them; empty where it fits, or either is missing."""
    from packaging.requirements import Requirement

    have = version_of(other)
    wanted = map(Requirement, requires(library) or ()) if have and version_of(library) else ()
    asked = (str(one.specifier) for one in wanted if one.name == other and not one.specifier.contains(have, True))
    return next(asked, "")


def missing_of(names: Iterable[str]) -> list[str]:
    """Those of these packages that cannot be imported."""
    return [name for name in names if find_spec(name) is None]


def install_command(names: Iterable[str]) -> str:
    """What a person types to install packages for this program."""
    return shlex.join([sys.executable, "-m", "pip", "install", *names])


def without_card(base: Mapping[str, str]) -> dict[str, str]:
    """Variables that ``base`` lacks for a process that computes on the CPU; set before torch is imported.

    Nothing is compiled there, but bitsandbytes' decorators would import torch's compiler (1.7 s). And OpenMP's threads
    sleep while they wait: where other programs use a core too, spinning makes a step of the tiny model 1.4 s, not 0.05.
    """
    return {name: value for name, value in _ON_A_CPU.items() if name not in base}


@contextmanager
def importing() -> Iterator[None]:
    """Disables garbage collection while the block imports libraries, then freezes their objects: half a million that
    stay. Does nothing where torch is imported already, since later objects must not be frozen.

    Within it there is no ``datasets``: transformers' Trainer would import it, and pandas with it (0.7 s), only to know
    a data set of its kind.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    map_libraries()
    gc.disable()
    hidden = sys.modules.setdefault("datasets", None) is None  # type: ignore[arg-type]
    try:
        yield
    finally:
        if hidden:
            del sys.modules["datasets"]
        gc.freeze()
        gc.enable()


def map_libraries() -> bool:
    """Maps torch's libraries into this process without holding Python's lock; True where that was done.

    The import would hold it for half a second to three, in which no other thread runs. The files are opened in torch's
    own order. A failure is left to the import, and so is a CUDA build, which has its own way to choose libraries.
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
