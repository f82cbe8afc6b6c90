"""``export``: a run taken home from a terminal."""

import argparse
from typing import get_args

from pydantic import ValidationError

from core.cli.follow import follow, of_state
from core.contract.errors import RunError
from core.contract.forms import DEFAULT_FORM, FORMS, Option
from core.machine.locations import Locations
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import ExportRequest


def export(chosen: argparse.Namespace, locations: Locations) -> int:
    """Takes a run home and follows it; returns the exit code.

    Raises:
        RunError: an option cannot be used, or the form does not read it.
    """
    store = RunStore(locations)
    request = _request(chosen)
    if not chosen.form:
        form = store.open(chosen.run).config().export_forms[0]
        request = request.model_copy(update={"form": form, "name": chosen.name or form})
    if unread := request.unread:
        reads = " and ".join(f"--{name}" for name in sorted(FORMS[request.form].options)) or "none"
        raise RunError("export.request/unread", form=request.form, reads=reads, option=unread[0])
    job = store.export(chosen.run, request)
    folder, job_folder = store.open(chosen.run), store.export_folder(chosen.run, job)
    last = follow(job_folder, print, lambda: store.export_record(chosen.run, job).state == "lost")
    if last is None:
        print(of_state("lost", f"The export's processes are gone. Start it again.   (log: {job_folder.log})"))
    if last is None or last.kind != "finished":
        return 1
    print(f"folder    {folder.exports / job}")
    return 0


def _request(chosen: argparse.Namespace) -> ExportRequest:
    form = chosen.form or DEFAULT_FORM
    asked = {name: vars(chosen)[name] for name in get_args(Option) if vars(chosen)[name] is not None}
    try:
        return ExportRequest.model_validate(
            {"name": chosen.name or form, "form": form, "checkpoint": chosen.checkpoint, **asked}
        )
    except ValidationError as error:
        option = str(error.errors()[0]["loc"][0])
        expected = {"name": "letters, digits, '.', '_' and '-', at most 64", "checkpoint": "best, last or step-000200"}
        raise RunError(
            "export.request/option",
            expected=expected.get(option, "another value"),
            option=option,
            value=vars(chosen)[option],
        ) from error
