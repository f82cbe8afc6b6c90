"""``python -m core.runs.supervise.supervisor JOB_DIR``: owns one job from the queue to its last event.

::

    take the log ─► wait for the card ─► start the worker ─► watch ─► settle ─┐
         │ a worker lives already: adopt it                 ▲   start again ◄─┘ it asked for it (exit code 75), stalled,
         └──────────────────────────────────────────────────┘                   or did not survive the machine's sleep

One writer at a time: the worker writes the log while it lives, the supervisor before and after. When this process dies
the worker goes on; a studio that looks at the run starts a supervisor that adopts it.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from core.contract.commands import Verb
from core.contract.errors import Fault, MachineError, RunError
from core.contract.events import Acknowledged, Event, Failed, Note, Paused, Queued, Stage, Starting, Stopped
from core.machine.cards import CardLock
from core.machine.hardware import Machine, read_machine
from core.machine.locations import Locations
from core.machine.locks import locked
from core.runs.control.create import sweep_exports, throw_away_debris
from core.runs.control.mailbox import ALL_VERBS, Mailbox, begun_attempt, open_mailbox
from core.runs.control.queue import JobQueue
from core.runs.control.reports import report_after
from core.runs.folder.flaws import flaw_of
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.standing import Standing
from core.runs.log.events_log import LogHold, PatientWriter, last_event
from core.runs.log.handover import ReadyPipe
from core.runs.process.activity import MemoryKills
from core.runs.process.awake import hold_session, keep_awake
from core.runs.process.processes import Identity, Owners, end_tree, find_worker, identify, inherited_lock, write_owners
from core.runs.record.job_record import RUNNING, folded
from core.runs.supervise.kernel_check import check_kernels_once, forget_kernels
from core.runs.supervise.telling import tell_end
from core.runs.supervise.watch import AwakeClock, CardLook, Ending, Restarts, Watch
from core.runs.supervise.worker_process import (
    GAVE_WAY,
    RESTART_EXIT_CODE,
    RESTART_NOTE,
    Worker,
    card_fault,
    chosen_machine,
    death,
    start_worker,
    worker_environment,
)

WORKER_COMMAND = (sys.executable, "-m", "core.worker")
PROOF_COMMAND = (sys.executable, "-m", "core.proof")
"""A proof takes the card by itself, when nothing waits for it."""
TICK_SECONDS = 0.1
GRACE_SECONDS = 1.0
"""Between SIGTERM and SIGKILL: 'stop now' is done within 3 s."""
ROOM_SECONDS = 0.5
TURN_TICKS = 3
"""The mailbox is read at every tick, the queue, which costs more, at every third."""
LEAVING: tuple[Verb, ...] = ("pause", "stop", "stop_now")
UNLIKE_HINT = "The smallest memory says how much a micro-batch may hold."
CARD_SECONDS = 600.0
"""Wait for a card that does not answer (sleep, a driver's reset, a cable)."""


class Supervisor:
    """Brings one job to its end."""

    def __init__(
        self, folder: JobFolder, locations: Locations, machine: Machine, worker_command: Sequence[str] = WORKER_COMMAND
    ) -> None:
        self.folder, self.locations = folder, locations
        self.worker_command, self.trains = worker_command, folder.kind == "train"
        self.machine, self.unfit = chosen_machine(folder, machine)
        self.lock = CardLock(locations, self.machine.cards)
        self.hold = LogHold(folder)
        self.standing = Standing(folder)
        self.writer: PatientWriter | None = None
        self.attempt = 1
        self.plain, self.kills = False, MemoryKills()
        self.restarts = Restarts(folder.newest_step(), len(folded(self.folder).corrections))

    def run(self) -> None:
        """Brings the job to its last event, or to its pause."""
        with hold_session(self.machine.wsl) as warning, keep_awake(self.machine.wsl):
            try:
                go_on = self._adopt_or_admit(warning)
                while go_on:
                    worker = self._start()
                    go_on = worker is not None and self._watch(worker)
            except (OSError, Fault) as error:
                if self.standing.gone():  # ends its processes, and deletes what they made there since
                    end_tree(self.folder, None, 0.0)
                    throw_away_debris(self.folder.path)
                    return
                self._fail(RunError("supervisor.failed", reason=error))
                raise
            finally:
                self.lock.release()
                self._give_log()
                JobQueue(self.locations).remove(self.folder.name)

    # ── before the worker ────────────────────────────────────────────────────────────────────────────────────────

    def _adopt_or_admit(self, warning: Note | None) -> bool:
        """Watches the worker that lives already, or else waits for the card. True: a worker is to start."""
        self._sign(find_worker(self.folder))
        while not self._take_log(0.5):
            # The log is held by a worker that is just starting, or was started by hand.
            if worker := find_worker(self.folder):
                self._sign(worker)
                return self._watch(Worker(worker)) and self._regain_card()
        state = folded(self.folder).state
        if self.unfit and state in RUNNING:
            return self._fail(self.unfit)
        if state in ("starting", "training"):  # the attempt's processes are gone
            return self._settle(None, Ending()) and self._regain_card()
        if state != "queued":
            return False
        if not self.folder.events.stat().st_size:
            self._say(Queued())
        if warning:
            self._say(warning)
        if unlike := self.machine.unlike:
            self._say(
                Note(code="cards.unlike", text=f"{unlike}: each gets rows by its measured speed.", hint=UNLIKE_HINT)
            )
        return not self.trains or self._wait_for_card()

    def _sign(self, worker: Identity | None) -> None:
        with suppress(OSError):  # full disk: the worker is known by its mark too
            write_owners(self.folder, Owners(identify(os.getpid()), worker, self.attempt))

    def _regain_card(self) -> bool:
        """Queues at the head: the lock went with the adopted worker."""
        if not self.trains:
            return True
        JobQueue(self.locations).add(self.folder.name, head=True)
        return self._wait_for_card()

    def _wait_for_card(self) -> bool:
        """Waits for this run's turn, saying what for; False when called off."""
        queue, run_id, cards = JobQueue(self.locations), self.folder.name, self.machine.cards
        queue.waits_for(run_id, cards)
        mailbox, said = open_mailbox(self.folder, self.attempt, ALL_VERBS), ""
        for tick in count():
            if self._called_off(mailbox):
                break
            if not tick % TURN_TICKS:
                if queue.take_turn(run_id, cards, self.lock):
                    return True
                if (reason := queue.reason(run_id, cards)) and reason != said:
                    self._say(Queued(reason=reason))
                    said = reason
            time.sleep(TICK_SECONDS)
        return False

    def _called_off(self, mailbox: Mailbox, worker: Worker | None = None) -> bool:
        """Obeys commands while no worker reads them; True when the job stops or pauses. A worker that is starting is
        ended before the acknowledgement, so that none goes on if we die in between.

        Raises:
            OSError: the folder is gone.
        """
        self.standing.check()
        for command in mailbox.poll():
            if worker:
                end_tree(self.folder, worker.identity, 0.0)
            self._say(Acknowledged(command_id=command.id, command=command.verb))
            if command.verb in LEAVING:
                JobQueue(self.locations).remove(self.folder.name)  # before listings show that it ended
                self._leave(command.verb)
                return True
        return False

    # ── with the worker ──────────────────────────────────────────────────────────────────────────────────────────

    def _start(self) -> Worker | None:
        """Starts a worker and hands it the log; None when the job was called off before."""
        # Under the mailbox's lock no command falls between two attempts.
        with locked(self.folder.commands):
            if self._called_off(open_mailbox(self.folder, self.attempt, ALL_VERBS)):
                return None
            self.attempt = max(self.attempt, begun_attempt(self.folder.events) + 1)
            self._open_writer()
            self._say(Starting(resumed_step=self.folder.newest_step(), step=self.folder.newest_step()))
        mailbox = open_mailbox(self.folder, self.attempt, LEAVING)  # a save is left to the worker
        if self.trains and self.machine.gpu and not self.plain:
            note = check_kernels_once(self.machine.working, self.locations, lambda: self._called_off(mailbox))
            if folded(self.folder).state != "starting":
                return None
            if note:
                self.plain = True
                self._say(note)
        machine, _ = chosen_machine(self.folder, self.machine)  # with fewer cards, where the last attempt said so
        told, ready = worker_environment(os.environ, self.folder, machine, self.attempt, self.plain), ReadyPipe()
        self.kills = MemoryKills(self.folder.log)
        try:
            inherited = [self.hold.fileno(), *self.lock.filenos(), ready.descriptor]
            worker = start_worker(self.folder, self.worker_command, told | ready.environment, inherited)
            ready.passed_on()
            self._sign(worker.identity)
            try:
                if ready.wait(lambda: self._called_off(mailbox, worker)):
                    return None
            except (OSError, Fault):
                end_tree(self.folder, worker.identity, 0.0)
                raise
            self._give_log()
        finally:
            ready.close()
        return worker

    def _watch(self, worker: Worker) -> bool:
        """Waits for the worker's end and settles it; True when a new worker is to be started."""
        record = folded(self.folder)
        self.attempt = max(self.attempt, record.attempt)
        ending = Watch(self.folder, worker, self.attempt, record, self.standing).wait()
        end_tree(self.folder, worker.identity, GRACE_SECONDS if ending.stop or ending.late else 0.0)
        self.standing.check()
        while not self._take_log(1.0):
            end_tree(self.folder, worker.identity, 0.0)
        return self._settle(worker.exit_code, ending)

    # ── after the worker ─────────────────────────────────────────────────────────────────────────────────────────

    def _settle(self, exit_code: int | None, ending: Ending) -> bool:
        """Writes the job's last event where the worker could not; True when a new worker is to be started."""
        record, stop, step = folded(self.folder), ending.stop, self.folder.newest_step()
        if self.trains and (exit_code != 0 or record.state == "failed"):
            forget_kernels(self.locations)  # they may be the reason
        if stop and stop.id not in record.acknowledged:
            self._say(Acknowledged(command_id=stop.id, command=stop.verb))
        if record.state not in RUNNING:
            if record.plan is not None and record.plan.predicted is not None:
                from core.runs.record.learned import learn  # here, since it imports the planner

                learn(self.folder, record, self.locations)
            return False
        if stop:
            return self._leave(stop.verb)
        if ending.late:
            text = f"The worker was asked to {ending.late}, did not leave in time, and was ended."
            self._say(Note(code="left.late", text=text, hint=f"What came after step {step} is lost."))
            return self._leave(ending.late)
        # Only a parent knows the exit code: of an adopted worker the last event counts.
        last = last_event(self.folder.events)
        codes = (RESTART_NOTE, GAVE_WAY)
        wished = exit_code == RESTART_EXIT_CODE or (isinstance(last, Note) and last.code in codes)
        killed = exit_code == -signal.SIGKILL
        fault = card_fault(self.folder.log) if self.machine.gpu and not killed else ""
        if record.pending in ("stop", "pause") and (ending.stall or wished or ending.slept_seconds or fault):
            return self._leave(record.pending)  # a new worker would not know of the command
        if isinstance(last, Note) and last.code == GAVE_WAY:
            return True
        worth_it = self.restarts.worth_it(step, len(record.corrections))
        count = self.restarts.futile
        if ending.stall:
            hint = f"It goes on from step {step}; where every thread stood is in worker.log."
            self._say(Note(code="stall", text=f"{ending.stall.words}.", hint=hint))
            futile = RunError("worker.stalled", what=ending.stall.what, count=count, step=step)
        elif wished:
            futile = RunError("worker.restarts/asked", count=count, step=step)
        elif ending.slept_seconds:
            minutes = ending.slept_seconds / 60
            away = f"The machine slept for {minutes:,.0f} min and the worker did not survive it"
            self._say(Note(code="worker.slept", text=f"{away}: interrupted, goes on from step {step}."))
            futile = RunError("worker.slept", minutes=minutes, count=count, step=step)
        elif fault:
            self._say(Note(code="card.fault", text=f"The card faulted: {fault}"))
            futile = RunError("worker.restarts/card", count=count, step=step)
        else:
            return self._fail(death(exit_code, step if self.trains else None, self.kills))
        if not worth_it:
            return self._fail(futile)
        if not self._await_card():
            return False
        self._say(Note(code="worker.restarted", text=f"A fresh worker goes on from step {step}."))
        return True

    def _await_card(self) -> bool:
        """Waits for a card that does not answer; False where it stays away, or the job was called off."""
        step, clock, said = self.folder.newest_step(), AwakeClock(), False
        mailbox = open_mailbox(self.folder, self.attempt, ALL_VERBS)
        look = CardLook(self.machine.cards)
        while self.trains and not look.answers():
            if clock.tick() >= CARD_SECONDS:
                return self._fail(MachineError("card.gone", minutes=CARD_SECONDS / 60, step=step))
            if self._called_off(mailbox):
                return False
            if not said and clock.awake > 1.0:
                self._say(Stage(stage="waiting", text="The card does not answer: waiting for it", step=step))
                said = True
            time.sleep(TICK_SECONDS)
        return True

    def _leave(self, verb: str) -> bool:
        """Says that the job stopped or paused as asked; always False."""
        step = self.folder.newest_step() if self.trains or verb == "pause" else 0
        self._say(Paused(step=step) if verb == "pause" else Stopped(step=step, kept=step > 0))
        return False

    def _fail(self, fault: Fault) -> bool:
        """Says a failure, where the log is ours; always False."""
        if self.writer or self._take_log(0):
            self._say(Failed.by(fault))
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
        self.writer = PatientWriter(self.folder.events, self.attempt)

    def _give_log(self) -> None:
        if self.writer:
            self.writer.close()
        self.writer = None
        self.hold.give()

    def _say(self, event: Event) -> None:
        """Writes an event; on a full disk waits until there is room."""
        if self.writer is None:
            return
        self.writer.write(event)
        while self.writer.behind:
            time.sleep(ROOM_SECONDS)
            self.standing.check()
            with suppress(MachineError):
                self.writer.catch_up()


def supervise(path: Path, worker_command: Sequence[str] = WORKER_COMMAND, machine: Machine | None = None) -> int:
    """Supervises the job in this folder to its end; returns 0 at once where it has a supervisor."""
    folder, locations = JobFolder(path.resolve()), Locations.find().make()
    if flaw_of(folder.path):
        return os.EX_DATAERR
    if inherited_lock(folder) is None:
        return 0
    supervisor = Supervisor(folder, locations, machine or read_machine(locations.home), worker_command)
    supervisor.run()
    sweep_exports(folder.run_folder, ended=folder.name)
    if supervisor.trains and not supervisor.standing.gone():
        tell_end(folder, locations, supervisor.machine.wsl)
        report_after(folder, folded(folder), locations)
    return 0


def main(arguments: Sequence[str]) -> int:
    """``python -m core.runs.supervise.supervisor JOB_DIR``."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("expected the folder of one job", file=sys.stderr)
        return os.EX_USAGE
    proof = JobFolder(Path(arguments[0])).kind == "proof"
    return supervise(Path(arguments[0]), PROOF_COMMAND if proof else WORKER_COMMAND)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
