"""The adapter that a run goes on from (``resume_from``), copied into the run's own folder at its first attempt.

    start/ORIGIN.json   sealed: run, checkpoint, SHA-256 of each file       start/adapter/   peft's format

The other run may then be trained on or deleted. A damaged copy is made again from the other run's best checkpoint;
that it is the same adapter is checked by its hash (``core.train.keep.depends``). Imports no torch.
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

_ORIGIN = "ORIGIN.json"
_TRIES = 3


def start_folder(folder: JobFolder, config: RunConfig) -> Path:
    """Where ``keep_start`` puts the adapter, or the whole model."""
    return folder.path / "start" / config.learns.folder


def keep_start(folder: JobFolder, config: RunConfig, channel: Channel) -> str:
    """Copies the adapter unless an intact copy exists; returns its hash, empty for a fresh adapter.

    Raises:
        RunError: the other run has no intact checkpoint.
        Leave: pause or stop, while the disk was full.
    """
    if not config.resume_from:
        return ""
    place = start_folder(folder, config)
    if (kept := _kept(place)) is None:
        earlier = JobFolder(folder.path.parent / Path(config.resume_from).name)
        kept = channel.until_disk_takes(lambda: _copy(earlier, place, config.resume_from))
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def _kept(place: Path) -> dict[str, str] | None:
    """The copied files with their hashes; None where they are missing or damaged."""
    try:
        said: dict[str, str] = read_sealed(place.parent / _ORIGIN)["files"]
        return said if said == _hashes(place) else None
    except (OSError, ValueError, KeyError):
        return None


def _hashes(adapter: Path) -> dict[str, str]:
    files = sorted(path for path in adapter.rglob("*") if not path.is_dir())
    return {path.relative_to(adapter).as_posix(): file_sha256(path) for path in files}


def _copy(earlier: JobFolder, place: Path, name: str) -> dict[str, str]:
    """Copies the best checkpoint's adapter, with retries since its run may train on; the files with their hashes."""
    draft = place.parent.with_name(".tmp-start")
    try:
        for _ in range(_TRIES):
            shutil.rmtree(draft, ignore_errors=True)
            if (best := checkpoint.best(earlier)) is None:
                break
            if files := _copied(best, draft, place.name):
                shutil.rmtree(place.parent, ignore_errors=True)
                draft.rename(place.parent)
                make_durable(place.parents[1])
                return files
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise MachineError("disk.write/start_adapter", name=name, reason=error.strerror, cure=cure(error)) from error
    raise RunError("run.resume_from/gone", name=name)


def _copied(best: Path, draft: Path, part: str) -> dict[str, str]:
    """The copied files with their hashes; empty where they are not what the manifest names."""
    adapter = draft / part
    try:
        said = {name: entry["sha256"] for name, entry in checkpoint.read_manifest(best)["files"].items()}
        for path in [path for path in (best / part).rglob("*") if not path.is_dir()]:
            copy = adapter / path.relative_to(best / part)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            make_durable(copy)
    except (FileNotFoundError, ValueError, KeyError):
        return {}
    files = _hashes(adapter)
    if files != {name.removeprefix(f"{part}/"): sha for name, sha in said.items() if name.startswith(f"{part}/")}:
        return {}
    write_sealed(draft / _ORIGIN, {"run": best.parents[1].name, "checkpoint": best.name, "files": files}, durable=True)
    make_durable(adapter)
    make_durable(draft)
    return files
