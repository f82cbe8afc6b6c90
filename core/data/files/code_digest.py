"""What code made a cache file: part of its name, so that what older code left is not used and nobody counts a version
up. After an upgrade a file is read once more."""

import hashlib
from functools import cache
from pathlib import Path

from core.machine.imports import version_of

_DATA = Path(__file__).parents[1]
_SHARED = (_DATA.parent / "contract" / "data.py", _DATA.parent / "machine" / "textfile.py")


@cache
def code_digest(*folders: str, packages: tuple[str, ...] = ()) -> str:
    """The source of these folders of the data room and of what they all share, and the versions of packages."""
    digest = hashlib.sha256()
    for file in [*(file for folder in folders for file in sorted((_DATA / folder).rglob("*.py"))), *_SHARED]:
        digest.update(file.name.encode() + file.read_bytes())
    for package in packages:
        digest.update(f"{package}\0{version_of(package)}\0".encode())
    return digest.hexdigest()
