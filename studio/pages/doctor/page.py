"""The doctor page: findings about this machine, each with its action."""

from collections.abc import Sequence

from core.machine.doctor.examine import examine
from core.machine.doctor.findings import MachineFinding
from studio.pages.doctor.words import say
from studio.services.services import Studio
from studio.shell.markup import Markup, icon, tag

_ORDER = {"fault": 0, "advice": 1, "fine": 2}
_COMMANDS = ("sudo ", "pip ", "python3 ")
_ICONS = {"fault": "warning", "advice": "info", "fine": "check"}


def page(studio: Studio) -> Markup:
    """The page; opening it examines the machine."""
    return view(examine(studio.locations.home))


def view(findings: Sequence[MachineFinding]) -> Markup:
    """All findings, faults first."""
    head = tag("h1", say("doctor.title"))
    about = tag(
        "p", say("doctor.about"), tag("a", say("nav.settings"), href="/settings", class_="what-is"), class_="quiet"
    )
    rows = (_row(finding) for finding in sorted(findings, key=lambda finding: _ORDER[finding.level]))
    return tag("section", head, about, tag("ul", *rows, class_="findings"), class_="doctor")


def _row(finding: MachineFinding) -> Markup:
    kind = "code" if finding.action.startswith(_COMMANDS) else "span"
    action = tag("p", tag("span", say("doctor.do")), tag(kind, finding.action)) if finding.action else None
    words = tag("div", tag("p", tag("strong", say(f"doctor.{finding.level}")), finding.text), action)
    return tag("li", icon(_ICONS[finding.level]), words, class_=f"finding {finding.level}")
