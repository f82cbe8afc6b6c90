"""A hash of the code that makes a cache file, as part of its name: what other code made is not used."""

import hashlib
from functools import cache
from pathlib import Path

from core.machine.imports import version_of

_DATA = Path(__file__).parents[1]
_CORE = _DATA.parent
_SHARED = (_CORE / "contract" / "data.py", _CORE / "contract" / "methods.py", _CORE / "machine" / "textfile.py")


@cache
def code_digest(*folders: str, packages: tuple[str, ...] = ()) -> str:
    """A hash of the source of these folders of the data room and of what they share, and of the packages' versions."""
    digest = hashlib.sha256()
    for file in [*(file for folder in folders for file in sorted((_DATA / folder).rglob("*.py"))), *_SHARED]:
        digest.update(file.name.encode() + file.read_bytes())
    for package in packages:
        digest.update(f"{package}\0{version_of(package)}\0".encode())
    return digest.hexdigest()
