"""Tells on the desktop how a run ended, where somebody switched that on: every page may be closed by then."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from core.contract.config import RunConfig
from core.contract.errors import Fault
from core.contract.events import Queued
from core.machine.locations import Locations
from core.machine.settings import read_settings
from core.runs.control.queue import JobQueue
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import given_name
from core.runs.log.events_log import EventTail
from core.runs.process.desktop import tell
from core.runs.record.job_record import fold
from core.runs.record.outcome import outcome
from core.runs.record.words import outcome_line, state_word

_QUEUE_ENDS = "The queue is done."


def tell_end(folder: JobFolder, locations: Locations, wsl: bool, show: Callable[[str, str, bool], None] = tell) -> None:
    """Of a finished or failed run; a person who stopped one knows. The last of a queue says so."""
    if not read_settings(locations).notify:
        return
    events = EventTail(folder.events).read()
    record = fold(events)
    if record.state not in ("finished", "failed"):
        return
    became = outcome(record)
    words = [f"{outcome_line(became)}."] if became else []
    if record.failure:
        words.append(record.failure.message)
    waited = any(isinstance(event, Queued) and event.reason for event in events)
    if waited and not JobQueue(locations).order():
        words.append(_QUEUE_ENDS)
    show(f"{state_word(record.state, became)}: {_name(folder)}", " ".join(words), wsl)


def _name(folder: JobFolder) -> str:
    with suppress(Fault):
        config: RunConfig = folder.config()
        return given_name(folder) or config.name or f"{Path(config.data.path).name}, {config.model.name}"
    return folder.name
