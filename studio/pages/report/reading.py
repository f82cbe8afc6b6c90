"""The reports that stand in runs' folders, and the job that makes one, as plain values."""

from dataclasses import dataclass
from typing import Any

from core.contract.errors import RunError
from core.machine.disk import not_written, stamp_of, write_whole
from core.report.checks import judged
from core.report.choices import read_choices
from core.report.schema import Report, read_report
from core.runs.control.store import RunStore
from core.runs.record.job_record import RunRecord
from core.runs.record.summary import RunSummary
from studio.figures.run_figures import LIVING, day_and_time, duration, run_title, state_of
from studio.figures.run_names import Names, titled_config
from studio.pages.report.words import say
from studio.words.faults import in_one


@dataclass(frozen=True)
class Run:
    """A run that a report can be made of."""

    run_id: str
    title: str
    word: str
    """Its state."""
    living: bool
    reported: bool


def runs_of(store: RunStore) -> list[Run]:
    """The runs that can be read, newest first."""
    runs = store.list()
    names = Names(runs)
    return [_run(summary, names) for summary in runs if summary.state != "unreadable"]


def _run(summary: RunSummary, names: Names) -> Run:
    living = summary.state in LIVING
    word = state_of(summary.state, summary.outcome)[0]
    return Run(summary.run_id, names.title(summary), word, living, summary.reported)


def report_of(store: RunStore, run_id: str) -> Report | None:
    """The run's report as far as it is measured; None where there is none that can be read.

    Raises:
        RunError: there is no such run.
    """
    return read_report(store.open(run_id).report_json)


def needed(store: RunStore, run_id: str) -> Report:
    """The run's report.

    Raises:
        RunError: there is no such run, or it has none.
    """
    report = report_of(store, run_id)
    if report is None:
        raise RunError("report.none", run_id=run_id, command=store.locations.command("report", run_id))
    return report


def title_now(store: RunStore, run_id: str) -> str:
    """The name that a run has now; a report holds the one that it had then."""
    folder = store.open(run_id)
    return run_title(titled_config(folder), folder.name)


def stamp(store: RunStore, run_id: str) -> str:
    """Changes with the report's file; empty where there is none."""
    return "-".join(map(str, stamp_of(store.open(run_id).report_json)))


def making(store: RunStore, run_id: str) -> dict[str, Any]:
    """What the page shows of the job: whether it is at work, its progress, what went wrong; and which report stands."""
    record = store.report_record(run_id)
    told = {"stamp": stamp(store, run_id), "living": False, "text": "", "share": None, "fault": ""}
    if record is None:
        return told
    told["living"] = record.state in LIVING
    if record.failure:
        told["fault"] = in_one(record.failure)
    elif record.state == "lost":
        told["fault"] = say("report.lost")
    if told["living"]:
        told |= _progress(record)
    return told


def _progress(record: RunRecord) -> dict[str, Any]:
    stage = record.stage
    if record.state == "queued":
        return {"text": record.queued_reason or say("state.queued.sentence")}
    if stage is None:
        return {"text": say("report.starting")}
    words = stage.text or say.get(f"stage.{stage.stage}") or say("report.starting")
    if stage.total <= 0:
        return {"text": words}
    return {"text": words, "share": min(stage.done / stage.total, 1.0)}


def stale(store: RunStore, report: Report) -> bool:
    """Whether checks were defined or changed since the report counted them."""
    if report.answers is None or not report.answers.rows:
        return False
    chosen = read_choices(store.locations).checks_for(report.data)
    return chosen != tuple(tally.check for tally in report.answers.tallies)


def recount(store: RunStore, run_id: str) -> None:
    """Counts today's checks in the answers that the report holds, without a model.

    Raises:
        RunError: there is no report, or it is being made.
        MachineError: the disk does not take it.
    """
    report, record = needed(store, run_id), store.report_record(run_id)
    if record is not None and record.state in LIVING:
        raise RunError("report.busy", run_id=run_id)
    if report.answers is None:
        return
    answers = judged(report.answers, read_choices(store.locations).checks_for(report.data))
    path = store.open(run_id).report_json
    try:
        write_whole(path, report.model_copy(update={"answers": answers}).model_dump_json())
    except OSError as error:
        raise not_written(path, error, "then try again") from error


def made_words(report: Report) -> str:
    """When it was made, and in which time."""
    if not report.made_at:
        return ""
    return say("report.made", when=day_and_time(report.made_at), took=duration(report.seconds))
