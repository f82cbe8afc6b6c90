"""The job of a run's report, made and started: when a person asks for it, and by itself once a run has finished."""

import os
from collections.abc import Sequence
from contextlib import suppress

import yaml

from core.contract.errors import Fault, RunError
from core.machine.locations import Locations
from core.machine.locks import FileLock, locked
from core.runs.control.create import make_job, put_aside
from core.runs.folder.job_folder import JobFolder, ReportRequest
from core.runs.process.processes import SUPERVISOR_COMMAND, start_supervisor
from core.runs.record.job_record import RUNNING, RunRecord, folded
from core.runs.record.summary import nobody_lives

LEAVING_SECONDS = 10.0
"""Wait for the processes of a report that has ended."""
SWITCH = "LUTHIER_REPORTS"
"""Variable of the environment: "off" keeps runs from making reports by themselves, whatever their configs say."""


def make_report(run: JobFolder, request: ReportRequest) -> tuple[JobFolder, FileLock]:
    """The job's folder, anew; what was measured before stands in the run's folder.

    Raises:
        RunError: there is no checkpoint, or a report is being made.
        MachineError: the disk does not take it.
    """
    if run.newest_checkpoint() is None:
        raise RunError("report.nothing", run_id=run.name)
    run.jobs.mkdir(mode=0o700, exist_ok=True)
    with locked(run.jobs / ".lock"):
        at_work = not nobody_lives(run.report_job) and folded(run.report_job).state in RUNNING
        if at_work or not put_aside(run.report_job.path, LEAVING_SECONDS):
            raise RunError("report.busy", run_id=run.name)
        text = yaml.safe_dump(request.model_dump(mode="json"), sort_keys=False)
        return make_job(run.report_job.path, "report.yaml", text)


def report_after(
    run: JobFolder, record: RunRecord, locations: Locations, command: Sequence[str] = SUPERVISOR_COMMAND
) -> bool:
    """Starts the report of a run that has just finished, where it is to make one; whether it did."""
    if record.state != "finished" or os.environ.get(SWITCH) == "off":
        return False
    with suppress(Fault, OSError):  # the run is done and well; a report can be asked for later
        if run.config().train.report:
            job, lock = make_report(run, ReportRequest())
            start_supervisor(job, locations, lock, command, "ask for the report")
            return True
    return False
