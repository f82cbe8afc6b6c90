"""A run's figures in words: sizes, times, steps, title, buttons and verdict, and a full disk. The unknown is "–"."""

import math
import shutil
import time
from pathlib import Path

from core.contract.config import RunConfig
from core.contract.methods import SHARES
from core.runs.folder.job_folder import JobFolder, checkpoint_step
from core.runs.record.outcome import Outcome, Verdict, by_merit, measured_at, standing
from core.runs.record.words import VERDICTS, outcome_line, state_word
from studio.words.runs import STATES
from studio.words.text import say

UNKNOWN = "–"
LIVING = frozenset({"queued", "starting", "training"})
"""States of a run that has not ended."""
_RESUMABLE = frozenset({"paused", "stopped", "failed", "lost"})
LEAST_BYTES = 1 << 20
"""With less room neither a log nor a draft can be written."""
_TONES: dict[Verdict, str] = {
    "better": "good", "no_better": "wait", "worse": "bad", "by_heart": "wait", "diverged": "bad", "unmeasured": "quiet",
}  # fmt: skip
_MOST_SECONDS = 1e11
"""What a calendar can still show."""


def buttons_of(state: str, pending: str = "") -> dict[str, bool]:
    """Which commands are offered now; while one is pending only the immediate stop."""
    living = state in LIVING
    free = living and not pending
    return {
        "pause": free and state != "queued",
        "save": free and state == "training",
        "resume": state in _RESUMABLE,
        "stop": free,
        "stop_now": living and bool(pending),
    }


def run_title(config: RunConfig | None, run_id: str) -> str:
    """A name for people: the one given, else "good.jsonl on Qwen3-4B, 20 Nov 23:25", else the folder's."""
    if config is None:
        return run_id
    return config.name or own_title(Path(config.data.path).name, config.model.name, run_id)


def own_title(data_name: str, model_name: str, run_id: str) -> str:
    """The default name: data, model, and when the run was made, by its id."""
    when = day_and_time(made_at(run_id))
    return say("run.title", data=data_name or UNKNOWN, model=model_words(model_name), when=when)


def model_words(model_name: str) -> str:
    """A model without its owner or folder."""
    name = model_name.rstrip("/").rsplit("/", 1)[-1]
    return say("run.starter") if name == "starter" else name or UNKNOWN


def made_at(run_id: str) -> float | None:
    """When a run was made (local time, to the minute), in seconds since the epoch; None for an invalid id."""
    try:
        return time.mktime(time.strptime(run_id[:15], "%Y-%m-%d_%H%M"))
    except (ValueError, OverflowError):
        return None


def measure_words(name: str, value: float) -> str:
    """One reading: a share in per cent, a loss or a margin to three places."""
    if name in SHARES:
        return f"{100 * value:.0f}%"
    return f"{value:.3f}" if math.isfinite(value) else UNKNOWN


def steps_words(done: int, total: int) -> str:
    """How far a run is: "1,200 of 5,000", or the first alone."""
    return f"{done:,} {say('run.of')} {total:,}" if total else f"{done:,}"


def cards_words(count: int) -> str:
    """ "2 cards"."""
    return say("run.cards", count=count)


def passes_words(passes: float) -> str:
    """Passes over the data, to a tenth."""
    return f"{passes:,.1f}" if passes >= 0.05 else "<0.1"


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
    return f"{hours} h {minutes:02d} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def clock(at: float, now: float) -> str:
    """A time of day; with the weekday within six days, with the date otherwise, unless it is today."""
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


def state_of(state: str, became: Outcome | None) -> tuple[str, str]:
    """A state's word and colour; a run that is over has those of its verdict, so that no ruined model looks done."""
    word, tone = STATES[state]
    if became and (state == "finished" or became.ruined):
        return state_word(state, became), _TONES[became.verdict]  # type: ignore[arg-type]
    return word, tone


def verdict_of(became: Outcome | None, used: str = "", proposed: str = "") -> dict[str, str] | None:
    """The verdict in one sentence, what to do, which checkpoint is used, and the colour."""
    if became is None:
        return None
    do = proposed or VERDICTS[became.verdict].advice
    return {"text": f"{outcome_line(became)}.", "do": do, "used": used, "tone": _TONES[became.verdict]}


def used_words(folder: JobFolder) -> str:
    """Which checkpoint Try and Take home use by default, where that is not the last one; else empty."""
    best, last = next(iter(by_merit(folder)), None), next(reversed(standing(folder)), None)
    if best is None or best == last:
        return ""
    measured = measured_at(best)
    name = measured.told[0].replace("_", " ") if measured else "loss"
    return say("verdict.used", step=f"{checkpoint_step(best.name) or 0:,}", name=name)


def full_disk(home: Path) -> str:
    """The sentence about a full disk; empty where there is room, or nobody can tell."""
    try:
        return say("disk.full", home=home) if shutil.disk_usage(home).free < LEAST_BYTES else ""
    except OSError:
        return ""
