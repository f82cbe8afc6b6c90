"""The doctor page: what was found on this machine, each with its action."""

from __future__ import annotations

from collections.abc import Sequence

from core.doctor import Finding, findings, read_surroundings
from studio.house import Studio
from studio.markup import Markup, icon, tag
from studio.text import say

__all__ = ["page", "view"]

_ORDER = {"fault": 0, "advice": 1, "fine": 2}
_COMMANDS = ("sudo ", "pip ", "python3 ")
_ICONS = {"fault": "warning", "advice": "info", "fine": "check"}


def page(studio: Studio) -> Markup:
    """The page; the machine is looked at anew whenever it is opened."""
    return view(findings(studio.machine(), read_surroundings(studio.locations.home)))


def view(found: Sequence[Finding]) -> Markup:
    """All findings, what needs doing first."""
    head = tag("h1", say("doctor.title"))
    about = tag("p", say("doctor.about"), class_="quiet")
    rows = (_row(finding) for finding in sorted(found, key=lambda finding: _ORDER[finding.level]))
    return tag("section", head, about, tag("ul", *rows, class_="findings"), class_="doctor")


def _row(finding: Finding) -> Markup:
    kind = "code" if finding.action.startswith(_COMMANDS) else "span"
    action = tag("p", tag("span", say("doctor.do")), tag(kind, finding.action)) if finding.action else None
    words = tag("div", tag("p", tag("strong", say(f"doctor.{finding.level}")), finding.text), action)
    return tag("li", icon(_ICONS[finding.level]), words, class_=f"finding {finding.level}")
