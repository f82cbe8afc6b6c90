"""Checkpoints that survive being killed at any moment.

    .tmp-step-000200/  files, each fsynced ─► MANIFEST.json (sizes, SHA-256) fsynced ─► renamed ─► folder fsynced
    step-000200/       adapter/ (peft's) or model/  optimizer.*  scheduler.*  scaler.*  method.*  position.json
                       MANIFEST.json

Read ones are verified first: every file against the manifest, the manifest against its own SHA-256 and the folder's
name, and no other file may be there. The last two and the best are kept; older ones are deleted only after a newer one
was verified, and are renamed before.
"""

import contextlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.contract.errors import MachineError, RunError
from core.machine.disk import file_sha256, is_full, make_durable
from core.runs.folder.job_folder import JobFolder, checkpoint_step
from core.runs.folder.manifest import MANIFEST, manifest_text
from core.runs.record.outcome import by_merit

KEPT = 2
_SPARE_BYTES = 16 << 20


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was written and verified."""

    path: Path
    bytes: int


def step_name(step: int) -> str:
    """``step-000200``."""
    return f"step-{step:06d}"


def save(
    folder: JobFolder | Path, step: int, write: Callable[[Path], None], facts: Mapping[str, Any], expected_bytes: int
) -> Saved:
    """Writes one checkpoint; ``write`` puts the files into the folder that it is given.

    Args:
        folder: the run, or its checkpoints folder.
        facts: small JSON values for the manifest (``eval_loss``).
        expected_bytes: space that must be free.

    Raises:
        MachineError: the disk is or gets full; earlier checkpoints are untouched.
        RunError: what was written does not read back.
    """
    root = _root(folder)
    final, draft = root / step_name(step), root / f".tmp-{step_name(step)}"
    try:
        if not root.is_dir():
            root.mkdir(parents=True, exist_ok=True)
            make_durable(root.parent)
        _sweep(root)
        _require_room(root, expected_bytes)
        draft.mkdir()
        write(draft)
        total = _seal(draft, step, facts)
        remove(final)
        draft.rename(final)
        make_durable(root)
    except Exception as error:
        shutil.rmtree(draft, ignore_errors=True)
        if is_disk_full(error):
            raise _full(root, expected_bytes) from error
        raise
    if problem := verify(final):
        raise RunError("checkpoint.unreadable", name=final.name, problem=problem)  # fmt: skip
    return Saved(final, total)


def verify(path: Path) -> str:
    """What is wrong with the checkpoint at ``path``, in a few words; empty where it is intact."""
    try:
        written = (path / MANIFEST).read_text(encoding="utf-8")
        manifest: dict[str, Any] = json.loads(written)
        files = manifest["files"]
        if manifest_text(manifest) != written:
            return f"{MANIFEST} is not as it was written"
        for there in sorted(path.rglob("*")):
            name = there.relative_to(path).as_posix()
            if there.is_symlink() or (name not in files and name != MANIFEST and not there.is_dir()):
                return f"{name} does not belong there"
        if manifest["step"] != checkpoint_step(path.name):
            return f"{MANIFEST} is that of step {manifest['step']}"
        for name, entry in files.items():
            if (path / name).stat().st_size != entry["bytes"]:
                return f"{name} has another size than its manifest says"
            if file_sha256(path / name) != entry["sha256"]:
                return f"{name} differs from its manifest"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} cannot be read"
    return "" if files else f"{MANIFEST} names no file"


def latest_good(folder: JobFolder | Path, on_bad: Callable[[Path, str], None] | None = None) -> Path | None:
    """The newest intact checkpoint; ``on_bad`` is called with each newer one that is damaged, and why."""
    for path in reversed(_all(_root(folder))):
        if not (problem := verify(path)):
            return path
        if on_bad:
            on_bad(path, problem)
    return None


def best(folder: JobFolder | Path) -> Path | None:
    """The intact checkpoint with the lowest held-out loss; where nothing was measured, the newest."""
    return next((path for path in by_merit(folder) if not verify(path)), None)


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint: ``step``, ``files`` and facts.

    Raises:
        OSError, ValueError: it is missing or is no JSON.
    """
    manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    return manifest


def add_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Adds facts to an existing checkpoint's manifest, atomically.

    Raises:
        MachineError: the disk is full; the manifest is unchanged.
    """
    manifest = {**read_manifest(path), **facts}
    draft = path.parent / f".tmp-{path.name}.json"  # beside it: a file that the manifest does not name is damage
    try:
        draft.write_text(manifest_text(manifest), encoding="utf-8")
        make_durable(draft)
        draft.rename(path / MANIFEST)
        make_durable(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        if is_disk_full(error):
            raise _full(path, 0) from error
        raise


def prune(folder: JobFolder | Path, kept: int = KEPT, newest: int | None = None) -> None:
    """Deletes all but the newest ``kept`` and the best.

    Args:
        newest: the step that was verified; checkpoints of later ones are damaged.
    """
    root = _root(folder)
    every = _all(root)
    lived = [path for path in every if newest is None or (checkpoint_step(path.name) or 0) <= newest]
    standing = {*lived[-kept:], best(root)}
    for path in every:
        if path not in standing or path not in lived:
            remove(path)
    _sweep(root)


def remove_after(folder: JobFolder | Path, step: int) -> None:
    """Deletes every checkpoint of a later step, the newest first."""
    for path in reversed(_all(_root(folder))):
        if (checkpoint_step(path.name) or 0) > step:
            remove(path)


def remove(path: Path) -> None:
    """Deletes a checkpoint, renamed first: a kill meanwhile leaves no half of one under its name."""
    gone = path.parent / f".tmp-gone-{path.name}"
    with contextlib.suppress(FileNotFoundError):
        path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def is_disk_full(error: BaseException) -> bool:
    """Whether this, or its cause, is a full disk; safetensors says so in its text only."""
    if is_full(error):
        return True
    if "No space left on device" in str(error) or "os error 28" in str(error):
        return True
    return error.__cause__ is not None and is_disk_full(error.__cause__)


def _root(folder: JobFolder | Path) -> Path:
    return folder.checkpoints if isinstance(folder, JobFolder) else folder


def _all(root: Path) -> list[Path]:
    """Every checkpoint under its final name, oldest first."""
    steps = [(step, path) for path in root.glob("step-*") if (step := checkpoint_step(path.name)) is not None]
    return [path for _, path in sorted(steps)]


def _sweep(root: Path) -> None:
    """Deletes the drafts and half-deleted checkpoints of a worker that was killed."""
    for draft in root.glob(".tmp-*"):
        shutil.rmtree(draft, ignore_errors=True) if draft.is_dir() else draft.unlink(missing_ok=True)


def _require_room(root: Path, expected_bytes: int) -> None:
    with contextlib.suppress(OSError):
        if shutil.disk_usage(root).free < expected_bytes + _SPARE_BYTES:
            raise _full(root, expected_bytes)


def _full(root: Path, expected_bytes: int) -> MachineError:
    free = need = expected_bytes + _SPARE_BYTES
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(root).free
    return MachineError("disk.full/checkpoint", need=need / 1000000.0, free=free / 1000000.0)


def _seal(draft: Path, step: int, facts: Mapping[str, Any]) -> int:
    """Makes every file durable and writes the manifest last; returns the bytes of all files."""
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(path for path in draft.rglob("*") if path.is_file()):
        make_durable(path)
        files[path.relative_to(draft).as_posix()] = {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
    for folder in [path for path in draft.rglob("*") if path.is_dir()]:
        make_durable(folder)
    manifest = draft / MANIFEST
    manifest.write_text(manifest_text({"step": step, **facts, "files": files}), encoding="utf-8")
    make_durable(manifest)
    make_durable(draft)
    return sum(entry["bytes"] for entry in files.values()) + manifest.stat().st_size
