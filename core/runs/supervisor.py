"""``python -m core.runs.supervisor JOB_DIR``: owns one job from the queue to its last event.

::

    take the log ─► wait for the card ─► start the worker ─► watch ─► settle ─┐
         │ a worker lives already: adopt it                 ▲   start again ◄─┘ (exit code 75)
         └──────────────────────────────────────────────────┘

It is detached and light. One writer at a time: the worker writes the log while it lives, the supervisor before and
after. When this process dies the worker trains on; the next look of a studio starts a supervisor that adopts it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from core.contract.commands import Command
from core.contract.errors import StudioError
from core.contract.events import Acknowledged, Event, Failed, Note, Paused, Queued, Starting, Stopped
from core.hardware import Machine, read_machine
from core.locations import Locations
from core.runs.folder import JobFolder
from core.runs.kernel_check import check_kernels
from core.runs.launch import inherited_lock
from core.runs.locks import CardLock, locked
from core.runs.log import LAST_KINDS, EventTail, EventWriter, LogHold, last_event
from core.runs.mailbox import ALL_VERBS, Mailbox, acknowledged_ids
from core.runs.processes import Identity, Owners, end_tree, find_worker, identify, write_owners
from core.runs.queue import JobQueue, Turn
from core.runs.record import RUNNING, RunRecord, fold
from core.runs.worker_process import RESTART_EXIT_CODE, Worker, exit_words, start_worker, worker_environment
from core.runs.wsl import hold_session

__all__ = ["WORKER_COMMAND", "Supervisor", "main", "supervise"]

WORKER_COMMAND = (sys.executable, "-m", "core.worker")
PROOF_COMMAND = (sys.executable, "-m", "core.proof")
"""A proof takes the card by itself, when nothing waits for it, and is measured in processes of its own."""
TICK_SECONDS = 0.1
GRACE_SECONDS = 1.0
"""What a worker gets between being asked to end and being killed: 'stop now' is done within 3 s."""
LINGER_SECONDS = 30.0
"""What a worker gets to leave after its last event before it is ended."""
MAX_FUTILE_RESTARTS = 2


class Supervisor:
    """One job and what is needed to bring it to an end."""

    def __init__(
        self, folder: JobFolder, locations: Locations, machine: Machine, worker_command: Sequence[str] = WORKER_COMMAND
    ) -> None:
        self.folder, self.locations, self.machine = folder, locations, machine
        self.worker_command = worker_command
        self.card = CardLock(locations, machine.lock_name)
        self.hold = LogHold(folder)
        self.writer: EventWriter | None = None
        self.attempt = 1
        self.plain = False
        self._futile, self._furthest = 0, 0

    def run(self) -> None:
        """Brings the job to its last event, or to its pause."""
        with hold_session(self.machine.wsl) as warning:
            try:
                go_on = self._adopt_or_admit(warning)
                while go_on:
                    worker = self._start()
                    go_on = worker is not None and self._watch(worker)
            except (OSError, StudioError) as error:
                self._fail("supervisor.failed", str(error), "See worker.log in the run's folder, then resume.")
                raise
            finally:
                self.card.release()
                self._give_log()
                JobQueue(self.locations).remove(self.folder.name)

    # ── before the worker ────────────────────────────────────────────────────────────────────────────────────────

    def _adopt_or_admit(self, warning: Note | None) -> bool:
        """Watches the worker that lives here already; where none does, admits the job. True: a worker is to start."""
        self._sign(find_worker(self.folder))
        while not self._take_log(0.5):
            # Held but not found: the worker is being started, or was started by hand and is only waited for.
            if worker := find_worker(self.folder):
                self._sign(worker)
                return self._watch(Worker(worker))
        return self._admit(warning)

    def _sign(self, worker: Identity | None) -> None:
        write_owners(self.folder, Owners(identify(os.getpid()), worker, self.attempt))

    def _admit(self, warning: Note | None) -> bool:
        """A job that nobody works on: True once it may start."""
        record = self._record()
        if record.state != "queued":
            if record.state in ("starting", "training"):
                self._settle(None, None)
            return False
        if not self.folder.events.stat().st_size:
            self._say(Queued())
        if warning:
            self._say(warning)
        return self.folder.kind != "train" or self._wait_for_card()

    def _wait_for_card(self) -> bool:
        """Waits for this run's turn, saying what it waits for; False when called off meanwhile."""
        turn = Turn(self.locations, self.machine, self.folder.name)
        turn.join()
        mailbox, said = self._open_mailbox(), ""
        while not self._called_off(mailbox):
            if turn.take(self.card):
                return True
            if (reason := turn.reason()) and reason != said:
                self._say(Queued(reason=reason))
                said = reason
            time.sleep(TICK_SECONDS)
        return False

    def _open_mailbox(self) -> Mailbox:
        return Mailbox(self.folder, self.attempt, acknowledged_ids(self.folder.events), ALL_VERBS)

    def _called_off(self, mailbox: Mailbox) -> bool:
        """Obeys what was asked while no worker listens: True when the job stops or pauses here."""
        for command in mailbox.poll():
            self._say(Acknowledged(command_id=command.id, command=command.verb))
            if command.verb in ("stop", "stop_now"):
                self._say(self._stopped())
                return True
            if command.verb == "pause":
                self._say(Paused(step=self.folder.newest_step()))
                return True
        return False

    # ── with the worker ──────────────────────────────────────────────────────────────────────────────────────────

    def _start(self) -> Worker | None:
        """Starts a worker and hands it the log; None when the job was called off before."""
        # Under the mailbox's lock no command can fall between the attempt that ends and the one that begins.
        with locked(self.folder.commands):
            if self._called_off(self._open_mailbox()):
                return None
            self.attempt = max(self.attempt, self._begun() + 1)
            self._open_writer()
            self._say(Starting(resumed_step=self.folder.newest_step(), step=self.folder.newest_step()))
        if not self._try_kernels():
            return None
        environment = worker_environment(os.environ, self.folder, self.machine, self.attempt, self.plain)
        worker = start_worker(self.folder, self.worker_command, environment, [self.hold.fileno(), self.card.fileno()])
        self._give_log()
        self._sign(worker.identity)
        return worker

    def _try_kernels(self) -> bool:
        """Finds out whether kernels run here, where there is a card; False when the job was called off meanwhile."""
        if self.folder.kind != "train" or not self.machine.gpu or self.plain:
            return True
        mailbox = self._open_mailbox()
        note = check_kernels(lambda: self._called_off(mailbox))
        if self._record().state != "starting":
            return False
        if note:
            self.plain = True
            self._say(note)
        return True

    def _watch(self, worker: Worker) -> bool:
        """Waits for the worker's end and settles it; True when a fresh worker is to be started."""
        record = self._record()
        self.attempt = max(self.attempt, record.attempt)
        mailbox = Mailbox(self.folder, self.attempt, set(record.acknowledged), {"stop_now"})
        stop: Command | None = None
        next_look = time.monotonic() + LINGER_SECONDS
        while stop is None and not worker.gone():
            stop = next(iter(mailbox.poll()), None)
            if time.monotonic() > next_look:
                next_look += 2.0
                if self._lingers():
                    break
            time.sleep(TICK_SECONDS)
        end_tree(self.folder, worker.identity, GRACE_SECONDS if stop else 0.0)
        while not self._take_log(1.0):
            end_tree(self.folder, worker.identity, 0.0)
        return self._settle(worker.exit_code, stop)

    def _lingers(self) -> bool:
        """Whether the log ended a while ago and the worker is still there."""
        try:
            idle = time.time() - self.folder.events.stat().st_mtime
        except OSError:
            return False
        if idle < LINGER_SECONDS:
            return False
        last = last_event(self.folder.events)
        return last is not None and last.kind in LAST_KINDS

    # ── after the worker ─────────────────────────────────────────────────────────────────────────────────────────

    def _learn(self, record: RunRecord) -> None:
        if record.plan is not None and record.plan.predicted is not None:
            from core.runs.learned import learn  # brings the planner along, which nothing else here asks for

            learn(self.folder, record, self.locations)

    def _settle(self, exit_code: int | None, stop: Command | None) -> bool:
        """Writes the job's last event where the worker could not; True when a fresh worker is to be started."""
        record = self._record()
        if stop and stop.id not in record.acknowledged:
            self._say(Acknowledged(command_id=stop.id, command=stop.verb))
        if record.state not in RUNNING:
            self._learn(record)
            return False
        if stop:
            self._say(self._stopped())
            return False
        if exit_code == RESTART_EXIT_CODE:
            return self._again(record)
        message, hint = exit_words(exit_code, self.folder.newest_step())
        return self._fail("worker.died", message, hint)

    def _again(self, record: RunRecord) -> bool:
        """Whether a restart that the worker asked for is worth it; what was promised before it is kept first."""
        step = self.folder.newest_step()
        if record.pending in ("stop", "pause"):
            self._say(self._stopped() if record.pending == "stop" else Paused(step=step))
            return False
        self._futile = 1 if step > self._furthest else self._futile + 1
        self._furthest = max(step, self._furthest)
        if self._futile > MAX_FUTILE_RESTARTS:
            message = f"The worker needed a fresh process {self._futile} times without getting beyond step {step}."
            return self._fail("worker.restarts", message, "See worker.log in the run's folder, then resume.")
        text = f"The worker asked for a fresh process; it goes on from step {step}."
        self._say(Note(code="worker.restarted", text=text))
        return True

    def _stopped(self) -> Stopped:
        step = self.folder.newest_step() if self.folder.kind == "train" else 0
        return Stopped(step=step, kept=step > 0)

    def _fail(self, code: str, message: str, hint: str) -> bool:
        """Says a failure, where the log is ours; always False: nothing is started again."""
        if self.writer or self._take_log(0):
            self._say(Failed(code=code, message=message, hint=hint))
        return False

    # ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_log(self, seconds: float) -> bool:
        if not self.hold.take(seconds):
            return False
        last = last_event(self.folder.events)
        self.attempt = max(self.attempt, last.attempt if last else 1)
        self._open_writer()
        return True

    def _open_writer(self) -> None:
        if self.writer:
            self.writer.close()
        self.writer = EventWriter(self.folder.events, self.attempt)

    def _give_log(self) -> None:
        if self.writer:
            self.writer.close()
        self.writer = None
        self.hold.give()

    def _say(self, event: Event) -> None:
        if self.writer:
            self.writer.write(event)

    def _record(self) -> RunRecord:
        return fold(EventTail(self.folder.events).read())

    def _begun(self) -> int:
        """The last attempt for which a worker was started."""
        begun = [event.attempt for event in EventTail(self.folder.events).read() if isinstance(event, Starting)]
        return max(begun, default=0)


def supervise(path: Path, worker_command: Sequence[str] = WORKER_COMMAND, machine: Machine | None = None) -> int:
    """Owns the job in this folder until its end; at once 0 where it has a supervisor already."""
    folder, locations = JobFolder(path.resolve()), Locations.find().make()
    lock = inherited_lock(folder)
    if lock is None:
        return 0
    Supervisor(folder, locations, machine or read_machine(locations.home), worker_command).run()
    return 0


def main(arguments: Sequence[str]) -> int:
    """``python -m core.runs.supervisor JOB_DIR``."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("expected the folder of one job", file=sys.stderr)
        return os.EX_USAGE
    proof = JobFolder(Path(arguments[0])).kind == "proof"
    return supervise(Path(arguments[0]), PROOF_COMMAND if proof else WORKER_COMMAND)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
