"""``PUT /studio/upload``: a file of the person, streamed to disk under an id of ours, readable by its owner only.

The browser's name of the file travels in a header and is used for showing and for its ending, never as a path.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from pathlib import Path
from urllib.parse import unquote

from fastapi import APIRouter, Request

from core.contract.errors import DataError, MachineError
from core.locations import Locations
from studio.house import Studio

__all__ = ["ENDINGS", "uploaded", "uploads"]

ENDINGS = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt", ".md")
_ID = re.compile(r"[\w-]{16,40}")
_SPARE_BYTES = 200 << 20
_DAY = 24 * 3600


def uploads(studio: Studio) -> APIRouter:
    """The route; a faulty upload leaves nothing behind."""
    router = APIRouter()

    @router.put("/studio/upload")
    async def put(request: Request) -> dict[str, str | int]:
        name = _name(request.headers.get("x-file-name", ""))
        room = _room(studio.locations, request.headers.get("content-length", ""))
        folder = studio.locations.uploads / secrets.token_urlsafe(16)
        try:
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise _unwritable(studio.locations, error) from error
        try:
            count = await _stream(request, folder / name, room)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise _unwritable(studio.locations, error) from error
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        _forget_old(studio.locations)
        return {"id": folder.name, "name": name, "bytes": count}

    return router


def uploaded(locations: Locations, key: str) -> Path:
    """The file of an upload.

    Raises:
        DataError: there is none of this id.
    """
    folder = locations.uploads / key
    found = sorted(folder.iterdir()) if _ID.fullmatch(key) and folder.is_dir() else []
    if not found:
        raise DataError("data.upload_gone", "Expected the uploaded file, found it gone.", "Choose the file again.")
    return found[0]


def _name(sent: str) -> str:
    """The browser's name as a harmless file name with an ending that we read."""
    plain = re.sub(r"[^\w .()+-]", "_", unquote(sent).replace("\\", "/").rsplit("/", 1)[-1]).strip(". ")[-120:]
    ending = Path(plain).suffix.lower()
    if ending not in ENDINGS:
        raise DataError(
            "data.ending",
            f"Expected a file that ends in {', '.join(ENDINGS)}; found {plain or 'no name'!r}.",
            "Convert it, or give it its true ending.",
        )
    return plain


def _room(locations: Locations, announced: str) -> int:
    free = shutil.disk_usage(locations.uploads).free - _SPARE_BYTES
    wanted = int(announced) if announced.isdigit() else 0
    if wanted > free:
        raise MachineError(
            "disk.full",
            f"Expected {wanted / 1e9:.1f} GB of room at {locations.home}, found {max(free, 0) / 1e9:.1f} GB.",
            "Make room, or move the root folder: --home DIR.",
        )
    return free


def _unwritable(locations: Locations, error: OSError) -> MachineError:
    message = f"Expected to write the file to {locations.home}, found: {error.strerror or error}."
    return MachineError("disk.write", message, "Make room, or move the root folder: --home DIR.")


async def _stream(request: Request, target: Path, room: int) -> int:
    count = 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        async for block in request.stream():
            count += len(block)
            if count > room:
                raise MachineError("disk.full", "The disk is full.", "Make room, or move the root folder: --home DIR.")
            file.write(block)
    if not count:
        raise DataError("data.empty", f"Expected rows in {target.name}, found an empty file.", "Choose another file.")
    return count


def _forget_old(locations: Locations) -> None:
    """Uploads that nobody chose to the end; what was chosen has been copied to ``data``."""
    for folder in locations.uploads.iterdir():
        if folder.is_dir() and time.time() - folder.stat().st_mtime > _DAY:
            shutil.rmtree(folder, ignore_errors=True)
