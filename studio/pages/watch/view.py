"""What the watch page shows of a run beside its charts: JSON values from its record; the unknown is None or "–"."""

import time
from statistics import median
from typing import Any

from core.contract.config import RunConfig
from core.contract.events import MOST_CONFUSED, CardStep, Sample, Stage, Step
from core.contract.methods import HELD_OUT_MEASURES, RANKED
from core.estimate.inputs.cards import published
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import read_marks, read_opened
from core.runs.record.job_record import RunRecord
from core.runs.record.outcome import best, measures, outcome
from core.runs.record.pace import Left, time_left
from core.runs.record.words import damage_words, unknown_fields_words
from studio.figures.points import forecast_bytes
from studio.figures.proposals import next_button, verdict_shown
from studio.figures.run_figures import (
    LIVING,
    UNKNOWN,
    buttons_of,
    bytes_words,
    cards_words,
    clock,
    duration,
    measure_words,
    run_title,
    state_of,
    steps_words,
    verdict_of,
)
from studio.figures.run_names import titled_config
from studio.pages.watch.log_lines import correction_words, log_lines
from studio.pages.watch.words import say
from studio.words.faults import said

_LOOKED = 20
"""How many of the last steps a reading is taken from: a single one may be slow or lack it."""
PREFIX = "way-"
KEPT = 60
"""How many answers are shown of one question, evenly spaced with the last."""
_LONGEST_NAME = 60
_WITHIN = frozenset({"first_step", "evaluating", "saving"})
"""Stages within the training, during which the bar shows the whole run's progress."""


def watched(folder: JobFolder, record: RunRecord, with_log: bool) -> dict[str, Any]:
    """One tick: the ``status`` of record and folder, and the ``log`` where it is asked for."""
    shown = status(record, titled_config(folder), folder.name, time.time())
    shown["kept"] = folder.newest_checkpoint() is not None
    shown["verdict"] = verdict_shown(folder, record)
    words = unknown_fields_words(folder.unknown_fields())
    if words and [words, ""] not in shown["notes"]:
        shown["notes"].append([words, ""])
    shown["way"] = answers_on_the_way(record)
    shown["matrix"] = matrix(record)
    shown["next"] = next_button(folder, record)
    shown["own"] = _own(folder, shown["kept"])
    if shown["own"]["opened"]:
        shown["buttons"] |= {"resume": False, "anyway": False}
    return {"status": shown} | ({"log": log_lines(folder.events)} if with_log else {})


def _own(folder: JobFolder, kept: bool) -> dict[str, Any]:
    """What a person keeps of the run; and of one that was opened from a file what it lacks."""
    marks, opened = read_marks(folder), read_opened(folder) is not None
    lacks = say("run.opened.what" if kept else "run.opened.bare") if opened else ""
    return {"tags": marks.tags, "note": marks.note, "opened": lacks}


def status(record: RunRecord, config: RunConfig | None, name: str, now: float) -> dict[str, Any]:
    """The status by the record alone."""
    scores = config is not None and config.learning.task.scores
    (word, tone), title = state_of(record.state, outcome(record)), run_title(config, name)
    total = record.plan.total_steps if record.plan else 0
    share = min(record.last_step / total, 1.0) if total > 0 else None
    percent = f" {100 * share:.0f}%" if record.state == "training" and share is not None else ""
    left = time_left(record, config) if config and not _waits(record) else None  # the wait is unknown
    notes = dict.fromkeys((note.text, note.hint) for note in record.notes if note.text)  # each attempt repeats them
    damage = damage_words(record.damaged)
    differs = record.state == "failed" and record.failure is not None and record.failure.code == "run.differs"
    buttons = {**buttons_of(record.state, record.pending), "anyway": differs}
    if differs:  # in its data or versions from what it was begun with: to go on anyway takes the place of Resume
        buttons["resume"] = False
    return {
        "state": record.state,
        "word": word,
        "tone": tone,
        "verdict": verdict_of(outcome(record)),
        "name": title,
        "sentence": _sentence(record),
        "tab": f"{word}{percent} · {title} · Luthier",
        "stage": _stage(record, now),
        "share": share,
        "facts": _facts(record, config, left, now),
        "buttons": buttons,
        "plan": list(record.plan.lines) if record.plan else [],
        "corrections": [correction_words(item) for item in record.corrections],
        "notes": ([[damage, say("run.damaged.hint")]] if damage else []) + [list(pair) for pair in notes],
        "failure": _failure(record),
        "kept": bool(record.checkpoints),
        "living": record.state in LIVING,
        "cards": _cards(record),
        "axis": say("chart.axis.tokens" if config and config.learning.of_tokens else "chart.axis.loss"),
        "words": {"way-about": say("way.about.scores" if scores else "way.about"),
                  **dict.fromkeys(("try", "verdict-try"), say("watch.try.scores" if scores else "watch.try"))},
    }  # fmt: skip


def _sentence(record: RunRecord) -> str:
    """One sentence, announced when it changes; nothing in it changes with every step."""
    if record.pending:
        return say(f"pending.{record.pending}")
    if _waits(record):
        return say("state.waiting.sentence", what=record.stage.text) if record.stage else ""
    if record.state == "queued" and record.queued_reason:
        return say("state.queued.why", reason=record.queued_reason)
    if record.state in ("stopped", "failed", "lost") and not record.checkpoints:
        return say(f"state.{record.state}.nothing")
    if record.state == "finished":
        return say("state.finished.sentence", took=duration((record.ended_at or 0) - (record.started_at or 0)))
    kept = f"{record.checkpoints[-1].step:,}" if record.checkpoints else UNKNOWN
    return say(f"state.{record.state}.sentence", step=f"{record.last_step:,}", kept=kept)


def _waits(record: RunRecord) -> bool:
    """Whether the worker waits for something outside itself."""
    stage = record.stage
    waiting = stage is not None and stage.stage == "waiting" and record.state in ("starting", "training")
    return waiting and not record.stepped


def _stage(record: RunRecord, now: float) -> dict[str, Any] | None:
    """The stage within the state; a step after it means that training goes on."""
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
    said = "" if stage.stage == "waiting" else stage.text  # the sentence says for what
    detail = " · ".join(part for part in (said, since and say("stage.since", time=since)) if part)
    return {"text": _stage_words(stage), "detail": detail, "share": share, "waits": stage.stage == "waiting"}


def _stage_words(stage: Stage) -> str:
    """ "Downloading 1.2 of 4.1 GB", "Measuring held-out loss 10 of 15 rows": a unit that both have is said once."""
    word, of = say(f"stage.{stage.stage}"), say("run.of")
    if stage.total <= 0:
        return word
    if stage.unit != "bytes":
        return f"{word} {stage.done:,.0f} {of} {stage.total:,.0f} {stage.unit}".rstrip()
    done, total = bytes_words(stage.done), bytes_words(stage.total)
    number, unit = done.split(" ")
    return f"{word} {number if total.endswith(f' {unit}') else done} {of} {total}"


def _facts(record: RunRecord, config: RunConfig | None, left: Left | None, now: float) -> dict[str, str]:
    last = record.steps[-1] if record.steps else None
    total = record.plan.total_steps if record.plan else 0
    epochs = f" {say('run.of')} {config.train.num_train_epochs:g}" if config and not config.train.max_steps else ""
    return {
        "finish": UNKNOWN if left is None else clock(now + left.middle, now),
        "left": _left(left),
        "took": _took(record, now),
        "step": steps_words(record.last_step, total) if total else UNKNOWN,
        "epoch": f"{last.epoch:.2f}{epochs}" if last else UNKNOWN,
        "speed": speed_words(record) or UNKNOWN,
        "memory": _memory(record),
        "loss": measure_words("loss", last.loss) if last and last.loss is not None else UNKNOWN,
        "held_out": _held_out(record),
        "device": _device(record),
        **_measured(record),
    }


def _left(left: Left | None) -> str:
    if left is None:
        return UNKNOWN
    low, high = duration(left.low), duration(left.high)
    return say("left.estimated", low=low, high=high) if left.estimated else duration(left.middle)


def _took(record: RunRecord, now: float) -> str:
    if record.started_at is None or (record.ended_at is not None and not record.begun):
        return UNKNOWN
    end = record.ended_at
    if end is None and record.state in ("paused", "lost"):
        end = record.steps[-1].at if record.steps else record.started_at
    return duration((now if end is None else end) - record.started_at)


def _memory(record: RunRecord) -> str:
    """The run's memory beside the forecast, with no-break spaces before units."""
    taken, forecast = record.steps[-1].memory_bytes if record.steps else None, forecast_bytes(record)
    if taken is None:
        return UNKNOWN
    if not forecast:
        return bytes_words(taken)
    now, planned = (bytes_words(count).replace(" ", "\u00a0") for count in (taken, forecast))
    return say("memory.forecast", now=now, forecast=planned)


def _held_out(record: RunRecord) -> str:
    """The latest held-out loss, and the best where that is an earlier one."""
    known = measures(record)
    lowest = best(known)
    if lowest is None:
        return UNKNOWN
    latest, least = measure_words("loss", known[-1].loss), measure_words("loss", lowest.loss)
    key = "loss.best" if lowest.step else "loss.best.before"
    here = lowest.own is None and lowest.loss < known[-1].loss  # else the best is told beside what it is found by
    return say(key, latest=latest, best=least) if here else latest


def _device(record: RunRecord) -> str:
    """Where it computes, and how that is doing; of several cards their number (``_cards``)."""
    if record.hello and record.hello.cards:
        return cards_words(len(record.hello.cards))
    last = record.steps[-1] if record.state == "training" and record.steps else None
    name = (record.hello.device_name or record.hello.device) if record.hello else UNKNOWN
    now = card_state(last) if last else ""
    return f"{name}: {now}" if now else name


def _cards(record: RunRecord) -> list[dict[str, str]]:
    """The cards of a run on several, each with how it is doing."""
    names = record.hello.cards if record.hello else ()
    now = record.steps[-1].cards if record.state == "training" and record.steps else ()
    states = [card_state(card, used=True) for card in now] + [""] * len(names)
    return [{"name": name[:_LONGEST_NAME], "state": state} for name, state in zip(names, states, strict=False)]


def _measured(record: RunRecord) -> dict[str, str]:
    """What the run's method measures beside the loss: the latest of a step and of the held-out rows; of what says which
    model is better also the first and the best, where they differ."""
    shown = {}
    for name in HELD_OUT_MEASURES:
        steps, held = (
            [value for event in events if (value := getattr(event, name, None)) is not None]
            for events in (record.steps[-_LOOKED:], record.evaluations)
        )
        parts = [measure_words(name, steps[-1])] if steps else []
        if held:
            last = measure_words(name, held[-1])
            parts.append(say("measure.held_out", held_out=last))
            if name in RANKED:
                ends = {"before": measure_words(name, held[0]), "best": measure_words(name, RANKED[name](held))}
                parts += [say(f"measure.{end}", **{end: words}) for end, words in ends.items() if words != last]
        if parts:
            shown[name] = ", ".join(parts)
    return shown


def matrix(record: RunRecord) -> dict[str, Any] | None:
    """The newest confusion matrix: ``key`` changes with it, ``labels`` name its lines and columns; of more labels than
    are counted one line in its place."""
    labels = record.plan.labels if record.plan else ()
    one_each = record.plan is not None and record.plan.problem == "single_label_classification"
    if one_each and len(labels) > MOST_CONFUSED and record.evaluations:
        about = say("matrix.many", most=MOST_CONFUSED, count=f"{len(labels):,}")
        return {"key": "many", "about": about, "labels": (), "counts": ()}
    known = [one for one in record.evaluations if one.confusion and len(one.confusion) == len(labels)]
    if not known:
        return None
    last = known[-1]
    right, rows = sum(line[place] for place, line in enumerate(last.confusion)), sum(map(sum, last.confusion))
    about = say("matrix.about", step=f"{last.step:,}", right=f"{right:,}", rows=f"{rows:,}")
    return {"key": f"{last.attempt}.{last.step}", "about": about, "labels": labels, "counts": last.confusion}


def _failure(record: RunRecord) -> dict[str, str] | None:
    if record.state == "lost":
        return {"message": say("state.lost.cause"), "hint": say("state.lost.cure")}
    if record.failure is None:
        return None
    cause, cure = said(record.failure)
    return {"message": cause or say("state.failed.unknown"), "hint": cure}


def card_share(record: RunRecord) -> float | None:
    """The run's share of the card's published 16-bit rate; None where unknown.

    Tokens a second, times operations a token, over the maker's operations a second (``core.estimate.inputs.cards``).
    """
    predicted = record.plan.predicted if record.plan else None
    card = published(predicted.card) if predicted else None
    rates = [rate for step in record.steps[-_LOOKED:] if (rate := step.tokens_per_second)]
    if predicted is None or card is None or not rates or predicted.operations <= 0:
        return None
    return median(rates) * predicted.operations / (max(1, predicted.cards) * card.operations)


def speed_words(record: RunRecord) -> str:
    """ "1,234 tok/s, 65% of what this card can do"; without the share where it is unknown, empty without a speed."""
    rate = record.steps[-1].tokens_per_second if record.steps else None
    if not rate:
        return ""
    share = card_share(record)
    now = f"{rate:,.0f} tok/s"
    return now if share is None else say("speed.share", now=now, share=f"{100 * share:.0f}%")


def card_state(card: Step | CardStep, used: bool = False) -> str:
    """ "97% busy, 67 °C, 212 W": what of it is known; empty where nothing is. ``used``: its memory in use first."""
    known = (
        ("card.used", None if card.card_used_bytes is None or not used else bytes_words(card.card_used_bytes)),
        ("card.busy", None if card.gpu_load is None else f"{100 * card.gpu_load:.0f}"),
        ("card.warm", None if card.temperature_celsius is None else f"{card.temperature_celsius:.0f}"),
        ("card.power", None if card.power_watts is None else f"{card.power_watts:.0f}"),
    )
    return ", ".join(say(key, value=value) for key, value in known if value is not None)


def answers_on_the_way(record: RunRecord) -> list[dict[str, Any]]:
    """One entry a question, the newest answer first. A resumed attempt replaces the answers of steps that it redoes."""
    asked: dict[str, list[Sample]] = {}
    for sample in record.samples:
        if sample.command_id.startswith(PREFIX):
            kept = asked.setdefault(sample.command_id, [])
            while kept and kept[-1].step >= sample.step:
                kept.pop()
            kept.append(sample)
    return [_shown(samples) for _, samples in sorted(asked.items())]


def _shown(samples: list[Sample]) -> dict[str, Any]:
    last = samples[-1]
    stride = -(-len(samples) // KEPT)
    kept = [one for at, one in enumerate(samples) if at % stride == 0 or at == len(samples) - 1]
    answers = [
        (say("way.step", step=f"{sample.step:,}") if sample.side == "tuned" else say("way.base"), sample.text)
        for sample in reversed(kept)
    ]
    slowest = max(sample.seconds for sample in samples)
    cost = say("way.cost", time=duration(slowest) if slowest >= 1 else f"{slowest:.1f} s") if slowest else ""
    return {"prompt": last.prompt, "right": last.right, "answers": answers, "cost": cost}
