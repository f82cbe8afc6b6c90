"""Makes and deletes job folders. A folder is built under another name, then renamed, so that it is seen whole or not
at all; the maker returns holding the job's supervisor lock.
"""

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import yaml

from core.contract.config import RunConfig
from core.contract.errors import MachineError, RunError
from core.contract.events import Queued
from core.machine.disk import cure, folder_bytes, make_durable, read_plain, write_whole
from core.machine.locations import Locations
from core.machine.locks import FileLock, is_held, locked
from core.runs.folder.flaws import NO_JOB, flaw_of
from core.runs.folder.job_folder import (
    RUN_ID,
    WRITTEN,
    ExportRequest,
    JobFolder,
    forbidden_by_windows,
    new_run_id,
)
from core.runs.folder.notes import note_began
from core.runs.folder.run_yaml import dump_config, expect_sound
from core.runs.log.events_log import EventWriter

NEW, _TRASH = ".new-", ".trash-"
_NOTE_BYTES = 1 << 10
KEPT_SECONDS = 86400.0
_MAKING_SECONDS = 60.0
"""A half-made folder without a lock is younger than this while its maker may still take it."""


def make_run(locations: Locations, config: RunConfig, note: Callable[[str], None]) -> tuple[JobFolder, FileLock]:
    """A new run's folder, queued by its first event.

    Args:
        note: called with the run id before the folder exists, so that after a kill there is no run without a note.

    Raises:
        ConfigError: the config has faults; all are named.
        MachineError: the disk does not take it.
    """
    expect_sound(config)
    locations.make()
    while (path := locations.runs / new_run_id(config)).exists():
        pass
    try:
        note(path.name)
    except OSError as error:
        raise _refused(path, error) from error
    folder, lock = make_job(path, "run.yaml", dump_config(config))
    note_began(folder, config)
    return folder, lock


def make_export(run: JobFolder, request: ExportRequest) -> tuple[JobFolder, FileLock]:
    """A new export job's folder. A name that is taken gets a number; that of a dead job without a result is reused.

    Raises:
        RunError: the name is none on Windows.
        MachineError: the disk does not take it.
    """
    if reason := forbidden_by_windows(request.name):
        raise RunError("export.name", name=request.name, reason=reason)
    sweep_exports(run)
    run.jobs.mkdir(mode=0o700, exist_ok=True)
    with locked(run.jobs / ".lock"):
        name, number = request.name, 1
        while os.path.lexists(run.exports / name) or not put_aside(run.jobs / name):
            number += 1
            name = f"{request.name[:60]}-{number}"
        text = yaml.safe_dump(request.model_copy(update={"name": name}).model_dump(mode="json"), sort_keys=False)
        return make_job(run.jobs / name, "export.yaml", text)


def put_aside(job: Path, seconds: float = 0.0) -> bool:
    """Deletes a dead job's folder; False where a living one has it, also after so long."""
    if not job.exists():
        return True
    lock = FileLock(JobFolder(job).supervisor_lock)
    if not lock.acquire(seconds):
        return False
    try:
        throw_away(job)
    finally:
        lock.release()
    return True


def make_job(path: Path, file: str, text: str) -> tuple[JobFolder, FileLock]:
    """A job's folder with this file in it, and ``Queued`` in its log.

    Raises:
        MachineError: the disk does not take it.
    """
    fresh = JobFolder(path.with_name(NEW + path.name))
    lock = FileLock(fresh.supervisor_lock)
    try:
        fresh.path.mkdir(mode=0o700)
        lock.acquire()
        (fresh.path / file).write_text(text, encoding="utf-8")
        make_durable(fresh.path / file)
        with closing(EventWriter(fresh.events, attempt=1)) as writer:
            writer.write(Queued())
        fresh.path.rename(path)
    except (OSError, MachineError) as error:
        lock.release()
        shutil.rmtree(fresh.path, ignore_errors=True)
        raise _refused(path, error) from error
    return JobFolder(path), lock


def _refused(path: Path, error: Exception) -> MachineError:
    return MachineError(
        "disk.write/run_folder",
        path=path,
        reason=getattr(error, "strerror", "") or error,
        cure=cure(error, "or choose another with --home"),
    )


def throw_away(path: Path) -> None:
    """Deletes a folder, renamed first: it is seen whole or not at all."""
    trash = path.with_name(f"{_TRASH}{path.name}-{secrets.token_hex(4)}")
    path.rename(trash)
    _remove(trash)


def throw_away_debris(path: Path) -> None:
    """Deletes a folder without a job's files, which processes made after the job was deleted."""
    if flaw_of(path) == NO_JOB:
        throw_away(path)


def _remove(path: Path) -> None:
    """Deletes a file, a folder, or a link itself."""
    with suppress(OSError):
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def sweep(locations: Locations) -> None:
    """Deletes what an interrupted deletion, an interrupted making, or a killed export left behind."""
    for run in locations.runs.iterdir():
        if RUN_ID.fullmatch(run.name) and not flaw_of(run):
            sweep_exports(JobFolder(run))
    for runs in [locations.runs, *locations.runs.glob("*/jobs")]:
        for trash in runs.glob(f"{_TRASH}*"):
            _remove(trash)
        for fresh in runs.glob(f"{NEW}*"):
            with suppress(OSError):
                if time.time() - fresh.stat().st_mtime > _MAKING_SECONDS and not is_held(fresh / "supervisor.lock"):
                    shutil.rmtree(fresh, ignore_errors=True)


def sweep_exports(run: JobFolder, ended: str = "", kept_seconds: float = KEPT_SECONDS) -> int:
    """Deletes half-made exports (a merged model takes gigabytes) that nobody works on; returns their bytes.

    Args:
        ended: names one whose supervisor is the caller.
        kept_seconds: for so long after it was last written to, one stays that the same export can go on from.
    """
    freed = 0
    for name, draft in run.export_drafts().items():
        job = JobFolder(run.jobs / name)
        if name != ended and (is_held(job.supervisor_lock) or is_held(job.events)):
            continue
        with suppress(OSError):
            if time.time() - (draft / WRITTEN).lstat().st_mtime < kept_seconds:
                continue
        freed += folder_bytes(draft)
        _remove(draft)
    return freed


@contextmanager
def once(locations: Locations, draft_id: str) -> Iterator[tuple[str, Callable[[str], None]]]:
    """Holds back all other starts under this root, so that a second Start of a draft opens the first one's run. Yields
    the run id that the draft became ('' for none) and a function that notes it. An empty draft id holds nothing.
    """
    if not draft_id:
        yield "", lambda _: None
        return
    folder, known = locations.runs / ".drafts", ""
    note = folder / hashlib.sha256(draft_id.encode()).hexdigest()[:32]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(folder / "lock"):
        with suppress(OSError, ValueError):
            known = read_plain(note, _NOTE_BYTES).decode()
        stands = RUN_ID.fullmatch(known) and (locations.runs / known).is_dir()
        yield known if stands else "", lambda run_id: write_whole(note, run_id)
