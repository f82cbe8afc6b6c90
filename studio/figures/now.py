"""What is at work now, for the header of every page; and what ended meanwhile, for notices. Plain values."""

import time
from typing import Any

from core.contract.errors import Fault
from core.machine.hardware import is_wsl
from core.machine.settings import read_settings
from core.runs.control.store import RunStore
from core.runs.process.desktop import can_tell
from core.runs.record.job_record import RunRecord
from core.runs.record.pace import time_left
from core.runs.record.summary import RunSummary
from core.runs.record.words import outcome_line
from studio.figures.run_figures import duration, run_title, state_of
from studio.figures.run_names import Names, names_in, titled_config
from studio.words.faults import said
from studio.words.text import say


def now_of(store: RunStore) -> dict[str, Any]:
    """The run that trains or starts, as the header shows it (its ``id`` "" where there is none), and how many others
    train on other cards or wait.

    Only logs that grow are read, and of these only what is new.
    """
    queue = store.queue()
    at_work = [one for run_id in store.at_work() if run_id not in queue and (one := _at_work(store, run_id))]
    more = say("now.more", count=f"{len(at_work) - 1:,}") if at_work[1:] else ""  # on other cards
    waiting = say("now.waiting", count=f"{len(queue):,}") if queue else ""
    first = at_work[0] if at_work else {"id": "", "title": "", "word": "", "share": None, "percent": "", "left": ""}
    return {**first, "waiting": ", ".join(filter(None, (more, waiting)))}


def _at_work(store: RunStore, run_id: str) -> dict[str, Any] | None:
    try:
        record, config = store.record(run_id), titled_config(store.open(run_id))
    except Fault:
        return None
    if record.state not in ("starting", "training"):
        return None
    left = time_left(record, config) if config else None
    share = _share(record)
    return {
        "id": run_id,
        "title": run_title(config, run_id),
        "word": state_of(record.state, None)[0],
        "share": share,
        "percent": "" if share is None else f"{100 * share:.0f}%",
        "left": say("now.left", time=duration(left.middle)) if left else "",
    }


def _share(record: RunRecord) -> float | None:
    total = record.plan.total_steps if record.plan else 0
    return round(min(record.last_step / total, 1.0), 3) if total and record.state == "training" else None


def ended_since(store: RunStore, since: float) -> dict[str, Any]:
    """The runs that ended after ``since``; ``now`` is the next request's ``since``. 0 lists none. ``desktop``: whether
    this machine's desktop is told by the runs themselves."""
    if not since:
        return {"now": time.time(), "ended": []}
    runs = [run for run in store.written_since(since) if run.ended_at and run.ended_at > since]
    return {
        "now": max((run.ended_at or 0.0 for run in runs), default=since),
        "ended": [_told(run, names_in(store.locations.runs)) for run in runs],
        "desktop": read_settings(store.locations).notify and can_tell(is_wsl()),
        "queue": say("notice.queue"),
    }


def _told(run: RunSummary, names: Names) -> dict[str, str]:
    """How it ended, in words."""
    became = run.outcome
    words = f"{outcome_line(became)}." if became else ""
    if run.failure:
        words = said(run.failure)[0]
    return {"id": run.run_id, "title": names.title(run), "word": state_of(run.state, became)[0], "state": run.state,
            "words": words}  # fmt: skip
