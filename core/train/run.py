"""One attempt at a training run, from its folder to its last event.

It resumes from the newest intact checkpoint; on the CPU the result is bit for bit that of an uninterrupted run. On
pause and stop the last whole step is saved and the process ends.
"""

import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from core.contract.config import RunConfig
from core.contract.errors import MachineError
from core.contract.events import Finished, Paused, Starting, Stopped
from core.machine.hardware import read_machine
from core.model.loading.together import ALONE, Together
from core.models.catalog import find_model
from core.models.suited import put
from core.runs.folder.held_out_rows import draw_path, read_draw
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import changed_since, note_began
from core.runs.log.events_log import EventTail, EventWriter, PatientWriter
from core.runs.ranks.start import cards_here
from core.runs.record.job_record import effective_config, fold
from core.train.arithmetic import reopened
from core.train.attempt import Attempt, Begun
from core.train.channel.channel import Channel
from core.train.channel.command_queue import CommandQueue, Commands, Leave
from core.train.channel.reporter import EventReporter
from core.train.keep import checkpoint
from core.train.keep.depends import KeptRows, depends_on, refuse_other_data, refuse_others
from core.train.keep.saver import read_position
from core.train.keep.start_adapter import keep_start
from core.train.ranks.group import Ranks, Told
from core.train.ranks.leader import Leader
from core.train.setup import Earlier, prepare


def train(
    folder: JobFolder,
    writer: EventWriter,
    mailbox: Commands | CommandQueue,
    plain: bool = False,
    team: Leader | None = None,
) -> None:
    """Trains until the run is finished, paused or stopped, and writes the last event.

    Args:
        mailbox: the run's mailbox, or the ``CommandQueue`` that already listens to it.
        plain: the fast kernels do not run on this machine, whatever the config says.
        team: the other ranks, where several train together.

    Raises:
        Fault: model, data, checkpoint or disk; checkpoints are untouched.
    """
    reporter = EventReporter(writer)
    commands = mailbox if isinstance(mailbox, CommandQueue) else CommandQueue(mailbox, reporter).start()
    channel = Channel(reporter, commands, writer if isinstance(writer, PatientWriter) else None)
    try:
        begun = _begun(folder, channel)
        config = effective_config(folder.config(), begun.record.corrections)
        if plain:
            config = put(config, "train.kernels", "plain")
        config = reopened(config, folder, begun.record, begun.checkpoint is not None)
        _attempt(config, begun, channel, team)
    finally:
        commands.close()


def _begun(folder: JobFolder, channel: Channel) -> Begun:
    """The log and the newest intact checkpoint, with a ``Starting`` where the log announced another step."""
    events = EventTail(folder.events).read()

    def bad(path: Path, problem: str) -> None:
        channel.reporter.note("checkpoint.bad", f"{path.name} is damaged ({problem}).", "The one before it is used.")

    start = checkpoint.latest_good(folder, bad)
    position = read_position(start) if start else {}
    step = int(position.get("step", 0))
    announced = [event.resumed_step for event in events if isinstance(event, Starting)]
    if not announced or announced[-1] != step:
        channel.reporter.say(Starting(step=step, resumed_step=step))
    return Begun(folder, fold(events), start, position)


def _attempt(config: RunConfig, begun: Begun, channel: Channel, team: Leader | None) -> None:
    close = team.close if team else lambda: None
    folder, record, reporter = begun.folder, begun.record, channel.reporter
    device = device_for(config.train.seed)
    reporter.step = int(begun.position.get("step", 0))
    # A correction is newer than any checkpoint with another number.
    corrected = any(correction.key == "train.tokens_per_pass" for correction in record.corrections)
    tokens_per_pass = 0 if corrected else int(begun.position.get("tokens_per_pass", 0))
    try:
        depends = _depends(config, begun, channel)
        kept = KeptRows(draw_path(folder.path), config, channel, record.anyway)
        together = Together(cards_here(os.environ).ranks, memory=team.shared) if team else ALONE
        opened = partial(_open, team, device, (begun, channel))
        earlier = Earlier(tokens_per_pass, kept, opened, together)
        subject, plan = prepare(config, folder, device, channel, earlier)
    except Leave as leave:
        close()
        _say_left(reporter, leave, kept=begun.checkpoint is not None)
        return
    depends["base"] = find_model(config.model.source, config.model.name, config.model.revision).revision
    refuse_others(begun.checkpoint, {"base": depends["base"]}, record.anyway, reporter)
    attempt = Attempt.of_run(subject, channel, begun, depends)
    reporter.say(plan)
    try:
        attempt.train()
        attempt.loop.finish()
    except Leave as leave:
        close()
        _say_left(reporter, leave, kept=attempt.loop.leave())
        return
    close()
    reporter.say(Finished(seconds=begun.seconds()))


def _open(team: Leader | None, device: torch.device, of: tuple[Begun, Channel], config: RunConfig) -> None:
    """Has the other ranks join, and tells them what this attempt is.

    Raises:
        Leave: pause or stop, while another machine is waited for.
    """
    begun, channel = of
    if team is None:
        return

    def waiting(text: str) -> None:
        channel.reporter.stage("waiting", text)
        channel.commands.wait(0.5)

    team.await_nodes(waiting)
    team.gather(device, Path(config.data.path))
    draw, position = read_draw(draw_path(begun.folder.path)), begun.position
    told = Told(
        config.model_dump(mode="json"),
        draw.held_out,
        draw.tokens_sha256,
        list(position.get("bad", [])),
        int(position.get("overflows", 0)),
    )
    Ranks.present().told(asdict(told))


def _depends(config: RunConfig, begun: Begun, channel: Channel) -> dict[str, Any]:
    """What the run depends on, compared with its checkpoint and run.yaml."""
    folder, start, reporter = begun.folder, begun.checkpoint, channel.reporter
    depends = depends_on(folder, config)
    changes = changed_since(folder, folder.config())
    if changes and start is None:
        hint = "It is obeyed: no checkpoint stands that was trained otherwise."
        reporter.note("run.changed", f"run.yaml was changed since this run was made: {changes}.", hint)
    if began_from := keep_start(folder, config, channel):
        depends["start"] = began_from
    refuse_others(start, depends, begun.record.anyway, reporter, changes)
    note_began(folder, folder.config())
    if start is None and "data" in depends:
        refuse_other_data(folder.path.name, config.data, depends["data"], begun.record.anyway, reporter)
    return depends


def device_for(seed: int) -> torch.device:
    """The first card, or the CPU with a fixed number of threads and deterministic algorithms.

    Raises:
        MachineError: there is a card, and PyTorch cannot use it.
    """
    torch.manual_seed(seed)
    machine = read_machine()
    if torch.cuda.is_available():
        torch.cuda.set_device(0)
        return torch.device("cuda", 0)
    if machine.gpu:
        raise MachineError(
            "gpu.unusable", version=torch.__version__, gpu=machine.gpu.name, driver=machine.gpu.driver or "unknown"
        )
    threads = int(os.environ.get("OMP_NUM_THREADS") or machine.cpu_count // cards_here(os.environ).ranks)
    torch.set_num_threads(max(1, threads))
    torch.use_deterministic_algorithms(True, warn_only=True)
    return torch.device("cpu")


def _say_left(reporter: EventReporter, leave: Leave, kept: bool) -> None:
    reporter.say(Paused() if leave.verb == "pause" else Stopped(kept=kept))
