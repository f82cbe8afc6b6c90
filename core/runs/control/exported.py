"""What may leave this machine: finished exports, for whoever takes one further, and runs that are over, as files."""

from pathlib import Path

from core.contract.errors import RunError
from core.contract.forms import FORMS
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import JobFolder
from core.runs.record.job_record import RUNNING


def may_leave(store: RunStore, run_id: str, name: str) -> Path:
    """The folder of a finished export that may leave this machine.

    Raises:
        RunError: there is none, or it holds rows of the data.
    """
    job = store.export_folder(run_id, name)
    form, folder = job.export_request().form, job.exports / name
    if folder.is_symlink() or not folder.is_dir() or store.export_record(run_id, name).state != "finished":
        raise RunError("export.unfinished", run_id=run_id, name=name)
    if FORMS[form].rows:
        raise RunError("export.rows", form=form)
    return folder


def ended(store: RunStore, run_id: str) -> JobFolder:
    """The folder of a run that nobody works on.

    Raises:
        RunError: it is at work.
    """
    if store.record(run_id).state in RUNNING:
        raise RunError("run.busy/file", run_id=run_id)
    return store.open(run_id)
