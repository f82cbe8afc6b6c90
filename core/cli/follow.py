"""A job's events as lines for a terminal."""

import sys
import time
from collections.abc import Callable

from core.contract import events
from core.contract.events import Event, Stage, Step
from core.contract.methods import MEASURES
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import LAST_KINDS, EventTail
from core.runs.record.job_record import RunRecord, State
from core.runs.record.outcome import outcome
from core.runs.record.words import STATE_WORDS, VERDICTS, outcome_line


def follow(
    folder: JobFolder,
    tell: Callable[[str], None],
    gone: Callable[[], bool],
    *,
    offset: int = 0,
    words: Callable[[Event], str] | None = None,
) -> Event | None:
    """Tells a job's events as they come, and returns the last one (None where the job was lost).

    Args:
        tell: takes a line.
        gone: whether no process serves the job any more; called while nothing comes.
        offset: byte of the log at which to begin.
        words: makes every event a line; by default ``say``, without most steps.
    """
    tail, quiet_since = EventTail(folder.events, offset), time.monotonic()
    steps = _Sparse()
    while True:
        fresh = tail.read()
        for event in fresh:
            if line := words(event) if words else say(event) if steps.wanted(event) else "":
                tell(line)
            if event.kind in LAST_KINDS:
                return event
        if fresh:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > 3 and gone():
            return None
        time.sleep(0.1)


class _Sparse:
    """Which events get a line: of the steps the first three, then about one a second; a stage once."""

    def __init__(self) -> None:
        self.last, self.stage = 0.0, ""

    def wanted(self, event: Event) -> bool:
        if isinstance(event, Stage):
            fresh = event.stage != self.stage
            self.stage = event.stage
            return fresh
        if not isinstance(event, Step) or event.step <= 3:
            return True
        if time.monotonic() - self.last < 1:
            return False
        self.last = time.monotonic()
        return True


def say(event: Event) -> str:
    """One event as a line; empty where it is not for people."""
    match event:
        case events.Queued(reason=reason):
            return of_state("queued", reason)
        case Stage(stage=stage, text=text):
            return f"{stage.replace('_', ' '):9} {text}".rstrip()
        case events.Plan(lines=lines):
            return "\n".join(f"plan      {line}" for line in lines)
        case Step():
            speed = "" if event.tokens_per_second is None else f"{event.tokens_per_second:,.0f} tokens/s"
            return f"step {event.step:<5}loss {_number(event.loss)}   {speed}".rstrip()
        case events.Evaluation():
            measured = {name: getattr(event, name) for name in MEASURES}
            more = "".join(f", {name} {value:.4f}" for name, value in measured.items() if value is not None)
            return f"held-out  loss {_number(event.loss)}{more} after step {event.step} ({event.rows} rows)"
        case events.Checkpoint(name=name, best=best):
            return f"saved     {name}{' (best so far)' if best else ''}"
        case events.Correction():
            return f"changed   {event.key}: {event.old} → {event.new} ({event.reason})"
        case events.Note(text=text, hint=hint):
            return f"note      {text} {hint}".rstrip()
        case events.Acknowledged(command=command):
            return f"heard     {command}"
        case events.Exported(name=name, checks=checks, warnings=warnings):
            told = (*(f"checked   {check}" for check in checks), *(f"WARNING   {warning}" for warning in warnings))
            return "\n".join([f"exported  {name}", *told])
        case events.Failed(message=message, hint=hint):
            return of_state("failed", f"{message} {hint}")
        case events.Paused(kind=state) | events.Stopped(kind=state) | events.Finished(kind=state):
            return of_state(state, f"at step {event.step}")
    return ""


def follow_run(store: RunStore, run_id: str, from_now: bool = False, as_json: bool = False) -> int:
    """Tells a run's events until it ends, and returns the command's exit code; Ctrl+C leaves the run."""
    folder, command = store.open(run_id), store.locations.command
    offset = folder.events.stat().st_size if from_now else 0
    words = (lambda event: event.model_dump_json()) if as_json else say
    out = sys.stderr if as_json else sys.stdout
    try:
        last = follow(folder, print, lambda: store.record(run_id).state == "lost", offset=offset, words=words)
    except KeyboardInterrupt:
        print(f"\nThe run goes on. See it in the studio, or stop it:   {command('stop', run_id)}", file=out)
        return 130
    if last is None:
        again = f"Go on:   {command('resume', run_id)}"
        print(of_state("lost", f"The run's processes are gone. {again}   (log: {folder.log})"), file=out)
        return 1
    print(f"folder    {folder.path}", file=out)
    for line in of_result(store.record(run_id)):
        print(line, file=out)
    return 0 if last.kind != "failed" else 1


def of_state(state: State, text: str) -> str:
    """A line about a state."""
    return f"{STATE_WORDS[state].lower():9} {text}".rstrip()


def of_result(record: RunRecord) -> list[str]:
    """A run's outcome and what to do about it, a line each; none where it has no outcome."""
    became = outcome(record)
    if became is None:
        return []
    advice = VERDICTS[became.verdict].advice
    return [*([f"do        {advice}"] if advice else []), f"result    {outcome_line(became)}"]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
