"""The plan in the run summary: the memory budget, what would make a run fit or use the room, advice, and the probe.

The budget is one stacked bar over the whole card, in pictures and in words::

    |▒▒ held by others ▒▒|█ model █|█ activations █| … |        free        |
                         0 ────────── the need ─────▲    free memory ends ──▲

What other programs hold stands apart, and the need is laid into what is free. Where it is more than that, the bar is as
long as the need, and a line says where the memory ends.

Every proposal is a button: one click writes its values into the fields, which answer as if a person had typed them.
"""

import math
from collections.abc import Sequence

from core.contract.errors import Fault
from core.contract.estimate import Advice, Estimate, MemoryPart, Probe, Suggestion
from core.estimate.suggest import CardChoice, best_cards
from core.machine.hardware import Machine
from studio.figures.run_figures import duration
from studio.pages.new_run.form import KNOBS, label_of
from studio.pages.new_run.view import View
from studio.pages.new_run.words import say
from studio.shell.explained import leads_to
from studio.shell.markup import Markup, fault, icon, join, push, tag

_LEAST_SHARE = 0.004
_TINY = 1 << 20
_FIRST = 3
WORTH = 0.95
"""Other cards are proposed where they take at most this share of the time."""

# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def budget_view(figures: Estimate, machine: Machine, says_fits: bool = True) -> Markup:
    """Bar and verdict; ``says_fits``: also where it fits."""
    held, free = _held(figures), figures.free_bytes
    room = max(figures.total_bytes or 0, held + (free or 0), held + figures.peak_bytes, 1)
    sizes = [("held", held), *((term.key, _height(term, figures)) for term in figures.terms)]
    pieces = [
        tag("span", class_=f"part-{key}", style=f"width:{100 * size / room:.2f}%")
        for key, size in sizes
        if size / room >= _LEAST_SHARE
    ]
    if free is not None and held + free < room:  # where the free memory ends
        pieces.append(tag("em", style=f"left:{100 * (held + free) / room:.2f}%"))
    parts = ", ".join(f"{say(f'part.{key}')} {gb_or_mb(size)}" for key, size in [*sizes[1:], sizes[0]] if size)
    bar = tag("div", *pieces, class_="bar", role="img", aria_label=f"{verdict_words(figures)} {parts}")
    peak = gb_or_mb(figures.peak_bytes)
    against = peak if free is None else say("summary.of", peak=peak, free=gb_or_mb(free))
    where = "ram" if machine.gpu is None else "cards" if figures.cards > 1 else "card"
    head = tag("div", tag("span", say(f"summary.memory.{where}")), tag("b", against), class_="memory-head")
    picture = icon("check" if figures.verdict == "fits" else "warning")
    verdict = tag("p", picture, tag("span", verdict_words(figures)), class_=f"verdict {figures.verdict}")
    return tag("div", head, bar, verdict if says_fits or not spare_words(figures) else None, class_="memory")


def parts_view(figures: Estimate) -> Markup:
    """The legend, folded: every part with its bytes, its composition as its title."""
    parts = sorted(((term.key, _height(term, figures), term.how) for term in figures.terms), key=lambda part: -part[1])
    lines = (
        tag("li", tag("i", class_=f"part-{key}"), tag("span", say(f"part.{key}")), tag("b", gb_or_mb(size)),
            title=how or None)
        for key, size, how in (*parts, ("held", figures.held_bytes or 0, say("part.held.how"))) if size
    )  # fmt: skip
    note = tag("p", say("summary.parts.peak"), " ", leads_to("part-memory", say("glossary.choices")), class_="hint")
    return tag("details", tag("summary", say("summary.parts")), tag("ul", *lines, class_="legend"), note,
               class_="parts", data_keep="parts")  # fmt: skip


def verdict_words(figures: Estimate) -> str:
    """Fits, tight or too large, and by how much."""
    return spare_words(figures) or figures.sentence


def spare_words(figures: Estimate) -> str:
    """That it fits, and what is left of the card or of the limit that was set; empty where it does not, or barely."""
    free, limit = figures.free_bytes or 0, figures.limit_bytes
    if figures.verdict != "fits" or free - figures.peak_bytes <= _TINY:
        return ""
    if limit is None or limit >= free:
        return say("summary.spare", size=gb_or_mb(free - figures.peak_bytes))
    return say("summary.spare.limit", limit=gb_or_mb(limit), size=gb_or_mb(max(0, limit - figures.peak_bytes)))


def _height(term: MemoryPart, figures: Estimate) -> int:
    """A part's bytes at the run's peak, which add up to the need; its own peak before these are known."""
    return term.at_peak if any(other.at_peak for other in figures.terms) else term.bytes


def _held(figures: Estimate) -> int:
    """What other programs hold of the card."""
    if figures.held_bytes is not None:
        return figures.held_bytes
    if figures.free_bytes is None or figures.total_bytes is None:
        return 0
    return max(0, figures.total_bytes - figures.free_bytes)


def gb_or_mb(size: int) -> str:
    """Memory in GiB, as cards are sold."""
    return f"{size / (1 << 30):.1f} GB" if size >= (1 << 30) // 2 else f"{size / (1 << 20):.0f} MB"


# ── cards ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def cards_view(view: View) -> Markup | None:
    """Of several cards: how long the run takes on which of them; those that are proposed, where others are chosen."""
    best, chosen = best_cards(view.choices), {gpu.index for gpu in view.job.working}
    if best is None:
        return None
    now = next((one.seconds for one in view.choices if {gpu.index for gpu in one.machine.gpus} == chosen), math.inf)
    proposes = {gpu.index for gpu in best.machine.gpus} != chosen and best.seconds < WORTH * now
    unlike = len(chosen) > 1 and view.job.unlike
    if not unlike and not proposes:
        return None
    others = [_takes(view, one) for one in view.choices if one is not best and one.figures.seconds]
    words = say("cards.proposed", best=_takes(view, best), others="; ".join(others))
    told = tag("span", words, " " + say("cards.unlike") if unlike else None)
    use = push(say("cards.take"), "change", {"train.cards": best.cards}) if proposes else None
    return tag("p", icon("chip"), told, use, class_="origin")


def _takes(view: View, choice: CardChoice) -> str:
    """ "RTX 4090 (1) alone: about 9 min", "both: about 14 min"."""
    gpus = choice.machine.gpus
    if len(gpus) == len(view.machine.gpus):
        cards = say("cards.both") if len(gpus) == 2 else say("cards.all", count=len(gpus))
    else:
        cards = say("cards.alone", card=", ".join(gpu.title for gpu in gpus))
    return say("cards.takes", cards=cards, time=duration(sum(choice.figures.seconds or (0, 0)) / 2))


# ── proposals ────────────────────────────────────────────────────────────────────────────────────────────────────────


def fit_view(suggestions: Sequence[Suggestion]) -> Markup | None:
    """What would make a run fit: the cheapest first, three open, the others folded."""
    if not suggestions:
        return None
    title, more, folded = say("fit.title"), suggestions[_FIRST:], None
    if more:
        folded = tag("details", tag("summary", say("fit.more", count=len(more))), _list(more), data_keep="fit-more")
    return tag("section", tag("h3", title), _list(suggestions[:_FIRST]), folded, class_="fit", aria_label=title)


def room_view(suggestions: Sequence[Suggestion]) -> Markup | None:
    """What could use the memory that is left, folded."""
    if not suggestions:
        return None
    title = say("room.title", count=len(suggestions))
    return tag("details", tag("summary", title), _list(suggestions), class_="fit", data_keep="room")


def advice_view(given: Sequence[Advice], folded: bool = False) -> Markup | None:
    """Advice from the data at hand: the first warning open, unless all is ``folded``; the rest folded."""
    if not given:
        return None
    ordered = sorted(given, key=lambda advice: advice.level != "warning")
    shown = ordered[:1] if ordered[0].level == "warning" and not folded else []
    rest = ordered[len(shown) :]
    title = say("advice.more" if shown else "advice.notes", count=len(rest))
    more = tag("details", tag("summary", title), _advices(rest), data_keep="advice") if rest else None
    first = _advices(shown) if shown else None
    return tag("section", first, more, class_="advices", aria_label=say("advice.title"))


def _advices(given: Sequence[Advice]) -> Markup:
    lines = (
        tag("li", icon("warning" if one.level == "warning" else "info"), tag("span", one.text),
            _apply(one.changes) if one.changes else None, class_=f"level-{one.level}")
        for one in given
    )  # fmt: skip
    return tag("ul", *lines, class_="advice")


def probe_view(view: View) -> Markup | None:
    """The button that begins the probe, its progress, or its result beside the plan."""
    if "probe" in view.progress:
        stage = str((*view.progress["probe"], "")[0])
        words = say.get(f"probe.stage.{stage}") or stage or say("probe.stage.starting")
        stop = push(say("work.cancel"), "stop", {"kind": "probe"})
        bar = tag("progress", max="1", aria_label=words)
        return tag("div", tag("p", words, role="status"), bar, stop, class_="probe working")
    if view.figures is None or view.facts is None:
        return None
    again = push(say("probe.again" if view.probe else "probe.begin"), "probe", title=say("probe.about"))
    if isinstance(view.probe, Fault):
        return tag("div", fault(view.probe), again, class_="probe")
    return tag("div", _measured(view.probe, view.figures) if view.probe else None, again, class_="probe")


def _list(suggestions: Sequence[Suggestion]) -> Markup:
    lines = (
        tag("li", tag("span", one.text),
            tag("span", say("fit.need", size=gb_or_mb(one.peak_bytes)), class_=f"need {one.verdict}"),
            _apply(one.changes))
        for one in suggestions
    )  # fmt: skip
    return tag("ul", *lines)


def _apply(changes: dict[str, str]) -> Markup:
    """An "Apply" button; its accessible name adds the changed labels and values."""
    labels = {key: label_of(KNOBS[key]) for key in changes if key in KNOBS} | {"model.name": say("model.name")}
    words = ", ".join(f"{labels[key]}: {value}" for key, value in changes.items() if key in labels)
    return push(say("fit.apply"), "change", changes, title=words, aria_label=f"{say('fit.apply')}: {words}")


def _measured(probe: Probe, figures: Estimate) -> Markup:
    # Comparable with the probe's peak: tensors on a card, the whole process on a CPU.
    planned = figures.peak_bytes if figures.device == "cpu" else figures.allocated_bytes or figures.peak_bytes
    words = (
        say("probe.peak", size=gb_or_mb(probe.peak_bytes)),
        say("probe.planned", size=gb_or_mb(planned)) if planned else "",
        say("probe.speed", seconds=f"{probe.seconds_per_step:.2f}", tokens=f"{probe.tokens_per_second:,.0f}"),
        say("probe.one_card", count=figures.cards) if figures.cards > 1 else "",
        say("probe.corrected") if figures.learned_from else "",
    )
    spilled = tag("p", icon("warning"), tag("span", say("probe.spilled")), class_="verdict too_large")
    measured = tag("p", tag("strong", say("probe.title")), " ", " ".join(filter(None, words)))
    return join(measured, spilled if probe.spilled else None)
