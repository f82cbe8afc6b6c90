"""What pages show of a run, as plain values: words, shares and switches, made from its record and nothing else.

Pure functions: a record, a config and the present time go in, JSON-ready values come out. What is not known is None or
"–", never 0. The time that is left is ``core.runs.record.pace``'s: by tokens, with measuring and saving, and a range
that is called estimated until ten steps are done.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.contract.config import RunConfig
from core.contract.events import Correction, Stage, Step
from core.contract.knobs import knobs
from core.contract.methods import MEASURES
from core.runs.record.job_record import RunRecord
from core.runs.record.outcome import Measure, best, measures, outcome
from core.runs.record.pace import Left, time_left
from core.runs.record.words import damage_words
from studio.figures.card_readings import card_state, forecast_bytes, speed_words
from studio.figures.verdicts import tone_of, verdict_of
from studio.words.text import STATES, say

__all__ = [
    "UNKNOWN",
    "buttons_of",
    "bytes_words",
    "clock",
    "correction_words",
    "day_and_time",
    "duration",
    "made_at",
    "measure_words",
    "own_title",
    "passes_words",
    "run_title",
    "status",
    "steps_words",
]

UNKNOWN = "–"
_LOOKED = 20
"""So many of the last steps are looked at for a reading: a bad one has none."""
_KNOBS = knobs(RunConfig)
_LIVING = frozenset({"queued", "starting", "training"})
_MOST_SECONDS = 1e11
"""What a calendar can still show."""
_WITHIN = frozenset({"first_step", "evaluating", "saving"})
"""Stages within the training: the bar stays with the whole run's progress, so that it does not jump to and fro."""
_RESUMABLE = frozenset({"paused", "stopped", "failed", "lost"})


def status(record: RunRecord, config: RunConfig | None, name: str, now: float) -> dict[str, Any]:
    """Everything that the watch page shows beside its charts."""
    word, title, became = STATES[record.state][0], run_title(config, name), outcome(record)
    left = time_left(record, config) if config and not _waits(record) else None  # nobody knows how long it will wait
    return {
        "state": record.state,
        "word": word,
        "tone": tone_of(record.state, became),
        "verdict": verdict_of(became),
        "name": title,
        "sentence": _sentence(record),
        "tab": _tab(record, word, title),
        "stage": _stage(record, now),
        "share": _share(record),
        "facts": _facts(record, config, left, now),
        "buttons": buttons_of(record.state, record.pending) | _anyway(record),
        "plan": list(record.plan.lines) if record.plan else [],
        "corrections": [correction_words(item) for item in record.corrections],
        "notes": _notes(record),
        "failure": _failure(record),
        "kept": bool(record.checkpoints),
        "living": record.state in _LIVING,
    }


def _notes(record: RunRecord) -> list[list[str]]:
    damage = [[words, say("run.damaged.hint")]] if (words := damage_words(record.damaged)) else []
    told = dict.fromkeys((note.text, note.hint) for note in record.notes if note.text)  # each attempt says them anew
    return damage + [list(pair) for pair in told]


def buttons_of(state: str, pending: str = "") -> dict[str, bool]:
    """Which commands make sense now. While one is being obeyed only the harder stop is left."""
    living = state in _LIVING
    free = living and not pending
    return {
        "pause": free and state != "queued",
        "save": free and state == "training",
        "resume": state in _RESUMABLE,
        "stop": free,
        "stop_now": living and bool(pending),
    }


def _anyway(record: RunRecord) -> dict[str, bool]:
    """A run that was refused for what differs would be refused again: it goes on only when a person says so."""
    differs = record.state == "failed" and record.failure is not None and record.failure.code == "run.differs"
    return {"anyway": differs} | ({"resume": False} if differs else {})


def run_title(config: RunConfig | None, run_id: str) -> str:
    """A name for people: the one given, else "good.jsonl on Qwen3-4B, 20 Nov 23:25", else the folder's."""
    if config is None:
        return run_id
    return config.name or own_title(Path(config.data.path).name, config.model.name, run_id)


def own_title(data_name: str, model_name: str, run_id: str) -> str:
    """What a run is called that nobody named: its data, its model, and when it was made, by its id."""
    model = model_name.rstrip("/").rsplit("/", 1)[-1]
    model = say("run.starter") if model == "starter" else model or UNKNOWN
    return say("run.title", data=data_name or UNKNOWN, model=model, when=day_and_time(made_at(run_id)))


def made_at(run_id: str) -> float | None:
    """When a run was made (local time, to the minute), in seconds since the epoch; None for what is no run's id."""
    try:
        return time.mktime(time.strptime(run_id[:15], "%Y-%m-%d_%H%M"))
    except (ValueError, OverflowError):
        return None


def _sentence(record: RunRecord) -> str:
    """One sentence that is announced when it changes; it holds nothing that changes with every step."""
    if record.pending:
        return say(f"pending.{record.pending}")
    step = f"{record.last_step:,}"
    if _waits(record):
        return say("state.waiting.sentence", what=record.stage.text) if record.stage else ""
    if record.state == "queued" and record.queued_reason:
        return say("state.queued.why", reason=record.queued_reason)
    if record.state in ("stopped", "failed", "lost") and not record.checkpoints:
        return say(f"state.{record.state}.nothing")
    if record.state == "finished":
        return say("state.finished.sentence", took=duration((record.ended_at or 0) - (record.started_at or 0)))
    kept = f"{record.checkpoints[-1].step:,}" if record.checkpoints else UNKNOWN
    return say(f"state.{record.state}.sentence", step=step, kept=kept)


def _tab(record: RunRecord, word: str, title: str) -> str:
    share = _share(record)
    percent = f" {share:.0%}".replace("%", " %") if record.state == "training" and share is not None else ""
    return f"{word}{percent} · {title} · Luthier"


def _stage(record: RunRecord, now: float) -> dict[str, Any] | None:
    """What is going on within the state; a step that came after the stage means that training goes on."""
    stage = record.stage
    if stage is None or record.state not in ("starting", "training"):
        return None
    stepped = record.stepped and stage.stage not in ("merging", "verifying")
    if stepped or stage.stage == "training":
        step, total = f"{record.last_step:,}", f"{record.plan.total_steps:,}" if record.plan else UNKNOWN
        return {"text": say("stage.step", step=step, total=total), "detail": "", "share": None}
    own = stage.total > 0 and stage.stage not in _WITHIN
    share = min(stage.done / stage.total, 1.0) if own else None
    since = duration(now - stage.at) if share is None and now - stage.at >= 10 else ""
    said = "" if stage.stage == "waiting" else stage.text  # the sentence above says for what
    detail = " · ".join(part for part in (said, since and say("stage.since", time=since)) if part)
    return {"text": _stage_words(stage), "detail": detail, "share": share, "waits": stage.stage == "waiting"}


def _waits(record: RunRecord) -> bool:
    """Whether the worker waits for something outside itself and has not gone on since."""
    stage = record.stage
    if stage is None or stage.stage != "waiting" or record.state not in ("starting", "training"):
        return False
    return not record.stepped


def _stage_words(stage: Stage) -> str:
    word = say(f"stage.{stage.stage}")
    if stage.total <= 0:
        return word
    if stage.unit == "bytes":
        return f"{word} {_of_bytes(stage.done, stage.total)}"
    return f"{word} {stage.done:,.0f} {say('run.of')} {stage.total:,.0f} {stage.unit}".rstrip()


def _of_bytes(done: float, total: float) -> str:
    """ "1.2 of 4.1 GB": the unit once where both have it."""
    first, second = bytes_words(done), bytes_words(total)
    number, unit = first.split(" ")
    return f"{number if second.endswith(' ' + unit) else first} {say('run.of')} {second}"


def _share(record: RunRecord) -> float | None:
    if record.plan is None or record.plan.total_steps <= 0:
        return None
    return min(record.last_step / record.plan.total_steps, 1.0)


def _facts(record: RunRecord, config: RunConfig | None, left: Left | None, now: float) -> dict[str, str]:
    last = record.steps[-1] if record.steps else None
    total = record.plan.total_steps if record.plan else 0
    return {
        "finish": clock(now + left.middle, now) if left is not None else UNKNOWN,
        "left": _left(left),
        "took": _took(record, now),
        "step": steps_words(record.last_step, total) if total else UNKNOWN,
        "epoch": _epoch(last, config),
        "speed": speed_words(record) or UNKNOWN,
        "memory": _memory(last, record),
        "loss": _loss(last.loss) if last and last.loss is not None else UNKNOWN,
        "held_out": _held_out(measures(record)),
        "device": _device(record, last),
        **measured_words(record),
    }


def measured_words(record: RunRecord) -> dict[str, str]:
    """What the run's method measures beside the loss: the latest of a step and of the held-out rows; nothing else."""
    found = {}
    for name in MEASURES:
        step, held_out = (_latest(events, name) for events in (record.steps[-_LOOKED:], record.evaluations))
        if step is not None:
            now = measure_words(name, step)
            held = None if held_out is None else measure_words(name, held_out)
            found[name] = now if held is None else say("measure.held_out", now=now, held_out=held)
    return found


def _latest(events: Sequence[Any], name: str) -> float | None:
    return next((value for event in reversed(events) if (value := getattr(event, name)) is not None), None)


def measure_words(name: str, value: float) -> str:
    """One reading beside the loss."""
    return f"{100 * value:.0f}\u00a0%" if name == "accuracy" else _loss(value)


def _left(left: Left | None) -> str:
    if left is None:
        return UNKNOWN
    low, high = duration(left.low), duration(left.high)
    return say("left.estimated", low=low, high=high) if left.estimated else duration(left.middle)


def _held_out(known: Sequence[Measure]) -> str:
    """The latest, and the best where that is an earlier one."""
    lowest = best(known)
    if lowest is None:
        return UNKNOWN
    latest = known[-1].loss
    key = "loss.best" if lowest.step else "loss.best.before"
    return say(key, latest=_loss(latest), best=_loss(lowest.loss)) if lowest.loss < latest else _loss(latest)


def _took(record: RunRecord, now: float) -> str:
    if record.started_at is None or (record.ended_at is not None and not record.begun):
        return UNKNOWN
    end = record.ended_at
    if end is None and record.state in ("paused", "lost"):
        end = record.steps[-1].at if record.steps else record.started_at
    return duration((now if end is None else end) - record.started_at)


def _epoch(last: Step | None, config: RunConfig | None) -> str:
    if last is None:
        return UNKNOWN
    total = f" {say('run.of')} {config.train.num_train_epochs:g}" if config and not config.train.max_steps else ""
    return f"{last.epoch:.2f}{total}"


def _memory(last: Step | None, record: RunRecord) -> str:
    if last is None or last.memory_bytes is None:
        return UNKNOWN
    forecast = forecast_bytes(record)
    now = bytes_words(last.memory_bytes)
    if not forecast:
        return now
    return say("memory.forecast", now=_unbroken(now), forecast=_unbroken(bytes_words(forecast)))


def _unbroken(figure: str) -> str:
    """A figure that keeps its unit on its own line."""
    return figure.replace(" ", "\u00a0")


def _device(record: RunRecord, last: Step | None) -> str:
    name = (record.hello.device_name or record.hello.device) if record.hello else UNKNOWN
    now = card_state(last) if record.state == "training" else ""
    return f"{name}: {now}" if now else name


def _failure(record: RunRecord) -> dict[str, str] | None:
    if record.state == "lost":
        return {"message": say("state.lost.cause"), "hint": say("state.lost.cure")}
    if record.failure is None:
        return None
    return {"message": record.failure.message or say("state.failed.unknown"), "hint": record.failure.hint}


def correction_words(item: Correction) -> str:
    """A later change of the settings, by the name that the setting has on the page."""
    key = _KNOBS[item.key].label if item.key in _KNOBS else item.key
    return say("correction", step=f"{item.step:,}", key=key, old=item.old, new=item.new, reason=item.reason)


def _loss(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else UNKNOWN


def steps_words(done: int, total: int) -> str:
    """How far a run is: "1,200 of 5,000"; the first alone where it is not known of how many."""
    return f"{done:,} {say('run.of')} {total:,}" if total else f"{done:,}"


def bytes_words(count: float) -> str:
    """Bytes as a person reads them, decimal units: "41 KB", "3.2 GB"."""
    size, unit = float(count), "B"
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if abs(size) < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.1f} {unit}" if unit in ("GB", "TB") or (unit == "MB" and size < 10) else f"{size:.0f} {unit}"


def duration(seconds: float) -> str:
    """Seconds as a person says them: "45 s", "12 min", "1 h 05 min", "2 d 3 h"."""
    whole = max(0, round(min(seconds, _MOST_SECONDS)))
    if whole < 60:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24} h"


def passes_words(passes: float) -> str:
    """Passes over the data, to a tenth."""
    return f"{passes:,.1f}" if passes >= 0.05 else "<0.1"


def clock(at: float, now: float) -> str:
    """A time as on a clock; with the weekday when it is not today, with the date when it is not this week."""
    then, today = time.localtime(min(at, _MOST_SECONDS)), time.localtime(now)
    if then[:3] == today[:3]:
        return time.strftime("%H:%M", then)
    return time.strftime("%a %H:%M" if 0 < at - now < 6 * 86400 else "%-d %b %H:%M", then)


def day_and_time(at: float | None) -> str:
    """ "20 Nov 23:25", with the year when it is another one."""
    if at is None:
        return UNKNOWN
    then = time.localtime(min(max(at, 0.0), _MOST_SECONDS))
    return time.strftime("%-d %b %H:%M" if then.tm_year == time.localtime().tm_year else "%-d %b %Y %H:%M", then)
