"""What an export is made of, checked before anything is written: request, checkpoint, base model, room on the disk."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from core.chat.client import checkpoint_folder
from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.errors import HubError, MachineError, ModelError, RunError
from core.contract.forms import FORMS
from core.export.forms.makers import MAKERS
from core.export.forms.merge import goes_on
from core.export.model_card import base_name
from core.export.parts import OfRun, Parts
from core.machine.disk import folder_bytes
from core.models.catalog import find_model
from core.models.checks.adapter import check_adapter
from core.models.checks.folder import check_folder
from core.models.hub.cache import is_commit
from core.runs.control.create import sweep_exports
from core.runs.folder.job_folder import ExportRequest, JobFolder
from core.runs.record.job_record import RunRecord, folded
from core.train.channel.channel import Channel
from core.train.channel.command_queue import CommandQueue
from core.train.channel.reporter import EventReporter
from core.train.keep.checkpoint import read_manifest
from core.train.keep.checkpoint import verify as verify_checkpoint

SPARE_BYTES = 64 << 20
_SHORT = 12


@dataclass(frozen=True)
class Job:
    """One export: the run's records, what it is made of, and where it goes."""

    request: ExportRequest
    config: RunConfig
    record: RunRecord
    checkpoint: str
    parts: Parts
    draft: Path
    final: Path
    tell: EventReporter
    check: Callable[[], None]


def open_job(folder: JobFolder, tell: EventReporter, orders: CommandQueue) -> Job:
    """Checks everything, makes room of what killed exports left, and makes the draft's folder.

    Raises:
        Fault: checkpoint, base model, request or disk cannot be used.
    """
    request, config, run = folder.export_request(), folder.config(), folder.run_folder
    _expect_asked(request, config)
    checkpoint = checkpoint_folder(run, request.checkpoint)
    if problem := verify_checkpoint(checkpoint):
        raise RunError("checkpoint.damaged", name=checkpoint.name, problem=problem)
    manifest = read_manifest(checkpoint)
    spec = _base_of(config, str(manifest.get("depends", {}).get("base", "")))
    trained = checkpoint / config.learns.folder
    if config.learns.adapter:
        check_adapter(trained)
    else:
        check_folder(trained, tokenizer=False)
    final = folder.exports / request.name
    if final.exists():
        raise RunError("export.exists", name=request.name)
    record, draft = folded(run), folder.export_draft(request.name)
    decides = [request.model_dump(mode="json", exclude={"name", "checkpoint"}), manifest, spec.revision]
    parts = Parts(
        Path(spec.folder),
        base_name(config),
        trained,
        config.learns,
        model=config.model,
        weights=request.weights,
        quantisation=request.quantisation,
        importance=request.importance,
        dtype=getattr(torch, record.plan.dtype, None) if record.plan else None,
        made_of=hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest(),
        run=OfRun(run, record, Channel(tell, orders)),
    )
    folder.exports.mkdir(parents=True, exist_ok=True)
    _clear(draft, parts.made_of, tell)
    _expect_room(run, draft, MAKERS[request.form].bytes_of(parts) + SPARE_BYTES, tell)
    draft.mkdir(exist_ok=True)
    return Job(request, config, record, checkpoint.name, parts, draft, final, tell, orders.check)


def _expect_asked(request: ExportRequest, config: RunConfig) -> None:
    """Whether the run can be exported so.

    Raises:
        RunError: it cannot.
    """
    if request.form not in config.export_forms:
        forms = " or ".join(config.export_forms)
        raise RunError("export.form", form=request.form, forms=forms, words=config.learns.words)
    if request.weights != "original" and "weights" in FORMS[request.form].options and not config.model.form.quantised:
        raise RunError("export.weights", words=config.model.form.words)


def _base_of(config: RunConfig, then: str) -> ModelSpec:
    """The base model as it was trained on; ``then`` is its commit or fingerprint, where a checkpoint says it.

    Raises:
        ModelError: it is gone.
        RunError: another one is in its place.
    """
    model, revision = config.model, then if is_commit(then) else config.model.revision
    try:
        spec = find_model(model.source, model.name, revision)
    except HubError as error:  # it would have to be asked what the revision is
        raise ModelError("export.base/gone", title=model.name, revision=revision or "main") from error
    except ModelError as error:
        if error.code == "model.no_folder":
            raise ModelError("export.base/no_folder", folder=model.name) from error
        raise
    if not spec.folder:
        raise ModelError("model.not_here/export", title=spec.title)
    check_folder(Path(spec.folder))
    if then and spec.revision != then:
        raise RunError("export.base", then=then[:_SHORT], now=spec.revision[:_SHORT])
    return spec


def _clear(draft: Path, made_of: str, tell: EventReporter) -> None:
    """Deletes an earlier try, unless this one can go on from it."""
    if not goes_on(draft, made_of):
        shutil.rmtree(draft, ignore_errors=True)
        return
    stood = folder_bytes(draft) / 1e9
    tell.note("export.resumed", f"An export that was cut off goes on: {stood:.2f} GB of it stood already.")


def _expect_room(run: JobFolder, draft: Path, needed: int, tell: EventReporter) -> None:
    """Whether the disk takes ``needed`` bytes more than stand; what other killed exports left makes room.

    Raises:
        MachineError: it does not.
    """
    needed -= folder_bytes(draft)
    if shutil.disk_usage(run.exports).free < needed and (freed := sweep_exports(run, kept_seconds=0.0)):
        tell.note("export.swept", f"What exports that were cut off had left was deleted: {freed / 1e9:.2f} GB.")
    if (free := shutil.disk_usage(run.exports).free) < needed:
        raise MachineError("disk.room", needed=needed / 2**30, free=free / 2**30)
