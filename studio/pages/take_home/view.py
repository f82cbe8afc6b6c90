"""A run's checkpoints, the forms to take it home in, and its exports: plain values."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.contract.config import RunConfig
from core.contract.events import Exported
from core.contract.forms import FORMS
from core.machine.disk import folder_bytes
from core.runs.folder.flaws import flaw_of
from core.runs.folder.job_folder import JOB_NAME, JobFolder, checkpoint_step
from core.runs.record.job_record import RunRecord
from core.runs.record.outcome import Measure, by_merit, measures, ranked, standing
from studio.figures.proposals import verdict_shown
from studio.figures.run_figures import LIVING, bytes_words, measure_words
from studio.pages.take_home.forms import forms_of
from studio.pages.take_home.uses import uses
from studio.pages.take_home.words import say
from studio.words.faults import in_one
from studio.words.runs import STATES


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
        "verdict": verdict_shown(folder, record),
        "forms": forms_of(folder, config, free),
        "disk": say("home.disk", free=bytes_words(free)),
        "jobs": [_job(folder, name, export) for name, export in exports],
    }


def _checkpoints(folder: JobFolder, record: RunRecord) -> list[dict[str, str]]:
    """The best, the last and the others; a loss only where one was measured."""
    known = standing(folder)
    if not known:
        return []
    best, last = by_merit(folder)[0], next(reversed(known))
    named = [("best", best), *([("last", last)] if last != best else [])]
    others = [(path.name, path) for path in reversed(known) if path not in (best, last)]
    before = next((one for one in measures(record) if one.step == 0), None)
    return [
        {"name": name, "words": _checkpoint_words(name, path, known[path], before)} for name, path in named + others
    ]


def _checkpoint_words(name: str, path: Path, measured: Measure | None, before: Measure | None) -> str:
    """Its step and what it is chosen by; the best one also says where the model before training was better."""
    kind, step = name if name in ("best", "last") else "other", f"{checkpoint_step(path.name) or 0:,}"
    if measured is None:
        return say(f"checkpoint.{kind}", step=step)
    by, value = measured.told
    told = {"name": by.replace("_", " "), "value": measure_words(by, value)}
    if kind == "best" and before and before.by == measured.by and ranked((before, measured))[0] == before:
        also = say("checkpoint.measure.before", **told, before=measure_words(*before.told))
        return say("checkpoint.best.before", step=step) + also
    return say(f"checkpoint.{kind}", step=step) + say("checkpoint.measure", **told)


def _job(folder: JobFolder, name: str, record: RunRecord) -> dict[str, Any]:
    word, tone = STATES[record.state]
    done: Exported | None = record.exported[-1] if record.exported else None
    stage = record.stage
    share = stage.done / stage.total if stage is not None and stage.total > 0 else None
    left = 0 if record.state in LIVING else folder_bytes(folder.export_draft(name))  # of what a killed one left
    kept = f" {say('export.kept', size=bytes_words(left))}" if left else ""
    return {
        "name": name,
        "title": name,
        "word": say("export.state.training") if record.state == "training" else word,
        "tone": tone,
        "living": record.state in LIVING,
        "share": share,
        "sentence": _job_words(record, done) + kept,
        "checks": list(done.checks) if done else [],
        "warnings": list(done.warnings) if done else [],
        "path": str(folder.exports / name) if done else "",
        "hub": bool(done and done.form in FORMS and not FORMS[done.form].rows),
        "uses": uses(folder.exports / name) if done else [],
    }


def _job_words(record: RunRecord, done: Exported | None) -> str:
    if done:
        return say("export.done", form=say(f"form.{done.form}"), size=bytes_words(done.bytes))
    if record.failure:
        return in_one(record.failure)
    if record.state == "queued":
        return record.queued_reason or say("state.queued.sentence")
    if record.state == "lost":
        return say("export.lost")
    return (record.stage.text or say(f"stage.{record.stage.stage}")) if record.stage else say("state.starting.export")
