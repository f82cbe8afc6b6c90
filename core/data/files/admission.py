"""Which files may be read as data, for every way in (page, command line, upload, mixture, resume, queue).

Links are followed to a plain file that is not empty. Never data are files of the root folder besides ``data`` and
``uploads``, under whatever name (a link, a hard link, another mount), since the studio's secret is among them; files of
/proc and /sys; and sparse files, whose copy would take more room than they do.
"""

import errno
import os
import re
from pathlib import Path

from core.contract.errors import DataError
from core.machine.disk import open_plain
from core.machine.locations import ASSETS
from core.machine.textfile import ACCEPTED, one_line

_DATA_FOLDERS = ("data", "uploads")
_HASH = re.compile(r"[0-9a-f]{12,}")
_MADE_AS_READ = (Path("/proc"), Path("/sys"))
_HOLES_BYTES = 1 << 20
"""Text has no holes, and Parquet files only smaller ones."""
_EXTENTS = 4096


def admitted(path: Path, home: Path) -> Path:
    """Where a path leads, if that may be read as data; ``home`` is the root folder. Raises DataError as ``opened``."""
    descriptor, place = opened(path, home)
    os.close(descriptor)
    return place


def opened(path: Path, home: Path) -> tuple[int, Path]:
    """A descriptor of the admitted file, open for reading, and where the path leads.

    Raises:
        DataError: no plain file is there (``data.missing``), its permissions forbid reading (``data.unreadable``), or
            it is empty, ours, the system's, or sparse.
    """
    try:
        place = path.resolve()
        descriptor = open_plain(place)
    except PermissionError as error:
        raise DataError("data.unreadable/permission", path=_shown(path), reason=error.strerror) from error
    except (OSError, RuntimeError, ValueError) as error:  # not there, no file, a link to itself, a \0 in the name
        raise DataError("data.missing/path", accepted=ACCEPTED, path=_shown(path)) from error
    try:
        _check(descriptor, place, home)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, place


def named(path: Path, place: Path) -> Path:
    """The path whose name and suffix count for a file that was chosen as ``path`` and lies at ``place``: the latter,
    unless it is named by a hash, as in the hub's cache, where links bear the names."""
    return path.absolute() if _HASH.fullmatch(place.name) else place


def _check(descriptor: int, place: Path, home: Path) -> None:
    status = os.fstat(descriptor)
    if not place.is_relative_to(ASSETS):
        # By inode, since links may put folders anywhere.
        root, data_folders = _inode(home), {_inode(home / name) for name in _DATA_FOLDERS} - {None}
        above = [_inode(folder) for folder in place.parents]
        if root and root in above and data_folders.isdisjoint(above[: above.index(root)]):
            raise DataError("data.ours/folder", folder=_shown(home), path=_shown(place))
        for top, folders, names in os.walk(home):
            if any(_inode(Path(top, name)) == (status.st_dev, status.st_ino) for name in names):
                raise DataError("data.ours/own_file", path=_shown(place))
            # Subfolders matter only where the file has a second hard link.
            folders[:] = [one for one in folders if status.st_nlink > 1 and _inode(Path(top, one)) not in data_folders]
    if any(folder.is_mount() and status.st_dev == folder.stat().st_dev for folder in _MADE_AS_READ):
        raise DataError("data.system", path=_shown(place))
    if status.st_size == 0:
        raise DataError("data.empty/path", path=_shown(place))
    if _holes(descriptor, status.st_size) > _HOLES_BYTES:
        raise DataError("data.sparse", path=_shown(place))


def _inode(path: Path) -> tuple[int, int] | None:
    """The device and inode of a file or folder; None where it is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _holes(descriptor: int, size: int) -> int:
    """Bytes of a file that take no room on the disk; 0 where the file system does not tell."""
    data = place = 0
    try:
        for _ in range(_EXTENTS):
            start = os.lseek(descriptor, place, os.SEEK_DATA)
            place = os.lseek(descriptor, start, os.SEEK_HOLE)
            data += place - start
            if place >= size:
                break
        else:
            return size  # thousands of holes
    except OSError as error:
        if error.errno != errno.ENXIO:  # no data behind this place
            return 0
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)
    return size - data


def _shown(path: Path) -> str:
    return one_line(str(path), 300)
