"""One run's report from top to bottom."""

from core.report.schema import Report
from studio.pages.report.sections.answers import answers
from studio.pages.report.sections.head import head
from studio.pages.report.sections.held_out import held_out
from studio.pages.report.sections.moved import moved
from studio.pages.report.sections.rest import forgetting, measured, memorising
from studio.shell.markup import Markup, tag

SECTIONS = (head, held_out, answers, moved, forgetting, memorising, measured)
"""In the order in which a person asks."""


def whole(report: Report) -> Markup:
    """All sections."""
    return tag("div", *(part(report) for part in SECTIONS), class_="report")
