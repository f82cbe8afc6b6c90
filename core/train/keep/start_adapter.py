"""The adapter that a run goes on from (``resume_from``), copied into the run's own folder at its first attempt.

    start/ORIGIN.json   sealed: run, checkpoint, and of each file its SHA-256       start/adapter/   peft's format

From then on the other run may be trained on or deleted: this one's attempts begin with the same adapter, and so does
the reference of its DPO. A copy that is damaged is made again where the other run still has that checkpoint as its
best; whether it is the same adapter is seen from its hash, which every checkpoint names (``core.train.keep.depends``).
Light: nothing of torch is imported here.
"""

import hashlib
import json
import shutil
from pathlib import Path

from core.contract.config import RunConfig
from core.contract.errors import MachineError, RunError
from core.machine.disk import cure, file_sha256, make_durable, read_sealed, write_sealed
from core.runs.folder.job_folder import JobFolder
from core.train.channel.channel import Channel
from core.train.keep import checkpoint

_ADAPTER, _ORIGIN = "adapter", "ORIGIN.json"
_TRIES = 3


def start_folder(folder: JobFolder) -> Path:
    """The adapter, in peft's format, that ``keep_start`` put there."""
    return folder.path / "start" / _ADAPTER


def keep_start(folder: JobFolder, config: RunConfig, channel: Channel) -> str:
    """Has the adapter that the run goes on from in its own folder, and returns its hash; empty for a fresh adapter.

    Raises:
        RunError: it is not there, and the run that it is of has no checkpoint (any more).
        Leave: pause or stop, while the disk was full.
    """
    if not config.resume_from:
        return ""
    place = folder.path / "start"
    if (kept := _kept(place)) is None:
        earlier = JobFolder(folder.path.parent / Path(config.resume_from).name)
        kept = channel.until_disk_takes(lambda: _copy(earlier, place, config.resume_from))
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def _kept(place: Path) -> dict[str, str] | None:
    """The files of a copy with their hashes; None where there is none, or it is not as it was made."""
    try:
        said: dict[str, str] = read_sealed(place / _ORIGIN)["files"]
        return said if said == _hashes(place / _ADAPTER) else None
    except (OSError, ValueError, KeyError):
        return None


def _hashes(adapter: Path) -> dict[str, str]:
    files = sorted(path for path in adapter.rglob("*") if not path.is_dir())
    return {path.relative_to(adapter).as_posix(): file_sha256(path) for path in files}


def _copy(earlier: JobFolder, place: Path, name: str) -> dict[str, str]:
    """Copies the best checkpoint's adapter, held to its manifest: while it is read its run may train on. Its files
    with their hashes."""
    draft = place.with_name(".tmp-start")
    try:
        for _ in range(_TRIES):
            shutil.rmtree(draft, ignore_errors=True)
            if (best := checkpoint.best(earlier)) is None:
                break
            if files := _copied(best, draft):
                shutil.rmtree(place, ignore_errors=True)
                draft.rename(place)
                make_durable(place.parent)
                return files
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise MachineError("disk.write/start_adapter", name=name, reason=error.strerror, cure=cure(error)) from error
    raise RunError("run.resume_from/gone", name=name)


def _copied(best: Path, draft: Path) -> dict[str, str]:
    """The files with their hashes; empty unless all of it was there to the end, as its manifest says."""
    adapter = draft / _ADAPTER
    try:
        said = {name: entry["sha256"] for name, entry in checkpoint.read_manifest(best)["files"].items()}
        for path in [path for path in (best / _ADAPTER).rglob("*") if not path.is_dir()]:
            copy = adapter / path.relative_to(best / _ADAPTER)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            make_durable(copy)
    except (FileNotFoundError, ValueError, KeyError):
        return {}
    files = _hashes(adapter)
    if files != {name.removeprefix(f"{_ADAPTER}/"): sha for name, sha in said.items() if name.startswith(_ADAPTER)}:
        return {}
    write_sealed(draft / _ORIGIN, {"run": best.parents[1].name, "checkpoint": best.name, "files": files}, durable=True)
    make_durable(adapter)
    make_durable(draft)
    return files
