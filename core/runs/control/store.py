"""All runs under one root: made, started, steered, listed and deleted.

The store writes only into a folder that it is making, or into the log of a dead job under that job's locks. Everything
else is asked of the job through its mailbox.
"""

import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from core.contract.commands import Verb
from core.contract.config import RunConfig
from core.contract.errors import Fault, MachineError, RunError
from core.contract.events import Event, Queued, Resumed, Stopped
from core.contract.forms import FORMS
from core.machine.disk import cure
from core.machine.imports import install_command, missing_of
from core.machine.locations import Locations
from core.machine.locks import FileLock, is_held
from core.runs.control.create import make_export, make_run, once, sweep, sweep_exports, throw_away
from core.runs.control.mailbox import send
from core.runs.control.queue import JobQueue
from core.runs.control.reports import make_report
from core.runs.control.takeover import DeadJob, take_over
from core.runs.control.trash import empty, put_away
from core.runs.folder.flaws import flaw_of
from core.runs.folder.job_folder import JOB_NAME, RUN_ID, ExportRequest, JobFolder, ReportRequest
from core.runs.folder.notes import read_opened
from core.runs.process.activity import wake
from core.runs.process.processes import SUPERVISOR_COMMAND, end_job, read_owners, start_follower, start_supervisor
from core.runs.record.job_record import ENDED, RUNNING, Folds, RunRecord
from core.runs.record.summary import RunSummary, nobody_lives, summarise

LEAVING_SECONDS = 10.0
"""Wait for the processes of a job that has ended."""
DISCARD_SECONDS = 15.0
"""Wait for a run that is to end at once; its processes are ended after three."""


class RunStore:
    """The runs of one root folder. Holds no state but a cache: any number of stores may share a root."""

    def __init__(self, locations: Locations, supervisor_command: Sequence[str] = SUPERVISOR_COMMAND) -> None:
        self.locations = locations
        self._command = supervisor_command
        self._queue = JobQueue(locations)
        self._folds = Folds()

    # ── making and starting ──────────────────────────────────────────────────────────────────────────────────────

    def start(self, config: RunConfig, draft_id: str = "") -> str:
        """Makes a run, queues it and starts its supervisor; the same draft again gives the first one's run id.

        Raises:
            ConfigError: the config has faults; all are named.
            MachineError: the disk does not take it, or no process can be made.
        """
        with once(self.locations, draft_id) as (known, note):
            if known:
                # A first Start that was cut off before its supervisor came up is completed.
                with take_over(self.open(known)) as dead:
                    if dead is not None and dead.record.state == "queued":
                        self._hand_on(dead, max(dead.record.attempt, 1), Queued())
                return known
            folder, lock = make_run(self.locations, config, note)
            try:
                self._queue.add(folder.name)
            except OSError as error:  # a run that is not queued would never start
                lock.release()
                with suppress(OSError):
                    throw_away(folder.path)
                raise MachineError(
                    "disk.write/start",
                    folder=folder.path.parent,
                    reason=error.strerror or error,
                    cure=cure(error, "or choose another with --home"),
                ) from error
            self._spawn(folder, lock)
            return folder.name

    def resume(self, run_id: str, anyway: bool = False, cards: str | None = None) -> None:
        """Queues a run at the head, to go on from its last checkpoint as its next attempt; with ``anyway`` also where
        data or library versions differ, with ``cards`` on these from now on (``train.cards``).

        Raises:
            RunError: it runs, or is finished.
        """
        folder = self._own(run_id, "resumed")
        self._expect(run_id, ("paused", "stopped", "failed", "lost"), "resumed")
        with take_over(folder, LEAVING_SECONDS) as dead:
            if dead is None or dead.record.state == "finished":
                raise RunError("run.busy/resume", run_id=run_id)
            resumed = Resumed(step=dead.folder.newest_step(), anyway=anyway)
            moved = dead.moved(cards)
            self._hand_on(dead, dead.record.attempt + 1, resumed, *moved, Queued(), head=True)

    def adopt(self) -> list[str]:
        """Gives every worker without a supervisor a new one; returns the jobs' names."""
        sweep(self.locations)
        empty(self.locations)
        sound = [run for run in self._runs() if not flaw_of(run.path)]
        jobs = [job for run in sound for job in (run, *_jobs(run))]
        return [job.name for job in jobs if not flaw_of(job.path) and self._adopt(job)]

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, run_id: str) -> JobFolder:
        """The folder of a run, checked: nothing in it is a link, or otherwise not what it should be.

        Raises:
            RunError: no such run, or it cannot be read.
        """
        folder = self._place(run_id)
        if flaw := flaw_of(folder.path):
            raise _unreadable(folder, flaw)
        return folder

    def living(self) -> list[str]:
        """The runs that have not ended (queued, starting, training, paused), newest first."""
        return [run.run_id for run in self.list() if run.state in RUNNING or run.state == "paused"]

    def queue(self) -> list[str]:
        """The runs that wait for the card, next first; the one that holds it is not among them."""
        return self._queue.order()

    def at_work(self) -> list[str]:
        """The runs that a process works on or waits for, newest first."""
        return sorted((run.name for run in self._runs() if not nobody_lives(run)), reverse=True)

    def written_since(self, at: float) -> list[RunSummary]:
        """The runs in whose logs something was written since; no other is opened."""
        return [summarise(run) for run in self._runs() if _written_at(run) >= at]

    def list(self) -> list[RunSummary]:
        """All runs, newest first."""
        summaries = [summarise(folder) for folder in self._runs()]
        return sorted(summaries, key=lambda run: (run.run_id[:15], run.started_at or 0.0, run.run_id), reverse=True)

    def record(self, run_id: str) -> RunRecord:
        """All that is known of a run. A worker without a supervisor gets a new one."""
        return self._judged(self.open(run_id))

    # ── steering ─────────────────────────────────────────────────────────────────────────────────────────────────

    def pause(self, run_id: str) -> None:
        """Asks a run to save, to leave the card, and to wait for ``resume``."""
        self._ask(run_id, "pause", RUNNING, "paused")

    def save(self, run_id: str) -> None:
        """Asks a run for a checkpoint now."""
        self._ask(run_id, "save", ("starting", "training"), "saved")

    def sample(self, run_id: str, prompt: str, max_new_tokens: int = 128) -> str:
        """Asks a training run a question; its Sample events carry the id that is returned."""
        self._expect(run_id, ("training",), "asked")
        return send(self.open(run_id), "sample", prompt=prompt, max_new_tokens=max_new_tokens).id

    def stop(self, run_id: str) -> None:
        """Asks a run to save and to stop. A paused or lost one is stopped where it stands."""
        self._stop(run_id, "stop")

    def stop_now(self, run_id: str) -> None:
        """Has a run's processes ended within 3 s; what was not saved is lost."""
        self._stop(run_id, "stop_now")

    def move(self, run_id: str, place: int) -> None:
        """Puts a waiting run at this place of ``queue()`` (0 is next).

        Raises:
            RunError: it does not wait any more.
        """
        if not self._queue.move(self.open(run_id).name, place):
            raise RunError("queue.gone", run_id=run_id)

    def discard(self, run_id: str) -> None:
        """Ends a run at once and deletes it with all that it made.

        Raises:
            RunError: it has ended already, or does not end in time; then nothing is deleted.
        """
        if flaw_of(self._place(run_id).path):
            self._delete_unread(self._place(run_id))
            return
        self.stop_now(run_id)
        until = time.monotonic() + DISCARD_SECONDS
        while self.record(run_id).state in RUNNING and time.monotonic() < until:
            time.sleep(0.05)
        self.delete(run_id)

    def delete(self, run_id: str, *, undo: bool = False) -> None:
        """Deletes a run with all that it made; one that cannot be read as well. A report that is being made ends. With
        ``undo`` it can be taken back until it is emptied (``core.runs.control.trash``).

        Raises:
            RunError: it, or an export of it, is at work.
        """
        folder = self._place(run_id)
        try:
            at_work = self._fold(self.open(run_id)).state in RUNNING
        except RunError:
            self._delete_unread(folder, undo)
            return
        if not at_work and not nobody_lives(folder.report_job):
            end_job(folder.report_job)
        with take_over(folder, 0.0 if at_work else LEAVING_SECONDS) as dead:
            if dead is None or not all(nobody_lives(job) for job in _jobs(folder)):
                raise RunError("run.busy/delete", run_id=run_id)
            self._throw_away(folder, undo)

    # ── exports ──────────────────────────────────────────────────────────────────────────────────────────────────

    def export(self, run_id: str, request: ExportRequest) -> str:
        """Starts an export job and returns its name, also that of its folder under ``exports/``.

        Raises:
            RunError: the run has no checkpoint, the name is none on Windows, or a package is missing.
        """
        run = self.open(run_id)
        if run.newest_checkpoint() is None:
            raise RunError("export.nothing", run_id=run_id)
        if missing := missing_of(FORMS[request.form].needs):
            named, command = " and ".join(missing), install_command(missing)
            raise RunError("export.needs", missing=named, form=request.form, command=command)
        job, lock = make_export(run, request)
        self._spawn(job, lock)
        return job.name

    def export_folder(self, run_id: str, name: str) -> JobFolder:
        """The folder of an export job.

        Raises:
            RunError: no such run or job.
        """
        job = JobFolder(self.open(run_id).jobs / name) if JOB_NAME.fullmatch(name) else None
        if job is None or flaw_of(job.path):
            raise RunError("export.unknown", run_id=run_id, name=name[:80])
        return job

    def export_record(self, run_id: str, name: str) -> RunRecord:
        """All that is known of an export job."""
        record = self._judged(self.export_folder(run_id, name))
        if record.state not in RUNNING:
            sweep_exports(self.open(run_id))
        return record

    def stop_export(self, run_id: str, name: str) -> None:
        """Asks an export job to stop."""
        send(self.export_folder(run_id, name), "stop")

    # ── reports ──────────────────────────────────────────────────────────────────────────────────────────────────

    def report(self, run_id: str, request: ReportRequest | None = None) -> JobFolder:
        """Starts the job that makes a run's report, or goes on with one that did not fit; its folder.

        Raises:
            RunError: the run has no checkpoint, or its report is being made.
        """
        job, lock = make_report(self._own(run_id, "measured"), request or ReportRequest())
        self._spawn(job, lock)
        return job

    def report_record(self, run_id: str) -> RunRecord | None:
        """All that is known of the job of a run's report; None where none was ever started. The report itself is
        ``open(run_id).report_json``, also while it is being made."""
        job = self.open(run_id).report_job
        return self._judged(job) if job.path.is_dir() and not flaw_of(job.path) else None

    def stop_report(self, run_id: str) -> None:
        """Asks the job of a run's report to stop; what it has measured stays."""
        self._tell(self.open(run_id).report_job, "stop")

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _place(self, run_id: str) -> JobFolder:
        folder = JobFolder(self.locations.runs / run_id) if RUN_ID.fullmatch(run_id) else None
        if folder is None or not os.path.lexists(folder.path):
            raise RunError("run.unknown/none", run_id=run_id[:80])
        return folder

    def _own(self, run_id: str, done: str) -> JobFolder:
        """The folder of a run that was made here, with its data."""
        folder = self.open(run_id)
        if read_opened(folder):
            raise RunError("run.opened", run_id=run_id, done=done)
        return folder

    def _delete_unread(self, folder: JobFolder, undo: bool = False) -> None:
        """Deletes a run whose files must not be opened; its processes are known by command line and mark."""
        end_job(folder)
        self._throw_away(folder, undo)

    def _throw_away(self, folder: JobFolder, undo: bool) -> None:
        with suppress(OSError):  # full disk: a dead entry is skipped, and dropped later
            self._queue.remove(folder.name)
        self._folds.forget(folder)
        if undo:
            put_away(folder)
        else:
            throw_away(folder.path)

    def _judged(self, folder: JobFolder) -> RunRecord:
        # Dead before the log was read: the log is complete. Checked again after, since it may have been resumed.
        dead = nobody_lives(folder)
        record = self._fold(folder, dead)
        if record.state not in RUNNING:
            return record
        if dead and nobody_lives(folder):
            return replace(record, state="lost")
        self._adopt(folder)
        return record

    def _fold(self, folder: JobFolder, dead: bool = False) -> RunRecord:
        try:
            return self._folds.record(folder, dead)
        except OSError as error:
            raise _unreadable(folder, f"events.jsonl cannot be read ({error.strerror})") from error

    def _adopt(self, folder: JobFolder) -> bool:
        if is_held(folder.supervisor_lock) or not is_held(folder.events):
            return False
        lock = FileLock(folder.supervisor_lock)
        if not lock.acquire():
            return False
        self._spawn(folder, lock)
        return True

    def _hand_on(self, dead: DeadJob, attempt: int, *events: Event, head: bool = False) -> None:
        """Writes these events for a dead job, queues it and starts its supervisor."""
        dead.say(attempt, *events)
        self._queue.add(dead.folder.name, head)
        dead.hold.give()
        self._spawn(dead.folder, dead.lock)

    def _spawn(self, folder: JobFolder, lock: FileLock) -> None:
        start_supervisor(folder, self.locations, lock, self._command, "resume the run")
        with suppress(Fault):
            if folder.kind == "train" and (sink := folder.config().train.report_to) != "none":
                start_follower(folder, sink, self.locations)

    def _stop(self, run_id: str, verb: Verb) -> None:
        record = self._expect(run_id, {*RUNNING, "paused", "lost"}, "stopped")
        folder = self.open(run_id)
        if record.state in RUNNING:
            self._tell(folder, verb)
            return
        with take_over(folder, LEAVING_SECONDS) as dead:
            if dead is None:
                raise RunError("run.busy/stop", run_id=run_id)
            if dead.record.state not in ENDED:
                step = folder.newest_step()
                dead.say(max(dead.record.attempt, 1), Stopped(step=step, kept=step > 0))
                self._queue.remove(run_id)

    def _ask(self, run_id: str, verb: Verb, states: Collection[str], done: str) -> None:
        self._expect(run_id, states, done)
        self._tell(self.open(run_id), verb)

    def _tell(self, folder: JobFolder, verb: Verb) -> None:
        """Sends a command and wakes the supervisor, which may have been halted (SIGSTOP)."""
        send(folder, verb)
        wake(read_owners(folder).supervisor)

    def _expect(self, run_id: str, states: Collection[str], done: str) -> RunRecord:
        record = self.record(run_id)
        if record.state not in states:
            allowed = ", ".join(sorted(states))
            raise RunError("run.state", run_id=run_id, state=record.state, done=done, allowed=allowed)
        return record

    def _runs(self) -> Iterator[JobFolder]:
        if not self.locations.runs.is_dir():
            return
        for path in self.locations.runs.iterdir():
            if RUN_ID.fullmatch(path.name):
                yield JobFolder(path)


def _written_at(run: JobFolder) -> float:
    try:
        return os.lstat(run.events).st_mtime
    except OSError:
        return 0.0


def _unreadable(folder: JobFolder, reason: str) -> RunError:
    return RunError("run.unreadable", name=folder.name, reason=reason)


def _jobs(run: JobFolder) -> Iterator[JobFolder]:
    if run.jobs.is_dir():
        named = (JobFolder(path) for path in run.jobs.iterdir() if JOB_NAME.fullmatch(path.name))
        yield from (*named, *([run.report_job] if run.report_job.path.is_dir() else []))
