"""Why these settings: what is proposed and why, what a person set instead, and what a new proposal changed.

All of it follows Start, to keep Start few Tab stops away. Undo and "Use" are values for fields, as of any proposal.
"""

from collections.abc import Sequence
from typing import Any

from core.contract.estimate import Proposed
from core.contract.methods import METHODS
from core.estimate.fit import chosen
from core.estimate.propose import SETTINGS
from studio.figures.proposals import value_words
from studio.pages.new_run.form import KNOBS
from studio.pages.new_run.view import View
from studio.pages.new_run.words import say
from studio.services.standing import Change
from studio.shell.markup import Markup, icon, join, push, tag

_SHOWN = 3
_MODEL = "model.name"


def because_view(view: View) -> Markup:
    """What changed and why, and the settings with their reasons, folded."""
    if view.standing is None or view.facts is None:
        return Markup()
    return join(_changed(view), _reasons(view))


def _marks(differs: Sequence[Proposed]) -> Markup:
    """The rules that mark the fields whose values differ from the proposal."""
    words, field = say("auto.own"), "span[data-testid]::after"
    ids = (row.key.replace(".", "-") for row in differs)
    rules = (f"gradio-app .gradio-container #{own} {field} {{ content: '{words}' }}" for own in ids)
    return tag("style", Markup(" ".join(rules)))


def _changed(view: View) -> Markup | None:
    """What the newest proposal changed of what stood there, with the way back."""
    standing = view.standing
    changes = [one for one in standing.changed if chosen(view.config, one.key) == one.new] if standing else []
    if standing is None or not changes:
        return None
    first = sorted(changes, key=_weight)[:_SHOWN]
    words = ", ".join(_change(view, one) for one in first)
    more = f", {say('why.more', count=len(changes) - _SHOWN)}" if len(changes) > _SHOWN else ""
    back = push(say("why.undo"), "change", {one.key: one.old for one in changes} | {"undo": True})
    line = tag("span", say(f"why.changed.{standing.why}"), f" {words}{more}.")
    return tag("p", icon("info"), line, back, class_="origin", role="status")


def _weight(change: Change) -> int:
    """What matters most to a person first."""
    order = (_MODEL, *(row.key for row in SETTINGS))
    return order.index(change.key) if change.key in order else len(order)


def _change(view: View, change: Change) -> str:
    return f"{_label(change.key)} {_value(view, change.key, change.old)} → {_value(view, change.key, change.new)}"


def _reasons(view: View) -> Markup | None:
    assert view.standing is not None
    rows = [row for row in view.standing.rows if row.value or _now(view, row)]  # not "no limit of steps"
    differs = [row for row in rows if _now(view, row) != row.value]
    if not rows:
        return None
    lines = tag("dl", *(_row(view, row) for row in rows), class_="reasons")
    all_of_them = push(say("why.use_all"), "change", _asked(differs)) if len(differs) > 1 else None
    count = tag("em", say("why.count", count=len(differs)), class_="auto-own") if differs else None
    title = tag("summary", say("why.title"), " ", count)
    return tag("details", title, lines, all_of_them, _marks(differs), class_="why", data_keep="why")


def _row(view: View, row: Proposed) -> Markup:
    label, now = _label(row.key), _now(view, row)
    if now == row.value:
        said = tag("dd", tag("b", _value(view, row.key, row.value)), tag("span", row.because))
        return tag("div", tag("dt", label), said)
    proposed = _value(view, row.key, row.value)
    use = push(say("why.use", value=proposed), "change", _asked([row]),
               aria_label=f"{label}: {say('why.use', value=proposed)}")  # fmt: skip
    words = tag("span", say("why.yours", value=proposed, because=row.because))
    said = tag("dd", tag("b", _value(view, row.key, now)), tag("em", say("auto.own"), class_="auto-own"), words, use)
    return tag("div", tag("dt", label), said, class_="differs")


def _asked(rows: Sequence[Proposed]) -> dict[str, Any]:
    """Values for fields: a method that suits the rows is the automatic one."""
    return {row.key: "auto" if row.key == "method" else row.value for row in rows}


def _now(view: View, row: Proposed) -> Any:
    return view.method if row.key == "method" else chosen(view.config, row.key)


def _label(key: str) -> str:
    return say("model.name") if key == _MODEL else KNOBS[key].label


def _value(view: View, key: str, value: Any) -> str:
    """A value as a person reads it: a model and a method by their titles."""
    if key == _MODEL:
        known = (view.spec, view.proposal.spec if view.proposal else None)
        titles = {spec.name: spec.title for spec in known if spec}
        return titles.get(value) or say.get(f"why.model.{value}") or str(value).rstrip("/").rpartition("/")[2]
    if key == "train.max_steps" and not value:
        return say("why.no_limit")
    return METHODS[value].title if value in METHODS else value_words(key, value)
