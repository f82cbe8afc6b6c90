"""A run's checkpoints, export forms with their sizes and the room for them, and exports: plain values."""

import json
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from core.contract.config import RunConfig
from core.contract.events import Exported
from core.contract.forms import FORMS
from core.machine.disk import read_plain
from core.machine.locations import ASSETS
from core.models.catalog import cached_models, catalogue
from core.runs.folder.flaws import flaw_of
from core.runs.folder.job_folder import JOB_NAME, JobFolder, checkpoint_step
from core.runs.record.job_record import RunRecord
from core.runs.record.outcome import by_merit, measures, outcome, standing
from studio.figures.run_figures import LIVING, bytes_words, used_words, verdict_of
from studio.pages.take_home.words import say
from studio.words.runs import STATES

_CARD_BYTES = 1 << 20


def export_names(folder: JobFolder) -> list[str]:
    """The run's export jobs, newest first."""
    try:
        jobs = [path for path in folder.jobs.iterdir() if JOB_NAME.fullmatch(path.name) and not flaw_of(path)]
        return [path.name for path in sorted(jobs, key=lambda path: path.lstat().st_mtime, reverse=True)]
    except OSError:
        return []


def keep(
    folder: JobFolder, record: RunRecord, config: RunConfig | None, exports: Sequence[tuple[str, RunRecord]]
) -> dict[str, Any]:
    """Checkpoints, verdict, forms with their sizes, exports with their progress."""
    free = shutil.disk_usage(folder.path).free
    return {
        "living": record.state in LIVING,
        "checkpoints": _checkpoints(folder, record),
        "verdict": verdict_of(outcome(record), used_words(folder)),
        "forms": _forms(folder, config, free),
        "disk": say("home.disk", free=bytes_words(free)),
        "jobs": [_job(folder, name, export) for name, export in exports],
    }


def _checkpoints(folder: JobFolder, record: RunRecord) -> list[dict[str, str]]:
    """The best, the last and the others; a loss only where one was measured."""
    losses = standing(folder)
    if not losses:
        return []
    best, last = by_merit(folder)[0], next(reversed(losses))
    named = [("best", best), *([("last", last)] if last != best else [])]
    others = [(path.name, path) for path in reversed(losses) if path not in (best, last)]
    before = next((one.loss for one in measures(record) if one.step == 0), None)
    return [
        {"name": name, "words": _checkpoint_words(name, path, losses[path], before)} for name, path in named + others
    ]


def _checkpoint_words(name: str, path: Path, loss: float | None, before: float | None) -> str:
    """Its step and loss; the best one also says where the model before training was better."""
    kind, step = name if name in ("best", "last") else "other", f"{checkpoint_step(path.name) or 0:,}"
    if loss is None:
        return say(f"checkpoint.{kind}", step=step)
    if kind == "best" and before is not None and before <= loss:
        losses = say("checkpoint.loss.before", loss=f"{loss:.3f}", before=f"{before:.3f}")
        return say("checkpoint.best.before", step=step) + losses
    return say(f"checkpoint.{kind}", step=step) + say("checkpoint.loss", loss=f"{loss:.3f}")


def _forms(folder: JobFolder, config: RunConfig | None, free: int) -> list[dict[str, Any]]:
    """The forms of what learned, with expected sizes and whether there is room: the adapter as in the checkpoint; with
    the base, two bytes a parameter."""
    newest, config = folder.newest_checkpoint(), config or RunConfig()
    learns, scores = config.learns, config.learning.task.scores
    adapter = _folder_bytes(newest / learns.folder) if newest else 0
    merged = _merged_bytes(config)
    sizes = {key: merged if FORMS[key].whole else adapter if FORMS[key].weights else 0 for key in learns.forms}
    forms = []
    for key, size in sizes.items():
        about = say("home.size", size=bytes_words(size)) if size else ""
        short = "" if size <= free else f". {say('home.no_room', short=bytes_words(size - free))}"
        use = say(f"home.{key}.for.scores" if scores else f"home.{key}.for")
        forms.append({"key": key, "size": about + short, "room": size <= free, "use": use})
    return forms


def _merged_bytes(config: RunConfig | None) -> int:
    """Bytes of the base in 16 bits, of an encoder in 32: its files on this disk, or for a hub model its parameters; 0
    where unknown."""
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
    return next(((4 if spec.encoder else 2) * spec.shape.parameters for spec in known), 0)


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
        "living": record.state in LIVING,
        "share": share,
        "sentence": _job_words(record, done),
        "checks": list(done.checks) if done else [],
        "warnings": list(done.warnings) if done else [],
        "path": str(folder.exports / name) if done else "",
        "python": _python(folder.exports / name) if done else "",
    }


def _python(export: Path) -> str:
    """The lines of its model card that use it; empty where there is none."""
    try:
        card = read_plain(export / "README.md", _CARD_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    code = card.partition("```python\n")[2].partition("\n```")[0]
    return code.replace('"this folder"', json.dumps(str(export), ensure_ascii=False))


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
