"""The mailbox of a job: one command is one line of ``commands.jsonl``, written under its lock.

A command names the attempt that it is meant for, read from the log under that lock. A supervisor starts a new attempt
under the same lock, so that no command falls between two attempts.
"""

import time
from collections.abc import Collection
from pathlib import Path

from core.contract.commands import Command, Verb, parse_command
from core.contract.errors import RunError
from core.contract.events import Acknowledged, Starting, parse_event
from core.machine.disk import append_line, not_written
from core.machine.locks import locked
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventTail, last_event

WORKER_VERBS: frozenset[Verb] = frozenset({"pause", "save", "stop", "sample"})
ALL_VERBS: frozenset[Verb] = WORKER_VERBS | {"stop_now"}


class Mailbox:
    """Reads the commands for one attempt, each once. ``stop_now`` is for the supervisor alone."""

    def __init__(
        self, folder: JobFolder, attempt: int, acknowledged: set[str], verbs: Collection[Verb] = WORKER_VERBS
    ) -> None:
        self._tail, self._attempt = EventTail(folder.commands), attempt
        self._seen, self._verbs = set(acknowledged), verbs

    def poll(self) -> list[Command]:
        """The new commands: not acknowledged yet, not for an earlier attempt, with one of our verbs."""
        commands = []
        for line in self._tail.read_lines():
            command = parse_command(line)
            if command is None or command.id in self._seen or command.attempt < self._attempt:
                continue
            if command.verb in self._verbs:
                self._seen.add(command.id)
                commands.append(command)
        return commands


def open_mailbox(folder: JobFolder, attempt: int, verbs: Collection[Verb] = WORKER_VERBS) -> Mailbox:
    """The mailbox of an attempt, without the commands that the log acknowledges."""
    return Mailbox(folder, attempt, acknowledged_ids(folder.events), verbs)


def send(
    folder: JobFolder, verb: Verb, *, attempt: int | None = None, prompt: str = "", max_new_tokens: int = 128
) -> Command:
    """Puts a command into the mailbox and returns it; without ``attempt`` it is for the present one.

    Raises:
        RunError: the job's folder is gone.
        MachineError: the disk does not take it; nothing was sent.
    """
    if not folder.path.is_dir():
        raise RunError("run.unknown/deleted", name=folder.name)
    command = Command(verb=verb, at=time.time(), prompt=prompt, max_new_tokens=max_new_tokens)
    try:
        with locked(folder.commands):
            meant = attempt if attempt is not None else present_attempt(folder.events)
            command = command.model_copy(update={"attempt": meant})
            append_line(folder.commands, command.model_dump_json().encode())
            return command
    except OSError as error:
        raise not_written(folder.commands.name, error, "then ask again") from error


def present_attempt(events: Path) -> int:
    """The attempt of the last event; 1 for a job without events."""
    last = last_event(events)
    return last.attempt if last else 1


def acknowledged_ids(events: Path) -> set[str]:
    """The ids of acknowledged commands, of all attempts."""
    lines = (line for line in EventTail(events).read_lines() if b'"acknowledged"' in line)
    return {event.command_id for line in lines if isinstance(event := parse_event(line), Acknowledged)}


def begun_attempt(events: Path) -> int:
    """The last attempt for which a worker was started; 0 where none was."""
    return max((event.attempt for event in EventTail(events).read() if isinstance(event, Starting)), default=0)
