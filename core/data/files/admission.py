"""Which files may be read as data: one rule for every way in (window, command line, upload, mixture, resume, queue).

A path is followed to its end, links too, and is read as what it leads to. There must lie a plain file with something
in it. Three kinds are never data: files of the root folder besides ``data`` and ``uploads``, under whatever name (a
link, a hard link, another mount), since the studio's secret is one of them; files of the system that are made as they
are read; and sparse files, whose copy would take room that they do not.
"""

import errno
import os
import re
from pathlib import Path

from core.contract.errors import DataError
from core.machine.disk import open_plain
from core.machine.locations import ASSETS
from core.machine.textfile import ACCEPTED, one_line

_OPEN = ("data", "uploads")
_HASH = re.compile(r"[0-9a-f]{12,}")
_MADE_AS_READ = (Path("/proc"), Path("/sys"))
_HOLES_BYTES = 1 << 20
"""Text has no holes, and no Parquet file as large a one."""
_EXTENTS = 4096


def admitted(path: Path, home: Path) -> Path:
    """Where a path leads, if that may be read as data; ``home`` is the root folder.

    Raises:
        DataError: no plain file can be read there (``data.missing``), it is empty, ours, or sparse.
    """
    descriptor, place = opened(path, home)
    os.close(descriptor)
    return place


def opened(path: Path, home: Path) -> tuple[int, Path]:
    """The same with the file open for reading: what was looked at is what is read.

    Raises:
        DataError: as ``admitted``; ``data.unreadable`` where its owner lets nobody read it.
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
    """The path by whose name and suffix a file goes that was chosen as ``path`` and lies at ``place``.

    Caches (the hub's, of data under version control) name files by a hash of their content and lead to them by links
    that bear the name. A link to any other file goes by what it leads to: it makes no data of what is none.
    """
    return path.absolute() if _HASH.fullmatch(place.name) else place


def _check(descriptor: int, place: Path, home: Path) -> None:
    found = os.fstat(descriptor)
    if not place.is_relative_to(ASSETS):
        _refuse_ours(place, found, home)
    if any(folder.is_mount() and found.st_dev == folder.stat().st_dev for folder in _MADE_AS_READ):
        raise DataError("data.system", path=_shown(place))
    if found.st_size == 0:
        raise DataError("data.empty/path", path=_shown(place))
    if _holes(descriptor, found.st_size) > _HOLES_BYTES:
        raise DataError("data.sparse", path=_shown(place))


def _refuse_ours(place: Path, found: os.stat_result, home: Path) -> None:
    """Raises DataError where a file belongs to the root folder without being anybody's data."""
    # The folders of data, wherever a link puts them: also elsewhere in the root folder.
    root, opens = _mark(home), {_mark(home / name) for name in _OPEN} - {None}
    above = [_mark(folder) for folder in place.parents]  # under whatever name
    if root and root in above and opens.isdisjoint(above[: above.index(root)]):
        folder, shown = _shown(home), _shown(place)
        raise DataError("data.ours/folder", folder=folder, path=shown)
    for top, folders, names in os.walk(home):
        if any(_mark(Path(top, name)) == (found.st_dev, found.st_ino) for name in names):
            raise DataError("data.ours/own_file", path=_shown(place))
        # Secrets lie beside the folders. A file of a folder can only bear another name if it bears two.
        folders[:] = [one for one in folders if found.st_nlink > 1 and _mark(Path(top, one)) not in opens]


def _mark(path: Path) -> tuple[int, int] | None:
    """What a file or folder is, whatever it is called."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _holes(descriptor: int, size: int) -> int:
    """Bytes of a file that lie nowhere on the disk; 0 where the file system does not tell."""
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
