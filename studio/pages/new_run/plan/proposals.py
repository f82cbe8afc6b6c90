"""What the planner proposes, below the budget: changes that make a run fit or use the room, advice, and the probe.

Every proposal is a button: one click writes its values into the fields, which answer as if a person had typed them.
"""

from collections.abc import Sequence

from core.contract.errors import Fault
from core.contract.estimate import Advice, Estimate, Probe, Suggestion
from studio.pages.new_run.asking import push
from studio.pages.new_run.form import KNOBS, label_of
from studio.pages.new_run.plan.budget import gb_or_mb
from studio.pages.new_run.view import View
from studio.shell.markup import Markup, fault, icon, join, tag
from studio.words.text import say

_FIRST = 3
_OPEN = 1


def fit_view(suggestions: Sequence[Suggestion]) -> Markup | None:
    """The list under a run that does not fit: the cheapest first, three at once, the others folded."""
    if not suggestions:
        return None
    head = tag("h3", say("fit.title"))
    more = suggestions[_FIRST:]
    folded = (
        tag("details", tag("summary", say("fit.more", count=len(more))), _list(more), data_keep="fit-more")
        if more else None
    )  # fmt: skip
    return tag("section", head, _list(suggestions[:_FIRST]), folded, class_="fit", aria_label=say("fit.title"))


def room_view(suggestions: Sequence[Suggestion]) -> Markup | None:
    """The other way: what could be done with memory that is left, folded."""
    if not suggestions:
        return None
    title = say("room.title", count=len(suggestions))
    return tag("details", tag("summary", title), _list(suggestions), class_="fit", data_keep="room")


def advice_view(found: Sequence[Advice], folded: bool = False) -> Markup | None:
    """Advice from the data at hand: the first warning open, unless all is ``folded``; the rest folded."""
    if not found:
        return None
    ordered = sorted(found, key=lambda advice: advice.level != "warning")
    open_ones = [advice for advice in ordered[: 0 if folded else _OPEN] if advice.level == "warning"]
    rest = ordered[len(open_ones) :]
    title = say("advice.more" if open_ones else "advice.notes", count=len(rest))
    more = tag("details", tag("summary", title), _advices(rest), data_keep="advice") if rest else None
    shown = _advices(open_ones) if open_ones else None
    return tag("section", shown, more, class_="advices", aria_label=say("advice.title"))


def _advices(found: Sequence[Advice]) -> Markup:
    lines = (
        tag("li", icon("warning" if one.level == "warning" else "info"), tag("span", one.text),
            _apply(one.changes) if one.changes else None, class_=f"level-{one.level}")
        for one in found
    )  # fmt: skip
    return tag("ul", *lines, class_="advice")


def probe_view(view: View) -> Markup | None:
    """The button that begins the probe; how far it is; or what it measured against what was planned."""
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


def changes_words(changes: dict[str, str]) -> str:
    """Changes as labels and values: the accessible name of a button that says only "Apply"."""
    labels = {key: label_of(KNOBS[key]) for key in changes if key in KNOBS} | {"model.name": say("model.name")}
    return ", ".join(f"{labels[key]}: {value}" for key, value in changes.items() if key in labels)


def _list(suggestions: Sequence[Suggestion]) -> Markup:
    lines = (
        (one, tag("span", say("fit.need", size=gb_or_mb(one.peak_bytes)), class_=f"need {one.verdict}"))
        for one in suggestions
    )
    return tag("ul", *(tag("li", tag("span", one.text), need, _apply(one.changes)) for one, need in lines))


def _apply(changes: dict[str, str]) -> Markup:
    words = changes_words(changes)
    return push(say("fit.apply"), "change", changes, title=words, aria_label=f"{say('fit.apply')}: {words}")


def _measured(probe: Probe, figures: Estimate) -> Markup:
    # What is comparable with the probe's peak: tensors on a card, the whole process on a CPU.
    planned = figures.peak_bytes if figures.device == "cpu" else figures.allocated_bytes or figures.peak_bytes
    words = (
        say("probe.peak", size=gb_or_mb(probe.peak_bytes)),
        say("probe.planned", size=gb_or_mb(planned)) if planned else "",
        say("probe.speed", seconds=f"{probe.seconds_per_step:.2f}", tokens=f"{probe.tokens_per_second:,.0f}"),
        say("probe.corrected") if figures.learned_from else "",
    )
    spilled = tag("p", icon("warning"), tag("span", say("probe.spilled")), class_="verdict too_large")
    measured = tag("p", tag("strong", say("probe.title")), " ", " ".join(filter(None, words)))
    return join(measured, spilled if probe.spilled else None)
