"""How these rows are learned: the methods that take them, and when to take the chosen one."""

from core.contract.methods import METHODS, methods_for
from studio.pages.new_run.view import View
from studio.pages.new_run.words import say
from studio.shell.explained import leads_to
from studio.shell.markup import Markup, push, tag


def methods_view(view: View) -> Markup | None:
    """The methods as buttons, the one that trains pressed; None where there is nothing to choose.

    The rows' own method leaves the choice to the data, so that another file gets its own.
    """
    if view.report is None:
        return None
    fitting, chosen = methods_for(view.report.layout), METHODS[view.method]
    if len(fitting) == 1 and not view.lacks_rows:
        return None
    buttons = (
        push(METHODS[name].title, "change", {"method": "auto" if name == view.report.method else name},
             aria_pressed="true" if name == view.method else "false")
        for name in fitting
    )  # fmt: skip
    label = tag("b", say("method.label"), id="methods-label")
    choice = tag("div", label, *buttons, role="group", aria_labelledby="methods-label", class_="methods")
    when = say.get(f"method.{view.method}.{view.report.layout}") or say(f"method.{view.method}")
    more = leads_to(chosen.term or view.method, say("method.more", title=chosen.title))
    about = tag("p", when, " ", more, class_="hint") if view.method in fitting else None
    return tag("div", choice, about, id="data-methods")
