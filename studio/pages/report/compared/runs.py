"""The reports that are compared, and their figures at a glance."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.contract.errors import RunError
from core.report.schema import Report, rankable
from studio.figures.pictures import Axis
from studio.figures.run_figures import UNKNOWN
from studio.pages.report.sections.tables import body, changed, ends_of, named, row, section, table
from studio.pages.report.view import number, percent, shares_way, signed, unit_words
from studio.pages.report.words import say
from studio.shell.markup import Markup, join, tag

LETTERS = "ABCDE"
MOST = len(LETTERS)


@dataclass(frozen=True)
class Compared:
    """One of the reports: its place, the title of its run, what it says."""

    place: int
    title: str
    report: Report

    @property
    def letter(self) -> str:
        """What it is called beside the others."""
        return LETTERS[self.place]

    @property
    def tone(self) -> str:
        """The class of its colour."""
        return f"run-{self.place}"

    @property
    def head(self) -> Markup:
        """Its letter in its colour."""
        return tag("span", tag("span", class_=f"swatch {self.tone}", aria_hidden="true"), self.letter, class_="letter")


def compared(found: Sequence[tuple[str, Report]]) -> list[Compared]:
    """The reports in their places.

    Raises:
        RunError: fewer than two, or more than five.
    """
    if not 2 <= len(found) <= MOST:
        raise RunError("compare.count", most=MOST, count=len(found))
    return [Compared(place, title, report) for place, (title, report) in enumerate(found)]


def alike(runs: Sequence[Compared]) -> bool:
    """Whether their losses can be ranked."""
    return rankable([run.report for run in runs])


def glance(runs: Sequence[Compared]) -> Markup:
    """Which runs these are, their held-out losses on one axis, and the figures of all parts."""
    lines = (tag("li", run.head, tag("b", run.title), tag("span", _about(run.report), class_="hint")) for run in runs)
    apart = None if alike(runs) else tag("p", say("report.apart"), class_="hint partly")
    which = tag("ul", *lines, class_="report-runs")
    return section("glance", say("report.glance"), which, apart, _losses(runs), _figures(runs))


def _about(report: Report) -> str:
    step = say("report.step", step=f"{report.step:,}") if report.step else ""
    return " · ".join(part for part in (report.model, report.method, report.data, step) if part)


def _losses(runs: Sequence[Compared]) -> Markup | None:
    known = [(run, held) for run in runs if (held := run.report.held_out)]
    if not known:
        return None
    axis = Axis.over(ends_of(held for _, held in known))
    rows = [changed(held, join(run.head), axis) for run, held in known]
    units = dict.fromkeys(unit_words(held) for _, held in known)
    return table(", ".join(units), (", ".join(units), axis.labels(), say("report.head.change")), body(rows))


def _figures(runs: Sequence[Compared]) -> Markup:
    """One line a figure, one column a run; lines that nobody has are left out."""
    lines = []
    for name, figure in _FIGURES.items():
        values = [figure(run.report) for run in runs]
        if any(value != UNKNOWN for value in values):
            lines.append(row(named(say(f"report.figure.{name}"), say(f"report.figure.{name}.about")), *values))
    head = ("", *(run.head for run in runs))
    return table(say("report.glance"), head, body(lines), kind="of-runs")


def _accuracy(report: Report) -> str:
    held = report.held_out
    return shares_way(held.accuracy_before, held.accuracy_after) if held and held.accuracy_after else UNKNOWN


def _worse(report: Report) -> str:
    held = report.held_out
    return f"{sum(group.change == 'worse' for group in held.groups)}" if held and held.difference else UNKNOWN


def _passed(report: Report) -> str:
    counted = [tally for tally in report.answers.tallies if tally.of] if report.answers else []
    return f"{sum(one.passed_after for one in counted)} / {sum(one.of for one in counted)}" if counted else UNKNOWN


def _gap(report: Report) -> str:
    return signed(report.memorising.gap.value) if report.memorising and report.memorising.gap else UNKNOWN


def _copied(report: Report) -> str:
    part = report.memorising
    return f"{max((one.tokens for one in part.copied), default=0)}" if part else UNKNOWN


def _update(report: Report) -> str:
    part = report.moved
    if part is None:
        return UNKNOWN
    return number(part.norm, 2) if part.relative is None else percent(part.relative, 2)


_FIGURES: dict[str, Callable[[Report], str]] = {
    "accuracy": _accuracy,
    "worse": _worse,
    "passed": _passed,
    "forgotten": lambda one: signed(one.forgetting[0].difference.value) if one.forgetting else UNKNOWN,
    "kl": lambda one: number(one.forgetting[0].kl.value) if one.forgetting else UNKNOWN,
    "gap": _gap,
    "copied": _copied,
    "update": _update,
}
