"""A job's folder: the files of one run, or of an export of it or a report on it, and how such folders are named.

::

    runs/2026-11-20_2243_mistral-7b_k3f9/        a training run
      run.yaml  events.jsonl  commands.jsonl  supervisor.json  worker.log
      checkpoints/step-000200/MANIFEST.json  exports/NAME/
      jobs/NAME/                                 an export job: export.yaml and the same four files
      jobs/.report/  report.json                 the report's job, with report.yaml; what it measured
"""

from __future__ import annotations

import os
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from core.contract.config import RunConfig
from core.contract.errors import ConfigError, RunError
from core.contract.forms import DEFAULT_FORM, FORMS, FinishedFrom, Form, Option, Quantisation
from core.machine.disk import read_plain
from core.machine.locations import Entry
from core.machine.yaml_text import MOST_YAML_BYTES, NOT_YAML, load_yaml
from core.runs.folder.run_yaml import read_stored

RUN_ID = re.compile(r"\d{4}-\d{2}-\d{2}_\d{4}_[a-z0-9][a-z0-9-]{0,39}_[a-z0-9]{4}", re.ASCII)
JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
WRITTEN = "written.json"
"""In the draft of an export that can be gone on with."""
_JOBS = "jobs"
_REPORT_JOB = ".report"
"""Of a run's jobs that which makes its report; no export can have this name."""
_DRAFT = ".tmp-"
_STEP = re.compile(r"step-(\d{6,})", re.ASCII)
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"


Checkpoint = Annotated[str, StringConstraints(pattern=r"^(best|last|step-[0-9]{6,})$")]


class ExportRequest(BaseModel):
    """``export.yaml``: what is to be exported; ``name`` is the folder under ``exports/``."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: Annotated[str, StringConstraints(pattern=rf"^{JOB_NAME.pattern}$")]
    form: Form = DEFAULT_FORM
    checkpoint: Checkpoint = "best"
    weights: FinishedFrom = "original"
    """Which base the adapter is added to."""
    quantisation: Quantisation = "q4_k_m"
    importance: bool = False
    """Whether the quantiser weighs inputs by how large they are on the run's own rows."""

    @property
    def unread(self) -> list[str]:
        """The options that were asked for, and that the form does not read."""
        asked = self.model_fields_set & {*get_args(Option)}
        return sorted(asked - FORMS[self.form].options)


class ReportRequest(BaseModel):
    """``report.yaml``: what is to be measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    checkpoint: Checkpoint = "best"
    minutes: Annotated[float, Field(ge=0, le=10_000)] = 0.0
    """What it may take; 0: a tenth of the run's time."""
    again: bool = False
    """Whether parts that stand already are measured anew."""


@dataclass(frozen=True)
class JobFolder:
    """One job's folder. Nothing is created by asking."""

    path: Path

    run_yaml = Entry("run.yaml")
    """The config of a training run, written once."""
    export_yaml = Entry("export.yaml")
    """The request of an export job, written once."""
    proof_yaml = Entry("proof.yaml")
    """What a proof is to prove, written once."""
    report_yaml = Entry("report.yaml")
    """What a report is to measure, written once."""
    events = Entry("events.jsonl")
    """The log, append only. Its writer holds an flock on it."""
    commands = Entry("commands.jsonl")
    """The mailbox, append only; each line is written under an flock on it."""
    supervisor_json = Entry("supervisor.json")
    """Supervisor and worker, each by pid and creation time."""
    supervisor_lock = Entry("supervisor.lock")
    """Held by flock while the job's supervisor lives."""
    summary_json = Entry("summary.json")
    """A cached summary for listings, valid for the byte count that it names."""
    given_name = Entry("name")
    """The name that a person gave the run later; absent where nobody did."""
    marks_json = Entry("marks.json")
    """The note, tags, colour and pin that a person gave the run."""
    opened_json = Entry("opened.json")
    """Of a run that was opened from a file: which run it was where it was made."""
    log = Entry("worker.log")
    """What supervisor and worker print."""

    report_json = Entry("report.json")
    """Of a run: its report, as far as it is measured (``core.report.schema``)."""

    @property
    def kind(self) -> Literal["train", "export", "proof", "report"]:
        """What the worker does here, by the file that is there."""
        if self.proof_yaml.exists():
            return "proof"
        if self.report_yaml.exists():
            return "report"
        return "export" if self.export_yaml.exists() else "train"

    @property
    def name(self) -> str:
        """Run id, or the name of the export."""
        return self.path.name

    @property
    def run_folder(self) -> JobFolder:
        """The run's folder: itself for a training run, the owning run's for an export or a report."""
        return JobFolder(self.path.parents[1]) if self.path.parent.name == _JOBS else self

    @property
    def checkpoints(self) -> Path:
        """The run's checkpoints."""
        return self.run_folder.path / "checkpoints"

    @property
    def exports(self) -> Path:
        """The run's exports, one folder each."""
        return self.run_folder.path / "exports"

    @property
    def jobs(self) -> Path:
        """The run's jobs, its exports' and its report's, one folder each."""
        return self.run_folder.path / _JOBS

    @property
    def report_job(self) -> JobFolder:
        """The job of the run's report."""
        return JobFolder(self.jobs / _REPORT_JOB)

    def config(self) -> RunConfig:
        """The run's config (for an export job: the owning run's), whichever version wrote it.

        Raises:
            ConfigError: run.yaml is missing or has faults.
        """
        return read_stored(self.run_folder.run_yaml)[0]

    def unknown_fields(self) -> list[str]:
        """The fields of run.yaml that this version does not know; none where it cannot be read."""
        try:
            return read_stored(self.run_folder.run_yaml)[1]
        except ConfigError:
            return []

    def export_request(self) -> ExportRequest:
        """What an export job is asked for.

        Raises:
            RunError: export.yaml is missing or has faults.
        """
        try:
            return ExportRequest.model_validate(load_yaml(read_plain(self.export_yaml, MOST_YAML_BYTES).decode()))
        except (OSError, *NOT_YAML) as error:
            raise RunError("export.request/file", path=self.export_yaml) from error

    def report_request(self) -> ReportRequest:
        """What a report's job is asked for.

        Raises:
            RunError: report.yaml is missing or has faults.
        """
        try:
            return ReportRequest.model_validate(load_yaml(read_plain(self.report_yaml, MOST_YAML_BYTES).decode()))
        except (OSError, *NOT_YAML) as error:
            raise RunError("report.request", path=self.report_yaml) from error

    def newest_checkpoint(self) -> Path | None:
        """The newest finished checkpoint (its manifest is written last); its files are not verified."""
        whole = whole_checkpoints(self.checkpoints)
        return whole[max(whole)] if whole else None

    def newest_step(self) -> int:
        """The step of the newest checkpoint, 0 where none stands."""
        return max(whole_checkpoints(self.checkpoints), default=0)

    def export_draft(self, name: str) -> Path:
        """Where the export of this name is built."""
        return self.exports / f"{_DRAFT}{name}"

    def export_drafts(self) -> dict[str, Path]:
        """The unfinished exports by name."""
        try:
            drafts = [Path(entry.path) for entry in os.scandir(self.exports) if entry.name.startswith(_DRAFT)]
        except OSError:
            return {}
        return {path.name.removeprefix(_DRAFT): path for path in drafts}

    def finished_exports(self) -> list[str]:
        """The names of the exports that stand."""
        try:
            return [entry.name for entry in os.scandir(self.exports) if JOB_NAME.fullmatch(entry.name)]
        except OSError:
            return []


_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


def forbidden_by_windows(name: str) -> str:
    """Why a folder of this name cannot be copied to a Windows disk; empty where it can."""
    if _DEVICES.fullmatch(name):
        return f"{name.partition('.')[0].upper()} is a device there"
    return "names end neither in a dot nor in a blank there" if name.endswith((".", " ")) else ""


def checkpoint_step(name: str) -> int | None:
    """The step of ``step-000200``; None for any other name."""
    match = _STEP.fullmatch(name)
    return int(match[1]) if match else None


def whole_checkpoints(checkpoints: Path) -> dict[int, Path]:
    """The finished checkpoints by step; links are left out."""
    if checkpoints.is_symlink():
        return {}
    paths = ((checkpoint_step(path.name), path) for path in checkpoints.glob("step-*") if not path.is_symlink())
    return {step: path for step, path in paths if step is not None and (path / "MANIFEST.json").is_file()}


def slug(text: str) -> str:
    """Lower-case letters, digits and single hyphens, at most 40: safe as part of a folder's name."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower(), flags=re.ASCII).strip("-")
    return words[:40].strip("-") or "run"


def new_run_id(config: RunConfig, at: float | None = None) -> str:
    """A new id such as ``2026-11-20_2243_mistral-7b_k3f9``, which sorts by time."""
    stamp = time.strftime("%Y-%m-%d_%H%M", time.localtime(at))
    return f"{stamp}_{slug(config.name or Path(config.model.name).name)}_{drawn_tail()}"


def drawn_tail() -> str:
    """Four random characters that make an id unique, without those that look alike."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(4))
