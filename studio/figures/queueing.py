"""Which run holds the card, which wait for it, and their expected times: plain values for the history.

::

    holder ends at   now + what is left of it by its own pace
    first starts     when the holder ends; ends after the time that was estimated at its Start
    second starts    when the first ends …

A time that follows from an unknown one is unknown. Runs that wait for other cards of this machine are in the same list,
each behind those that hold or want one of its own cards.
"""

import time
from typing import Any

from core.contract.errors import Fault
from core.machine.cards import CardSet, held_by
from core.machine.hardware import Machine
from core.machine.locations import Locations
from core.runs.control.gpu_lease import GIVES_WAY
from core.runs.control.queue import JobQueue
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import RUN_ID, JobFolder
from core.runs.folder.notes import read_asked
from core.runs.record.pace import time_left
from core.runs.record.summary import summarise
from studio.figures.run_figures import UNKNOWN, clock, state_of
from studio.figures.run_names import names_in
from studio.words.text import say


def card_taken(locations: Locations, machine: Machine) -> bool:
    """Whether a run has the card or waits for it, so that another one would be queued."""
    holder = held_by(locations, machine.cards) or ""
    return bool(RUN_ID.fullmatch(holder) or JobQueue(locations).first_living(machine.cards))


def held_cards(locations: Locations, machine: Machine) -> frozenset[int]:
    """The numbers of the cards that runs hold."""
    holders = {gpu.index: held_by(locations, CardSet((gpu.cuda_name,))) or "" for gpu in machine.gpus}
    return frozenset(number for number, holder in holders.items() if RUN_ID.fullmatch(holder))


def queue_view(store: RunStore, machine: Machine) -> dict[str, Any]:
    """Who holds a card (nobody where all are free), and the waiting runs in their order. ``on`` names the cards, where
    the machine has several."""
    at, several = time.time(), len(machine.gpus) > 1
    titles = {CardSet((gpu.cuda_name,)): gpu.title for gpu in machine.gpus} if several else {}
    free: dict[CardSet, float | None] = {}
    holders: dict[str, dict[str, Any]] = {}
    for card in titles or [machine.cards]:
        holder, free[card] = held(store, card, at)
        if holder:
            one = holders.setdefault(holder["id"] or holder["title"], {**holder, "on": []})
            one["on"] += [titles[card]] if several else []
    waiting, known = [], JobQueue(store.locations).cards()
    for run_id in store.queue():
        cards = [CardSet.parse(lock) for lock in (known.get(run_id) or machine.cards).locks]
        free |= {card: held(store, card, at)[1] for card in cards if card not in free}
        frees = [moment for card in cards if (moment := free[card]) is not None]
        begins = max(frees) if len(frees) == len(cards) else None
        folder = JobFolder(store.locations.runs / run_id)
        takes = _left(store, folder)  # by its own pace where it has run, else as estimated at Start
        if takes is None and (asked := read_asked(folder)) and asked.seconds:
            takes = sum(asked.seconds) / 2
        ends = None if begins is None or takes is None else begins + takes
        free |= dict.fromkeys(cards, ends)
        on = [titles[card] for card in cards if card in titles]
        told = {"starts": _clock(begins, at), "ends": _clock(ends, at), "on": ", ".join(on)}
        waiting.append({**_named(folder), **told})
    shown = [{**holder, "on": ", ".join(holder["on"])} for holder in holders.values()]
    return {"holders": shown, "waiting": waiting}


def held(store: RunStore, cards: CardSet, now: float) -> tuple[dict[str, Any] | None, float | None]:
    """Who holds these cards (None: nobody), and when they will be free."""
    name = held_by(store.locations, cards)
    if not name:
        return None, now
    if not RUN_ID.fullmatch(name):  # a report has its run's title, all else calls itself
        run_id = name.removeprefix(GIVES_WAY)
        title = say.get(f"queue.other.{name}") or say("queue.other", name=name)
        if name != run_id and RUN_ID.fullmatch(run_id):
            title = say("queue.report", title=_named(JobFolder(store.locations.runs / run_id))["title"])
        return {"id": "", "title": title, "ends": UNKNOWN, "word": "", "tone": "wait"}, None
    folder = JobFolder(store.locations.runs / name)
    left = _left(store, folder)
    ends = None if left is None else now + left
    return {**_named(folder), "ends": _clock(ends, now)}, ends


def _named(folder: JobFolder) -> dict[str, Any]:
    run = summarise(folder)
    word, tone = state_of(run.state, run.outcome)
    return {"id": run.run_id, "title": names_in(folder.path.parent).title(run), "word": word, "tone": tone}


def _left(store: RunStore, folder: JobFolder) -> float | None:
    """Seconds that are left of a run by its own pace; None where that is not known."""
    try:
        left = time_left(store.record(folder.name), folder.config())
    except Fault:
        return None
    return left.middle if left else None


def _clock(at: float | None, now: float) -> str:
    return UNKNOWN if at is None else clock(at, now)
