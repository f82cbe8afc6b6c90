"""Files on a disk: small ones are replaced whole, untrusted ones are read within bounds; how much a folder takes.

.tmp-NAME-THREAD.PROCESS.part ─► written (and made durable) ─► renamed to NAME
"""

import contextlib
import errno
import hashlib
import json
import os
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from core.contract.errors import MachineError

if TYPE_CHECKING:  # the command line's help needs no package
    from pydantic import BaseModel

M = TypeVar("M", bound="BaseModel")
_OWN = "sha256"
"""A sealed file's key for the SHA-256 of its other values."""

APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND
"""How a log is opened."""


@contextmanager
def drafted(target: Path) -> Iterator[Path]:
    """A path beside ``target``, renamed to it when the block ends well, else deleted."""
    draft = target.with_name(f".tmp-{target.name}-{threading.get_native_id()}.{os.getpid()}.part")
    try:
        yield draft
        draft.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def write_whole(target: Path, content: bytes | str, *, mode: int = 0o600, durable: bool = False) -> None:
    """Writes a small file, whole or not at all; text as UTF-8.

    Args:
        mode: permissions, less the umask.
        durable: it survives a power cut.

    Raises:
        OSError: the disk is full, or nothing may be written there; the old file stays.
    """
    with drafted(target) as draft:
        descriptor = open_plain(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(file.fileno())


def append_line(path: Path, line: bytes) -> None:
    """Adds a line in one write, behind a newline where the last line is torn; the caller holds a lock.

    Raises:
        OSError: the disk is full, or nothing may be written there; nothing of the line stays.
    """
    descriptor = open_plain(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        size = os.fstat(descriptor).st_size
        torn = size and os.pread(descriptor, 1, size - 1) != b"\n"
        whole = b"\n" * bool(torn) + line + b"\n"
        if os.write(descriptor, whole) < len(whole):
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def write_sealed(target: Path, said: Mapping[str, Any], *, durable: bool = False) -> None:
    """Writes JSON values with their SHA-256, which ``read_sealed`` checks; whole or not at all.

    Raises:
        OSError: as ``write_whole``.
    """
    write_whole(target, json.dumps({**said, _OWN: _sha256_of(said)}), durable=durable)


def read_sealed(path: Path, most: int | None = None) -> dict[str, Any]:
    """What ``write_sealed`` wrote; with ``most``, only a plain file of at most so many bytes (see ``read_plain``).

    Raises:
        OSError: there is nothing, or nothing that may be read.
        ValueError: it is not as it was written.
    """
    try:
        said = json.loads(path.read_bytes() if most is None else read_plain(path, most))
    except RecursionError as error:
        raise ValueError(f"{path.name} is not as it was written") from error
    own = said.pop(_OWN, "") if isinstance(said, dict) else ""
    if not isinstance(said, dict) or own != _sha256_of(said):
        raise ValueError(f"{path.name} is not as it was written")
    return said


def _sha256_of(said: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def keep_private() -> None:
    """From now on others may not write what this process or its children create."""
    os.umask(os.umask(0o022) | 0o022)


def make_durable(path: Path) -> None:
    """Syncs a file, or a folder's list of names, so that it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_plain(path: Path, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """A descriptor of a regular file, opened without following a link in its last part and without blocking on a pipe.

    Raises:
        OSError: ELOOP for a link, EINVAL for another kind of file, and whatever opening raises.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "Not a regular file", str(path))


def stamp_of(path: Path) -> tuple[int, ...]:
    """What is another one once a file was written or replaced; empty where none is there."""
    try:
        status = os.lstat(path)
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read_plain(path: Path, most: int) -> bytes:
    """All of a small regular file that others may have written: see ``open_plain``.

    Raises:
        OSError: EFBIG for one of more than ``most`` bytes, and what ``open_plain`` raises.
    """
    with os.fdopen(open_plain(path), "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"Larger than {most:,} bytes", str(path))
    return content


def read_object(path: Path, most: int) -> dict[str, Any]:
    """The JSON object in a small file that others may have written; empty where there is none that can be read."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        said = json.loads(read_plain(path, most))
        return said if isinstance(said, dict) else {}
    return {}


def read_model(path: Path, most: int, kind: type[M]) -> M | None:
    """The same as one of our classes; None where there is none that can be read."""
    with contextlib.suppress(OSError, ValueError):  # pydantic's own is one
        return kind.model_validate_json(read_plain(path, most))
    return None


_FULL = (errno.ENOSPC, errno.EDQUOT)
_CURES = (
    (_FULL, "Make room on this disk"),
    ((errno.EACCES, errno.EPERM, errno.EROFS), "Give yourself the right to write there"),
    (
        (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP),
        "This disk keeps no file locks, as some network drives do: choose one that does with --home",
    ),
    ((errno.EMFILE, errno.ENFILE, errno.ENOMEM), "Close other programs"),
    ((errno.EIO, errno.ESTALE, errno.ENODEV), "Look after this disk: it does not answer as it should"),
)


def cure(error: BaseException, then: str = "") -> str:
    """What a person can do where a file or a lock was refused, by the errno of ``error`` or its cause; ``then`` is what
    to do afterwards."""
    known = {code: words for codes, words in _CURES for code in codes}
    refusal = next((one for one in (error, error.__cause__) if isinstance(one, OSError)), None)
    words = known.get(refusal.errno or 0, "") if refusal else ""
    words = words or "Look whether this disk can be written"
    return f"{words}, {then}." if then else f"{words}."


def not_written(name: object, error: OSError, then: str = "") -> MachineError:
    """The fault of a file that was refused; ``then`` is what to do after its cure."""
    return MachineError("disk.write/file", name=name, reason=error.strerror or error, cure=cure(error, then))


def is_full(error: BaseException) -> TypeGuard[OSError]:
    """Whether the disk, or this user's share of it, had no room."""
    return isinstance(error, OSError) and error.errno in _FULL


def file_sha256(path: Path) -> str:
    """The content hash of a file, hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def name_of(parts: Sequence[object]) -> str:
    """A cache key for these JSON values: 32 hexadecimal digits."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def folder_bytes(folder: Path, besides: str = "") -> int:
    """Bytes of all files under a folder, without those of the name ``besides``."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            if name != besides:
                with contextlib.suppress(OSError):
                    total += os.lstat(os.path.join(root, name)).st_size  # noqa: PTH118 - of thousands of files
    return total
