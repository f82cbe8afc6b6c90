"""Runs as files: one written to be given away, and one that somebody gave opened as a run of its own."""

import asyncio
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote

from fastapi import APIRouter, Body, Request
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from core.contract.config import RunConfig
from core.contract.errors import MachineError, RunError
from core.machine.disk import cure, file_sha256
from core.machine.locations import Locations
from core.runs.control.exported import ended
from core.runs.control.open_file import open_run_file
from core.runs.record.run_file import file_name, write_run_file
from studio.services.services import Studio
from studio.services.session import SAMPLES, sample_path

_KEY = re.compile(r"[A-Za-z0-9_-]{16,40}")
_MOST_BYTES = 16 << 30
_SPARE_BYTES = 200 << 20
_MOST_AT_ONCE = 2
_LONGEST_NAME = 120


def file_routes(studio: Studio) -> APIRouter:
    """``/studio/run/ID/pack``, ``/studio/packed/KEY`` and ``/studio/open``. What is under way lies among the uploads,
    which are cleared by themselves."""
    router = APIRouter(prefix="/studio")
    locations, at_once = studio.locations, asyncio.Semaphore(_MOST_AT_ONCE)

    @router.post("/run/{run_id}/pack")
    def pack(run_id: str, adapter: Annotated[bool, Body(embed=True)] = False) -> dict[str, str]:
        folder = ended(studio.store, run_id)
        key = secrets.token_urlsafe(16)
        place = locations.uploads / key
        try:
            place.mkdir(mode=0o700)
            with (place / file_name(folder)).open("xb") as file:
                write_run_file(folder, file, adapter)
        except BaseException as error:
            shutil.rmtree(place, ignore_errors=True)
            raise _refused(locations, error) from error
        return {"path": f"/studio/packed/{key}"}

    @router.get("/packed/{key}")
    def packed(key: str) -> FileResponse:
        """The file, once: it is deleted when it was sent."""
        place = locations.uploads / key
        files = list(place.glob("*.luthier.zip")) if _KEY.fullmatch(key) else []
        if not files:
            raise RunError("run.unknown/none", run_id=key[:40])
        gone = BackgroundTask(shutil.rmtree, place, ignore_errors=True)
        return FileResponse(files[0], media_type="application/zip", filename=files[0].name, background=gone)

    @router.put("/open")
    async def opened(request: Request) -> dict[str, str]:
        name = _name(request.headers.get("x-file-name", ""))
        async with at_once:
            place = locations.uploads / secrets.token_urlsafe(16)
            try:
                place.mkdir(mode=0o700)
                await _stream(request, place / "run.zip")
                return {"run": await asyncio.to_thread(open_run_file, place / "run.zip", locations, name)}
            except OSError as error:
                raise _refused(locations, error) from error
            finally:
                shutil.rmtree(place, ignore_errors=True)

    return router


def _refused(locations: Locations, error: BaseException) -> BaseException:
    """The fault of a disk that refuses; any other error as it is."""
    if not isinstance(error, OSError):
        return error
    reason, wish = error.strerror or error, cure(error, "then try again")
    return MachineError("disk.write/upload", home=locations.home, reason=reason, cure=wish)


def _name(sent: str) -> str:
    """The browser's name of the file, for messages."""
    last = unquote(sent).replace("\\", "/").rsplit("/", 1)[-1]
    return re.sub(r"[^\w .()+-]", "_", last)[-_LONGEST_NAME:] or "run.luthier.zip"


async def _stream(request: Request, target: Path) -> None:
    """Writes the request's body to a file, as far as there is room."""
    room, count = min(shutil.disk_usage(target.parent).free - _SPARE_BYTES, _MOST_BYTES), 0
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        async for block in request.stream():
            count += len(block)
            if count > room:
                raise MachineError("disk.full/upload")
            file.write(block)


def at_home(config: RunConfig, locations: Locations) -> RunConfig:
    """The settings of a run that was opened from a file, with the same data where this machine has it; else without."""
    data, found = config.data, ""
    if data.sha256:
        samples = (path for path in map(sample_path, SAMPLES) if path.name == data.path)
        there = (path for path in samples if file_sha256(path) == data.sha256)
        found = str(next(iter([*sorted((locations.data / data.sha256).glob("*")), *there]), ""))
    less = {"path": found, "sha256": data.sha256 if found else ""}
    return config.model_copy(update={"data": data.model_copy(update=less)})
