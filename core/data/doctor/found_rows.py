"""The rows of a finding where they are many: all of them in a file of the cache, of which the table of rows reads what
it shows. Ascending row numbers, 4 bytes each."""

import hashlib
import io
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.machine.disk import write_whole

LISTED = 500
"""Rows that a finding lists itself."""
_FILES = 64


def keep_rows(folder: Path, rows: Sequence[int]) -> str:
    """The file with these rows; "" where it cannot be written."""
    numbers, written = np.unique(np.asarray(rows, np.uint32)), io.BytesIO()
    np.save(written, numbers)
    data = written.getvalue()
    place = folder / f"found-{hashlib.sha256(data).hexdigest()[:32]}.npy"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(place, data)
        known = sorted(folder.glob("found-*.npy"), key=lambda one: one.stat().st_mtime)
        for old in known[:-_FILES]:
            old.unlink(missing_ok=True)
    except OSError:
        return ""
    return str(place)


def rows_found(listed: Sequence[int], kept: str) -> NDArray[np.uint32]:
    """All rows of a finding, ascending; those that are ``listed`` where the file is gone."""
    with suppress(OSError, ValueError):
        if kept:
            found: NDArray[np.uint32] = np.load(kept, mmap_mode="r", allow_pickle=False)
            return found
    return np.unique(np.asarray(listed, np.uint32))
