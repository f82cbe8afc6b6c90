"""``python -m core.worker JOB_DIR``: a job in, events out. One fresh process a job.

Hello and the mailbox come before heavy imports, so that a page sees life within a second. An error becomes one event;
its traceback goes to stderr, which is ``worker.log``.

Exit codes: 0 the job ended as its last event says; 75 a new process should go on from the last checkpoint, as a last
Note ``worker.restart`` says too (for a supervisor that adopted this worker); 1 nothing could be written to the log.
SIGUSR1 prints the stacks of all threads.
"""

import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from core.contract.errors import Fault, MachineError, RunError, first_line
from core.contract.events import Failed, Hello, Paused, Stopped
from core.machine.hardware import Machine, read_machine, titles_of
from core.machine.imports import importing, version_of
from core.machine.locations import Locations
from core.model.faults import is_card_fault, is_host_full, is_out_of_memory
from core.runs.control.gpu_lease import GIVES_WAY, GiveWay, SpareCard
from core.runs.control.mailbox import open_mailbox
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import expect_sound
from core.runs.folder.standing import ending_with_the_folder
from core.runs.log.events_log import EventWriter, open_writer
from core.runs.ranks.nodes import Meeting
from core.runs.ranks.start import cards_here, forget_launchers
from core.runs.record.words import unknown_fields_words
from core.runs.supervise.worker_process import CARD_VARIABLE, GAVE_WAY, RESTART_NOTE
from core.train.channel.command_queue import Afresh, CommandQueue, Leave
from core.train.channel.reporter import EventReporter, print_or_drop
from core.train.keep.checkpoint import is_disk_full
from core.train.ranks.leader import Leader, alone_instead
from core.train.ranks.member import Member

RESTART = 75
LOOK_SECONDS = 0.05
_STDERR = 2
_THEN = {
    RESTART_NOTE: "A fresh process goes on from the last checkpoint.",
    GAVE_WAY: "The report goes on when it is free again.",
}
PLAIN_VARIABLE = "LUTHIER_KERNELS"
_LIBRARIES = ("torch", "transformers", "peft", "bitsandbytes", "accelerate", "datasets", "triton")


def main(arguments: Sequence[str] | None = None) -> int:
    """Works on one job folder and returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if len(words) != 1:
        print("usage: python -m core.worker JOB_DIR", file=sys.stderr)
        return 1
    faulthandler.register(signal.SIGUSR1, file=_STDERR, all_threads=True)
    folder = JobFolder(Path(words[0]).resolve())
    machine = read_machine(folder.path)
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # libraries read these when they are imported
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.update(machine.cards.environment(os.environ))
    forget_launchers(os.environ)
    if Member.is_one():
        return _follow(folder, machine, Member())
    hello = _hello(machine)
    try:
        writer = open_writer(folder)  # from here on log and mailbox are ours
    except (Fault, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    reporter, team = EventReporter(writer), None
    reporter.say(hello)
    try:
        if os.environ.get(CARD_VARIABLE) and not machine.gpu:  # or it would train on the CPU
            raise Afresh("The card does not answer.")
        with ending_with_the_folder(folder):
            team = _team(folder, writer, reporter)
            _work(folder, writer, reporter, team)
    except Afresh as wish:
        _close(team, over=False)
        return _afresh(str(wish), reporter)
    except GiveWay:
        return _afresh("Somebody else wants the card.", reporter, GAVE_WAY)
    except Exception as error:  # noqa: BLE001 - every job needs its last event
        traceback.print_exc()
        if team and not isinstance(error, Fault):
            team.expect_all()  # another rank's death shows as an error here
        faulted = is_card_fault(error) and folder.kind == "train"
        alone = alone_instead(error, folder, cards_here(os.environ), reporter) if isinstance(error, Fault) else ""
        _close(team, over=not faulted and not alone)
        if alone:
            return _afresh(alone, reporter)
        if faulted:  # this process's CUDA context is lost
            return _afresh(f"The card faulted: {first_line(error).rstrip('.')}.", reporter)
        try:
            reporter.say(Failed.by(error if isinstance(error, Fault) else fault_of(error, folder.kind)))
        except Fault as unsaid:
            print(unsaid, file=sys.stderr)
            return 1
    finally:
        writer.close()
    return 0


def fault_of(error: BaseException, kind: str) -> Fault:
    """Somebody else's error as a fault; ``kind`` is the job's (``JobFolder.kind``)."""
    trains, reason = kind == "train", first_line(error).rstrip(".")
    if is_disk_full(error):
        return MachineError("disk.full/run" if trains else "disk.full/job", reason=reason)
    if is_host_full(error):
        machine = read_machine()
        return MachineError(
            "memory.host/run" if trains else "memory.host/job",
            free=machine.ram_free_bytes / 1e9,
            total=machine.ram_total_bytes / 1e9,
            wsl="; WSL has what .wslconfig gives it (memory=)" if machine.wsl else "",
        )
    if is_out_of_memory(error):
        return MachineError("memory.gpu/run" if trains else "memory.gpu/job")
    return RunError("worker.fault", kind=type(error).__name__, reason=reason)


def _team(folder: JobFolder, writer: EventWriter, reporter: EventReporter) -> Leader | None:
    """The other ranks of a training on several cards, started; they end this process where they cannot go on."""
    cards, meeting = cards_here(os.environ), Meeting.told(os.environ)
    if folder.kind != "train" or (cards.ranks == 1 and meeting is None):
        return None

    def ended(why: Fault | str) -> None:
        code = 1
        try:
            wish = why if isinstance(why, str) else alone_instead(why, folder, cards, reporter)
            if isinstance(why, Fault) and not wish:
                reporter.say(Failed.by(why))
                code = 0
            else:
                code = _afresh(wish, reporter)
            writer.close()
        finally:
            os._exit(code)  # whatever happens: the main thread waits for a rank that is gone

    return Leader(folder, cards, ended, meeting)


def _close(team: Leader | None, over: bool) -> None:
    if team:
        team.close(over)


def _follow(folder: JobFolder, machine: Machine, member: Member) -> int:
    """As a rank beside rank 0, which says what there is to say."""
    try:
        if os.environ.get(CARD_VARIABLE) and not machine.gpu:
            raise Afresh("its card does not answer.")
        if folder.config().train.kernels == "plain":
            os.environ[PLAIN_VARIABLE] = "plain"
        with importing():
            from core.train.ranks.follow import follow
        follow(folder, member)
    except Afresh as wish:
        member.tell(afresh=str(wish))
    except Exception as error:  # noqa: BLE001 - rank 0 has to know
        traceback.print_exc()
        if is_card_fault(error):
            member.tell(afresh=f"its card faulted: {first_line(error).rstrip('.')}.")
        else:
            member.tell(fault=(error if isinstance(error, Fault) else fault_of(error, "train")).told())
    member.wait()
    return 1


def _work(folder: JobFolder, writer: EventWriter, reporter: EventReporter, team: Leader | None) -> None:
    commands = CommandQueue(open_mailbox(folder, writer.attempt), reporter).start()
    reporter.stage("preparing", "Starting the libraries")
    try:
        if folder.kind == "export":
            with _leaving_at_once(commands, folder, writer), importing():
                from transformers import AutoTokenizer  # noqa: F401 - slow, so within this block

                from core.export.run import export
            export(folder, writer, commands)
            return
        if folder.kind == "report":
            _report(folder, writer, reporter, commands)
            return
        if words := unknown_fields_words(folder.unknown_fields()):
            reporter.note("config.unknown", words)
        expect_sound(config := folder.config())
        if config.train.kernels == "plain":
            os.environ[PLAIN_VARIABLE] = "plain"  # read when the kernels are imported, below
        with _leaving_at_once(commands, folder, writer), importing():
            from core.train.run import train
        train(folder, writer, commands, os.environ.get(PLAIN_VARIABLE) == "plain", team)
    finally:
        commands.close()


def _report(folder: JobFolder, writer: EventWriter, reporter: EventReporter, commands: CommandQueue) -> None:
    """Waits until nobody else holds or wants the card, then measures; raises GiveWay where somebody does."""
    with _leaving_at_once(commands, folder, writer):
        card = SpareCard(Locations.find(), read_machine(folder.path).cards, f"{GIVES_WAY}{folder.run_folder.name}")
        card.take(lambda who: reporter.stage("waiting", who))
    reporter.stage("preparing", "Starting the libraries")

    def give_way() -> None:
        if card.wanted():
            code = _afresh("Somebody else wants the card.", reporter, GAVE_WAY)
            writer.close()
            os._exit(code)

    with _leaving_at_once(commands, folder, writer, give_way), importing():
        from core.report.measure.run import report

    def safe_point() -> None:
        commands.check()
        card.check()

    report(folder, writer, commands, safe_point)


@contextmanager
def _leaving_at_once(
    commands: CommandQueue, folder: JobFolder, writer: EventWriter, give_way: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """While the block imports, a stop or pause ends the process at once, with its last event, and so may ``give_way``:
    nothing is there to be saved, and an import cannot be interrupted."""
    imported, guard = threading.Event(), threading.Lock()

    def look() -> None:
        while not imported.wait(LOOK_SECONDS):
            with guard:
                if not imported.is_set():
                    if commands.leaving:
                        _leave(commands, folder, writer)
                    give_way()

    threading.Thread(target=look, name="leaving", daemon=True).start()
    try:
        yield
    finally:
        with guard:
            imported.set()


def _leave(commands: CommandQueue, folder: JobFolder, writer: EventWriter) -> None:
    step = folder.newest_step() if folder.kind == "train" else 0
    try:
        commands.check()
    except Leave as leave:
        writer.write(Paused(step=step) if leave.verb == "pause" else Stopped(step=step, kept=step > 0))
        writer.close()
        os._exit(0)


def _afresh(why: str, reporter: EventReporter, code: str = RESTART_NOTE) -> int:
    """Asks for a new process by Note and exit code; where the log cannot be written, by the exit code alone."""
    try:
        reporter.note(code, why, _THEN[code])
    except Fault as unsaid:
        print(unsaid, file=sys.stderr)
    return RESTART


def _hello(machine: Machine) -> Hello:
    versions = {name: version for name in _LIBRARIES if (version := version_of(name))}
    card = machine.gpu if "+cpu" not in versions.get("torch", "") else None
    device, name = ("cuda:0", card.name) if card else ("cpu", f"{machine.cpu_count} CPU cores")
    together = cards_here(os.environ)
    cards = titles_of(together) if together.ids[1:] else ()
    return Hello(pid=os.getpid(), device=device, device_name=name, cards=cards, versions=versions)


if __name__ == "__main__":
    print_or_drop()
    code = main()
    if cards_here(os.environ).ranks > 1:
        os._exit(code)  # a process group whose other ranks are gone may keep the interpreter from ending
    sys.exit(code)
