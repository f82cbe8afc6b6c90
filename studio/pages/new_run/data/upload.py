"""``PUT /studio/upload``: a file of the person, streamed to disk under names of ours, readable by its owner only.

``uploads/ID/rows.jsonl`` holds the rows and ``uploads/ID/name`` the browser's name of the file, which travels in a
header and is used for showing and for the ending, never as a path. Uploads are limited in size and in number, and none
stays longer than a day: what is chosen is copied to ``data``, and its upload goes with that.

A person at this machine may send as many files as the disk takes, one after another; from elsewhere (``--listen``) only
so many within ten minutes.
"""

import asyncio
import contextlib
import ipaddress
import json
import os
import re
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from fastapi import APIRouter, Request

from core.contract.config import DataChoice
from core.contract.errors import DataError, MachineError
from core.data.files.keep import KeptFile, keep_file
from core.data.service.reader import NO_DATA
from core.machine.disk import cure
from core.machine.locations import Locations
from studio.pages.new_run.data.recipe import RECIPE_ENDINGS
from studio.services.services import Studio

ENDINGS = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt", ".md")
_ID = re.compile(r"[A-Za-z0-9_-]{16,40}")
_NAME = "name"
_LONGEST_NAME = 120
_SPARE_BYTES = 200 << 20
_MOST_BYTES = 64 << 30
_MOST_WAITING = 32
"""Most uploads kept; beyond it those older than ten minutes are deleted."""
_MOST_AT_ONCE = 8
_LOOK_BYTES = 64 << 20
"""Free space is read again after so many bytes."""
_DAY, _BUSY = 24 * 3600, 600


def uploads(studio: Studio) -> APIRouter:
    """The route; a faulty upload leaves nothing behind."""
    router = APIRouter()
    at_once = asyncio.Semaphore(_MOST_AT_ONCE)

    @router.put("/studio/upload")
    async def put(request: Request) -> dict[str, str | int]:
        name = _name(request.headers.get("x-file-name", ""))
        if at_once.locked():
            raise MachineError("upload.busy", most=_MOST_AT_ONCE)
        async with at_once:
            return await _received(request, name)

    async def _received(request: Request, name: str) -> dict[str, str | int]:
        locations = studio.locations
        forget_old(locations)
        here = False  # sent from this machine
        with contextlib.suppress(ValueError):
            here = request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
        if not here and sum(1 for _ in locations.uploads.iterdir()) >= _MOST_WAITING:
            raise MachineError("upload.count", most=_MOST_WAITING)
        free = shutil.disk_usage(locations.uploads).free - _SPARE_BYTES
        announced = request.headers.get("content-length", "")
        wanted = int(announced) if announced.isdigit() else 0
        if wanted > free:
            needed, left = wanted / 1e9, max(free, 0) / 1e9
            raise MachineError("disk.full/upload_room", wanted=needed, home=locations.home, free=left)
        if wanted > _MOST_BYTES:
            raise MachineError("upload.size", most=_MOST_BYTES >> 30, wanted=wanted / 1e9)
        folder = locations.uploads / secrets.token_urlsafe(16)
        try:
            folder.mkdir(mode=0o700)
            (folder / _NAME).write_text(name, encoding="utf-8")
            count = await _stream(request, folder / f"rows{Path(name).suffix.lower()}", min(free, _MOST_BYTES))
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if not isinstance(error, OSError):
                raise
            reason, wish = error.strerror or error, cure(error, "or move the root folder: --home DIR")
            raise MachineError("disk.write/upload", home=locations.home, reason=reason, cure=wish) from error
        return {"id": folder.name, "name": name, "bytes": count}

    return router


@dataclass(frozen=True)
class Uploaded:
    """An upload's file, and its name in the browser."""

    path: Path
    name: str


def uploaded(locations: Locations, key: str) -> Uploaded:
    """The file of an upload.

    Raises:
        DataError: there is none of this id.
    """
    if _ID.fullmatch(key):
        folder = locations.uploads / key
        with contextlib.suppress(OSError, ValueError, StopIteration):
            return Uploaded(next(folder.glob("rows.*")), (folder / _NAME).read_text(encoding="utf-8"))
    raise DataError("data.upload_gone")


def is_waiting(locations: Locations, key: str) -> bool:
    """Whether this upload of rows is still to be taken."""
    try:
        return uploaded(locations, key).path.suffix not in RECIPE_ENDINGS
    except DataError:
        return False


def taken(studio: Studio, key: str) -> KeptFile:
    """Moves an upload to a file kept under its content's hash; deletes one whose content is no data.

    Raises:
        DataError: there is none of this id, it is no data, or it cannot be kept.
    """
    locations = studio.locations
    sent = uploaded(locations, key)
    try:
        studio.data.first_look(sent.path, DataChoice())
    except DataError as error:
        if error.code in NO_DATA:  # else a person can help with its layout
            shutil.rmtree(sent.path.parent, ignore_errors=True)
            told = json.dumps(error.told()).replace(json.dumps(sent.path.name)[1:-1], json.dumps(sent.name)[1:-1])
            raise DataError.told_by(json.loads(told)) from error
    kept = keep_file(sent.path, locations, sent.name)
    shutil.rmtree(sent.path.parent, ignore_errors=True)
    return kept


def _name(sent: str) -> str:
    """The browser's name as a harmless file name with a known ending."""
    last = unquote(sent).replace("\\", "/").rsplit("/", 1)[-1]
    plain = re.sub(r"[^\w .()+-]", "_", last).strip(". ")[-_LONGEST_NAME:]
    ending = Path(plain).suffix.lower()
    if ending not in (*ENDINGS, *RECIPE_ENDINGS):
        raise DataError("data.ending", endings=", ".join(ENDINGS), name=plain or "no name")
    return plain


async def _stream(request: Request, target: Path, room: int) -> int:
    count = 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        async for block in request.stream():
            count, before = count + len(block), count
            looked = count // _LOOK_BYTES == before // _LOOK_BYTES
            if count > room or not (looked or shutil.disk_usage(target).free > _SPARE_BYTES):
                raise MachineError("disk.full/upload")
            file.write(block)
    if not count:
        raise DataError("data.empty/upload")
    return count


def forget_old(locations: Locations) -> None:
    """Removes uploads older than a day; where there are many, older than ten minutes."""
    folders = list(locations.uploads.iterdir())
    longest = _DAY if len(folders) < _MOST_WAITING else _BUSY
    for folder in folders:
        with contextlib.suppress(OSError):  # another upload's clean-up removed it
            if time.time() - folder.lstat().st_mtime > longest:
                shutil.rmtree(folder, ignore_errors=True)
