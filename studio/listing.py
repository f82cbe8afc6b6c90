"""What a run has to take home: checkpoints, forms with their sizes and the room for them, exports: plain values."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from core.catalog import cached_models, catalogue
from core.contract.config import RunConfig
from core.contract.events import Exported
from core.locations import ASSETS
from core.runs.folder import JobFolder, checkpoint_step
from core.runs.record import RunRecord
from studio.figures import bytes_words
from studio.text import STATES, say

__all__ = ["export_names", "keep"]


def export_names(folder: JobFolder) -> list[str]:
    """The run's export jobs, newest first."""
    try:
        jobs = [path for path in folder.jobs.iterdir() if (path / "export.yaml").is_file()]
    except OSError:
        return []
    return [path.name for path in sorted(jobs, key=lambda path: path.stat().st_mtime, reverse=True)]


def keep(
    folder: JobFolder, record: RunRecord, config: RunConfig | None, exports: Sequence[tuple[str, RunRecord]]
) -> dict[str, Any]:
    """What the run has to try and to take home: checkpoints, forms with their sizes, exports with their progress."""
    free = shutil.disk_usage(folder.path).free
    return {
        "living": record.state in ("queued", "starting", "training"),
        "checkpoints": _checkpoints(folder, record),
        "forms": _forms(folder, config, free),
        "disk": say("home.disk", free=bytes_words(free)),
        "jobs": [_job(folder, name, export) for name, export in exports],
    }


def _checkpoints(folder: JobFolder, record: RunRecord) -> list[dict[str, str]]:
    """The best and the last, and what else stands; a loss only where one was measured."""
    standing = {step for path in folder.checkpoints.glob("step-*") if (step := _whole(path)) is not None}
    losses = {item.step: item.eval_loss for item in record.checkpoints}
    if not standing:
        return []
    measured = {step: loss for step in standing if (loss := losses.get(step)) is not None}
    last = max(standing)
    best = min(measured, key=lambda step: measured[step]) if measured else last
    named = [("best", best), *([("last", last)] if last != best else [])]
    others = [(f"step-{step:06d}", step) for step in sorted(standing - {best, last}, reverse=True)]
    return [{"name": name, "words": _checkpoint_words(name, step, losses.get(step))} for name, step in named + others]


def _whole(path: Path) -> int | None:
    return checkpoint_step(path.name) if (path / "MANIFEST.json").is_file() else None


def _checkpoint_words(name: str, step: int, loss: float | None) -> str:
    kind = name if name in ("best", "last") else "other"
    measured = say("checkpoint.loss", loss=f"{loss:.3f}") if loss is not None else ""
    return say(f"checkpoint.{kind}", step=f"{step:,}") + measured


def _forms(folder: JobFolder, config: RunConfig | None, free: int) -> list[dict[str, Any]]:
    """Sizes as they will be, and whether there is room: the adapter as it lies in the checkpoint; merged is twice the
    base's parameters."""
    newest = folder.newest_checkpoint()
    adapter = _folder_bytes(newest / "adapter") if newest else 0
    merged = _merged_bytes(config)
    words = [("adapter", adapter), ("merged", merged)]
    return [{"key": key, "size": _size_words(size, free), "room": size <= free} for key, size in words]


def _size_words(size: int, free: int) -> str:
    if not size:
        return ""
    about = say("home.size", size=bytes_words(size))
    return about if size <= free else f"{about}. {say('home.no_room', short=bytes_words(size - free))}"


def _merged_bytes(config: RunConfig | None) -> int:
    """Bytes of the base in 16 bits: its files on this disk, or for a hub model its parameters; 0 where unknown."""
    if config is None:
        return 0
    if config.model.source == "starter":
        return _folder_bytes(ASSETS / "starter", "*.safetensors")
    if config.model.source == "folder":
        return _folder_bytes(Path(config.model.name), "*.safetensors")
    return _hub_bytes(config.model.name)


@cache
def _hub_bytes(name: str) -> int:
    known = (spec for specs in (catalogue, cached_models) for spec in specs() if spec.name == name)
    return next((2 * spec.shape.parameters for spec in known), 0)


def _folder_bytes(folder: Path, pattern: str = "*") -> int:
    try:
        return sum(path.stat().st_size for path in folder.glob(pattern) if path.is_file())
    except OSError:
        return 0


def _job(folder: JobFolder, name: str, record: RunRecord) -> dict[str, Any]:
    word, tone = STATES[record.state]
    done: Exported | None = record.exported[-1] if record.exported else None
    stage = record.stage
    share = stage.done / stage.total if stage is not None and stage.total > 0 else None
    return {
        "name": name,
        "title": name,
        "word": say("export.state.training") if record.state == "training" else word,
        "tone": tone,
        "living": record.state in ("queued", "starting", "training"),
        "share": share,
        "sentence": _job_words(record, done),
        "checks": list(done.checks) if done else [],
        "path": str(folder.exports / name) if done else "",
    }


def _job_words(record: RunRecord, done: Exported | None) -> str:
    if done:
        return say("export.done", form=say(f"form.{done.form}"), size=bytes_words(done.bytes))
    if record.failure:
        return f"{record.failure.message} {record.failure.hint}".strip()
    if record.state == "queued":
        return record.queued_reason or say("state.queued.sentence")
    if record.state == "lost":
        return say("export.lost")
    return (record.stage.text or say(f"stage.{record.stage.stage}")) if record.stage else say("state.starting.export")
