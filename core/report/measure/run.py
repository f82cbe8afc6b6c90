"""One report's job, from its folder to its last event.

::

    model and rows loaded ─► moved ─► held_out ─► forgetting ─► answers ─► memorising ─► advice
                               └──────── after each: report.json in the run's folder, whole ────────┘

A part that stands already for the same checkpoint is not measured again. A fault of one part is said in it, and the
others go on.
"""

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.contract.errors import DataError, Fault, first_line
from core.contract.events import Finished, Stopped
from core.machine.disk import write_whole
from core.machine.hardware import read_machine
from core.machine.locations import Locations
from core.model.faults import is_card_fault
from core.models.catalog import find_model
from core.report.advice import Course, advice
from core.report.checks import judged
from core.report.choices import ReportChoices, read_choices
from core.report.measure.answers import Reply, answers, reply_again
from core.report.measure.budget import Budget, Slot
from core.report.measure.forgetting import forgetting, general_texts, own_texts
from core.report.measure.held_out import held_out
from core.report.measure.memorising import memorising
from core.report.measure.moved import moved
from core.report.measure.subject import Subject, open_subject
from core.report.schema import Part, PartName, Report, Why, read_report
from core.runs.folder.held_out_rows import kept_draw
from core.runs.folder.job_folder import JobFolder, ReportRequest, checkpoint_step
from core.runs.folder.notes import named_config
from core.runs.log.events_log import EventTail, EventWriter
from core.runs.record.outcome import best, measures
from core.train.channel.command_queue import CommandQueue, Leave
from core.train.channel.reporter import EventReporter

_KEPT_WHYS = ("", "none", "task")
"""Why a part stands as it is, and is not measured again."""
_LEFT_OUT = "The others gave no finite number, or are longer than the model reads."
_NO_DATA = "The run's rows cannot be read: {reason}"


@dataclass
class _Making:
    """A report as it grows; what the parts hand on to each other."""

    subject: Subject
    budget: Budget
    choices: ReportChoices
    said: Report
    replies: list[Reply] = field(default_factory=list)
    lacking: str = ""
    """What the present part lacks though the rest of it was measured whole."""


def report(folder: JobFolder, writer: EventWriter, orders: CommandQueue, safe_point: Callable[[], object]) -> None:
    """Does the job in this folder and writes its last event.

    Args:
        safe_point: called between pieces of work; raises where the job is to leave the card, or to stop.

    Raises:
        Fault: the checkpoint, the base model or the machine cannot be used.
    """
    began, request, run = time.monotonic(), folder.report_request(), folder.run_folder
    tell = EventReporter(writer)
    try:
        subject = open_subject(run, request.checkpoint, (tell, orders), safe_point)
    except Leave:
        tell.say(Stopped(kept=run.report_json.exists()))
        return
    making = _begun(subject, request, time.monotonic() - began)
    try:
        for name, part in _PARTS.items():
            if (stands := making.said.part(name)) is None or stands.why not in _KEPT_WHYS:
                _measured(making, name, part)
                _keep(making)
        _conclude(making)
        tell.say(Finished(seconds=round(time.monotonic() - began, 1)))
    except Leave:
        for name in _PARTS:
            if making.said.part(name) is None:
                _put(making, Part(name=name, unit=_UNITS[name], why="stopped"))
        _conclude(making)
        tell.say(Stopped(kept=True))


def _conclude(making: _Making) -> None:
    """Adds the advice that follows from what is there."""
    making.said = making.said.model_copy(update={"advice": advice(making.said, _course(making.subject))})
    _keep(making)


def _begun(subject: Subject, request: ReportRequest, loading: float) -> _Making:
    """The report without its parts, or with those that stand for this checkpoint."""
    run, config = subject.run, subject.config
    kept = None if request.again else read_report(run.report_json)
    before = kept if kept and kept.checkpoint == subject.checkpoint.name else None
    spent = before.seconds if before and not request.minutes else 0.0
    run_seconds = _seconds(subject)
    budget = Budget.of(run_seconds, request.minutes, loading, spent, time.monotonic)
    named, draw, machine = named_config(run), kept_draw(run.path), read_machine()
    spec = find_model(config.model.source, config.model.name, config.model.revision)
    said = Report(
        run_id=run.name,
        title=named.name if named and named.name else run.name,
        model=spec.title,
        method=config.trained_method,
        learns=config.train.learns,
        problem=subject.trained.outputs.problem if subject.trained.outputs else None,
        checkpoint=subject.checkpoint.name,
        step=checkpoint_step(subject.checkpoint.name) or 0,
        data=Path(config.data.path).name,
        resume_from=Path(config.resume_from).name,
        held_out_sha256=draw.held_out_sha256 if draw else "",
        device=machine.gpu.name if machine.gpu and subject.device.type == "cuda" else f"{machine.cpu_count} CPU cores",
        trained_on=hello.cards if (hello := subject.record.hello) else (),
        run_seconds=run_seconds,
        budget_seconds=budget.seconds,
        budget_text=budget.text,
        **({name: getattr(before, name) for name in (*_PARTS, "parts")} if before else {}),
    )
    return _Making(subject, budget, read_choices(Locations.find()), said)


def _seconds(subject: Subject) -> float:
    """Of the run, of all its attempts."""
    events = EventTail(subject.run.events).read()
    finished = [event.seconds for event in events if isinstance(event, Finished)]
    record = subject.record
    lasted = (record.ended_at or time.time()) - record.started_at if record.started_at else 0.0
    return finished[-1] if finished else max(0.0, lasted)


def _course(subject: Subject) -> Course:
    steps = subject.record.steps
    known = measures(subject.record)
    first = best(one for one in known if one.step)
    epochs = steps[-1].epoch if steps else subject.config.train.num_train_epochs
    return Course(tuple((one.step, one.loss) for one in known), epochs, first.step if first else None)


def _keep(making: _Making) -> None:
    """Writes the report as it is now."""
    now = {"seconds": round(making.budget.gone, 1), "made_at": time.time()}
    making.said = making.said.model_copy(update=now)
    write_whole(making.subject.run.report_json, making.said.model_dump_json())


def _measured(making: _Making, name: PartName, measure: "Measure") -> None:
    """Measures one part and puts it into the report; what cannot be measured is said there."""
    slot, stands = making.budget.slot(name), making.said.part(name)
    why: Why = ""
    found, done, total, text = None, 0, 0, ""
    making.subject.too_large.clear()
    making.lacking = ""
    try:
        found, done, total = measure(making, slot)
        if not total:
            why = "task" if making.subject.scores and not making.subject.no_data else "none"
        elif done != total:
            why = "budget" if slot.cut else "memory" if making.subject.too_large else "failed"
        if why == "none" and making.subject.no_data:
            text = _NO_DATA.format(reason=making.subject.no_data)
        text = _LEFT_OUT if why == "failed" else text
        if making.lacking:
            why, text = why or "failed", making.lacking
    except Exception as error:
        if is_card_fault(error):
            raise
        traceback.print_exc()
        why, text = "failed", error.message if isinstance(error, Fault) else first_line(error)
    if stands and stands.done > done:
        return  # an earlier attempt had more time
    seconds = round(slot.seconds, 1)
    _put(making, Part(name=name, done=done, total=total, unit=_UNITS[name], seconds=seconds, why=why, text=text), found)


def _put(making: _Making, part: Part, found: Any = None) -> None:
    parts = (*(one for one in making.said.parts if one.name != part.name), part)
    ordered = tuple(sorted(parts, key=lambda one: list(_PARTS).index(one.name)))
    changed = {"parts": ordered} | ({part.name: found} if found is not None else {})
    making.said = making.said.model_copy(update=changed)


# ── the parts, in their order ────────────────────────────────────────────────────────────────────────────────────────

Measure = Callable[[_Making, Slot], tuple[Any, int, int]]


def _forgetting(making: _Making, slot: Slot) -> tuple[Any, int, int]:
    """The set that comes with the project, then a person's own file."""
    subject, found, done, total = making.subject, [], 0, 0
    sets = [("general", general_texts)]
    if making.choices.general:
        own = Path(making.choices.general)
        sets.append((own.name, lambda: own_texts(own, subject.config.train.seed, subject.safe_point)))
    for left, (name, texts) in zip(range(len(sets), 0, -1), sets, strict=True):
        try:
            part, count, of = forgetting(subject, name, texts(), slot.share(1 / left))
        except DataError as error:
            making.lacking = f"{name} could not be read: {error.message}"
            continue
        if not of and not subject.scores:
            making.lacking = f"{name} has no text that can be measured."
        found += [part] if part else []
        done, total = done + count, total + of
    return tuple(found) or None, done, total


def _answers(making: _Making, slot: Slot) -> tuple[Any, int, int]:
    subject = making.subject
    part, making.replies, total = answers(subject, slot)
    checks = making.choices.checks_for(making.said.data)
    if part and checks:
        part = judged(part, checks, subject.safe_point)
    return part, len(making.replies), total


def _memorising(making: _Making, slot: Slot) -> tuple[Any, int, int]:
    said, given = making.said, making.replies
    if said.answers and not given:  # of an earlier attempt
        given = [again for row in said.answers.rows if (again := reply_again(making.subject, row))]
    return memorising(making.subject, slot, said.held_out.after if said.held_out else None, given)


_PARTS: dict[PartName, Measure] = {
    "moved": lambda making, slot: moved(making.subject, slot),
    "held_out": lambda making, slot: held_out(making.subject, slot),
    "forgetting": _forgetting,
    "answers": _answers,
    "memorising": _memorising,
}
_UNITS: dict[PartName, str] = {
    "moved": "matrices",
    "held_out": "rows",
    "forgetting": "texts",
    "answers": "prompts",
    "memorising": "rows",
}
