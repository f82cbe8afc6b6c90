"""Rows of the history, what a run has to take home, and how to repeat it: plain values for the pages."""

from __future__ import annotations

import shlex
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
from core.runs.run_yaml import dump_config
from core.runs.store import RunSummary
from studio.figures import UNKNOWN, buttons_of, bytes_words, day_and_time, duration
from studio.text import STATES, say

__all__ = ["export_names", "keep", "repeat", "row"]

_GROUPS = {"queued": "living", "starting": "living", "training": "living", "lost": "failed"}


def row(run: RunSummary) -> dict[str, Any]:
    """A run as one row of the history; ``words`` is what the search looks through."""
    word, tone = STATES[run.state]
    title = run.name or say("run.title", data=run.data_name or UNKNOWN, model=_model(run))
    can = buttons_of(run.state)
    return {
        "id": run.run_id,
        "title": title,
        "word": word,
        "tone": tone,
        "group": _GROUPS.get(run.state, run.state),
        "when": day_and_time(run.started_at),
        "took": _took(run),
        "steps": f"{run.last_step:,} {say('run.of')} {run.total_steps:,}" if run.total_steps else f"{run.last_step:,}",
        "loss": UNKNOWN if run.train_loss is None else f"{run.train_loss:.3f}",
        "held_out": UNKNOWN if run.eval_loss is None else f"{run.eval_loss:.3f}",
        "preset": run.preset or UNKNOWN,
        "size": bytes_words(run.bytes_on_disk) if run.bytes_on_disk else "",
        "cause": run.failure,
        "can": {"resume": can["resume"], "rerun": True, "delete": not can["stop"]},
        "words": " ".join((title, word, run.run_id, run.model_name, run.data_name, run.preset, run.method)).lower(),
    }


def _model(run: RunSummary) -> str:
    name = run.model_name.rstrip("/").rsplit("/", 1)[-1]
    return say("run.starter") if name == "starter" else name or UNKNOWN


def _took(run: RunSummary) -> str:
    if run.started_at is None or run.ended_at is None:
        return UNKNOWN
    return duration(run.ended_at - run.started_at)


def repeat(folder: JobFolder) -> dict[str, str]:
    """The run's config as YAML, and the command line that repeats it."""
    return {
        "yaml": dump_config(folder.config()),
        "command": f"python3 launcher.py train {shlex.quote(str(folder.run_yaml))}",
    }


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
    return {
        "living": record.state in ("queued", "starting", "training"),
        "checkpoints": _checkpoints(folder, record),
        "forms": _forms(folder, config),
        "disk": say("home.disk", free=bytes_words(shutil.disk_usage(folder.path).free)),
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


def _forms(folder: JobFolder, config: RunConfig | None) -> list[dict[str, str]]:
    """Sizes as they will be: the adapter as it lies in the checkpoint; merged is twice the base's parameters."""
    newest = folder.newest_checkpoint()
    adapter = _folder_bytes(newest / "adapter") if newest else 0
    merged = _merged_bytes(config)
    words = [("adapter", adapter), ("merged", merged)]
    return [{"key": key, "size": say("home.size", size=bytes_words(size)) if size else ""} for key, size in words]


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
