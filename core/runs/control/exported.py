"""Finished exports, for whoever takes one further."""

from pathlib import Path

from core.contract.errors import RunError
from core.contract.forms import FORMS
from core.runs.control.store import RunStore


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
