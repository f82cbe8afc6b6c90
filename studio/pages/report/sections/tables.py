"""Pieces that several sections share: a section with its title, a table with pictures, a change as a row."""

from collections.abc import Iterable, Sequence

from core.report.schema import Figure, Forgetting, Group, HeldOut, Part, Report
from studio.figures.pictures import Axis, change
from studio.figures.run_figures import UNKNOWN
from studio.pages.report.view import MEANT, TONES, between, number, signed, way
from studio.pages.report.words import say
from studio.shell.markup import Markup, join, tag

Cells = Sequence[object]


def section(name: str, title: str, *children: object) -> Markup:
    """A part of the report; ``name`` is its anchor."""
    return tag("section", tag("h2", title), *children, id=name, class_=f"card report-{name}")


def missing(part: Part | None) -> Markup | None:
    """Why a part is not there, or not whole; None where it is."""
    if part is not None and part.whole:
        return None
    if part is None:
        return tag("p", say("report.why.none"), class_="hint")
    words = part.text or say(f"report.why.{part.why}")
    if part.done:
        done = say("report.partly", done=f"{part.done:,}", total=f"{part.total:,}", unit=part.unit)
        return tag("p", done, " ", words, class_="hint partly")
    return tag("p", words, class_="hint" if part.why in MEANT else "hint partly")


def table(title: str, head: Cells, *bodies: Markup, kind: str = "drawn-rows") -> Markup:
    """A table of pictures; the first column names, wide ones scroll within their frame."""
    cells = []
    for cell in head:  # a column that is headed by a picture, or by nothing, has a name all the same
        drawn = not cell or isinstance(cell, Markup)
        unseen = tag("span", say("report.drawn" if cell else "report.details"), class_="sr-only") if drawn else None
        cells.append(tag("th", cell, unseen, scope="col"))
    caption = tag("caption", title, class_="sr-only")
    whole = tag("table", caption, tag("thead", tag("tr", *cells)), *bodies, class_=f"pictured {kind}".strip())
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=title)


def body(rows: Iterable[Markup], title: str = "") -> Markup:
    """Rows, below a title of their own where they have one."""
    head = tag("tr", tag("th", title, colspan="3", scope="rowgroup"), class_="group") if title else None
    return tag("tbody", head, *rows)


def row(name: object, *cells: object) -> Markup:
    """One line; its name is its head."""
    return tag("tr", tag("th", name, scope="row"), *(tag("td", cell) for cell in cells))


def named(name: str, about: str = "") -> Markup:
    """A name, and how many rows below it."""
    return join(tag("b", name), tag("span", about, class_="hint") if about else None)


def told(tone: str, words: str) -> Markup:
    """A word in its tone, with the dot of it."""
    return tag("span", tag("span", class_="dot", aria_hidden="true"), words, class_=f"told tone-{tone}")


def changed(figures: HeldOut | Group | Forgetting, name: Markup, axis: Axis) -> Markup:
    """Before and after as a picture and as numbers; worse and better are said, with the interval of the change."""
    before = figures.before.value if figures.before else None
    ends = tag("span", way(before, figures.after.value), class_="ends")
    tone = TONES[figures.change]
    picture = change(axis, figures.before, figures.after, tone)
    return row(name, picture, tag("div", ends, *_apart(figures.difference, figures.change), class_="change-words"))


def _apart(difference: Figure | None, how: str) -> Iterable[Markup]:
    """The word, then the change with its interval."""
    if difference is not None:
        yield told(TONES[how], say(f"report.change.{how}"))
        interval = between(difference)
        spread = tag("span", f"({interval})", class_="spread") if interval else None
        yield tag("span", tag("b", signed(difference.value)), " ", spread, class_="apart")


def ends_of(figures: Iterable[HeldOut | Group | Forgetting]) -> list[float | None]:
    """All values that a picture of these shows, with their intervals."""
    known = [figure for one in figures for figure in (one.before, one.after) if figure]
    return [value for figure in known for value in (figure.value, figure.low, figure.high)]


def grouped(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Groups by what they share; a property that only one group has says nothing and is left out."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.by, []).append(group)
    return {by: ones for by, ones in found.items() if len(ones) > 1}


def folded(title: str, *children: object, opened: bool = False, **attributes: object) -> Markup:
    """Something that opens when it is asked for."""
    return tag("details", tag("summary", title), *children, open=opened, class_="unfold", **attributes)


def part_line(report: Report) -> Iterable[Markup]:
    """One line a part: what was measured, how much of it, in which time, and why not all."""
    for part in report.parts:
        name = tag("a", say(f"report.part.{part.name}"), href=f"#{part.name}")
        done, total = f"{part.done:,}", f"{part.total:,}"
        amount = say("report.amount", done=done, total=total, unit=part.unit) if part.total else UNKNOWN
        why = part.text or (say(f"report.why.{part.why}") if part.why else "")
        yield row(name, amount, say("report.seconds", seconds=number(part.seconds, 1)), why or say("report.whole"))
