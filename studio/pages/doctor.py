"""The doctor page: what was found on this machine, each with its action."""

from __future__ import annotations

from gradio.context import Context

from core.doctor import Finding, findings, read_surroundings
from studio.house import Studio
from studio.parts import Markup, board, icon, tag
from studio.text import say

__all__ = ["build", "view"]

_ORDER = {"fault": 0, "advice": 1, "fine": 2}
_COMMANDS = ("sudo ", "pip ", "python3 ")
_ICONS = {"fault": "warning", "advice": "info", "fine": "check"}


def build(studio: Studio) -> None:
    """Puts the page into the open Blocks; the machine is looked at anew whenever the page is opened."""
    page = board(view(None))

    def look() -> Markup:
        return view(findings(studio.machine(), read_surroundings(studio.locations.home)))

    if Context.root_block is not None:
        Context.root_block.load(look, None, page, show_progress="hidden", api_visibility="private")


def view(found: list[Finding] | tuple[Finding, ...] | None) -> Markup:
    """All findings, what needs doing first; None while the machine is being looked at."""
    head = tag("h1", say("doctor.title"), id="page", tabindex="-1")
    about = tag("p", say("doctor.about"), class_="quiet")
    if found is None:
        return tag("section", head, about, tag("p", say("doctor.looking"), class_="quiet"), class_="doctor")
    rows = (_row(finding) for finding in sorted(found, key=lambda finding: _ORDER[finding.level]))
    return tag("section", head, about, tag("ul", *rows, class_="findings"), class_="doctor")


def _row(finding: Finding) -> Markup:
    kind = "code" if finding.action.startswith(_COMMANDS) else "span"
    action = tag("p", tag("span", say("doctor.do")), tag(kind, finding.action)) if finding.action else None
    words = tag("div", tag("p", tag("strong", say(f"doctor.{finding.level}")), finding.text), action)
    return tag("li", icon(_ICONS[finding.level]), words, class_=f"finding {finding.level}")
