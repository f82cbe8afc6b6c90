"""Losses on held-out rows: all of them, by what tells them apart, and the rows that got worse."""

from collections.abc import Iterable

from core.report.schema import Figure, Group, HeldOut, Report, RowLoss
from studio.figures.pictures import Axis, change
from studio.pages.report.sections.tables import (
    body,
    changed,
    ends_of,
    folded,
    grouped,
    missing,
    named,
    row,
    section,
    table,
    told,
)
from studio.pages.report.view import perplexity, shares_way, unit_words, way
from studio.pages.report.words import say
from studio.shell.markup import Markup, join, tag

SHOWN_ROWS = 10


def held_out(report: Report) -> Markup:
    """The section; what was not measured is said in its place."""
    held, title = report.held_out, say("report.part.held_out")
    if held is None:
        return section("held_out", title, missing(report.part("held_out")))
    resumed = say("report.held_out.resumed", run=report.resume_from) if report.resume_from else None
    about = tag("p", say("report.held_out.about", unit=unit_words(held)), " ", resumed, class_="hint")
    rows = (_rows("worse", held.worse), _rows("hardest", held.hardest))
    lists = tag("div", *(one for one in rows if one is not None), class_="two")
    how = tag("p", held.formula, class_="hint") if held.formula else None
    whole = (about, _worse(held), _losses(held), how, lists)
    return section("held_out", title, missing(report.part("held_out")), *whole)


def _worse(held: HeldOut) -> Markup | None:
    """Which groups got worse; said too where none of several did."""
    worse = [group_name(group) for group in held.groups if group.change == "worse"]
    if worse:
        return tag("p", told("bad", say("report.worse.groups", names=", ".join(worse))))
    return tag("p", told("good", say("report.worse.none"))) if held.before and grouped(held.groups) else None


def _losses(held: HeldOut) -> Markup:
    """All rows and each group on one axis."""
    groups = grouped(held.groups)
    axis = Axis.over(ends_of([held, *(one for ones in groups.values() for one in ones)]))
    head = (say("report.rows"), axis.labels(), say("report.head.change"))
    first = [changed(held, named(say("report.all"), _count(held.rows, held.tokens)), axis), *_beside(held)]
    bodies = [body(first)]
    bodies += [body((_group(one, axis) for one in ones), say(f"report.by.{by}")) for by, ones in groups.items()]
    return table(say("report.part.held_out"), head, *bodies)


def _beside(held: HeldOut) -> Iterable[Markup]:
    """What the loss means in other units."""
    if held.has_perplexity:
        ends = perplexity(held.after.value)
        words = f"{perplexity(held.before.value)} → {ends}" if held.before else ends
        cell = join(tag("span", words, class_="ends"), _spread(held.after))
        yield row(say("report.perplexity.name"), "", cell)
    if held.accuracy_after is not None:
        words = shares_way(held.accuracy_before, held.accuracy_after)
        yield row(say("report.accuracy"), "", tag("span", words, class_="ends"))


def _spread(after: Figure) -> Markup | None:
    """The interval of a perplexity after training: that of its loss, each end as a perplexity."""
    if after.low is None or after.high is None:
        return None
    between = say("report.between", low=perplexity(after.low), high=perplexity(after.high))
    return tag(
        "span", tag("span", f"({say('report.perplexity.after', between=between)})", class_="spread"), class_="apart"
    )


def _group(group: Group, axis: Axis) -> Markup:
    return changed(group, named(group_name(group), _count(group.rows, group.tokens)), axis)


def group_name(group: Group) -> str:
    """A group's name for people."""
    tokens = group.by == "length" and group.name[:1].isdigit()
    return say("report.length", range=group.name) if tokens else group.name


def _count(rows: int, tokens: int) -> str:
    if not tokens:
        return say("report.count.rows", rows=f"{rows:,}")
    return say("report.count", rows=f"{rows:,}", tokens=f"{tokens:,}")


def _rows(name: str, rows: tuple[RowLoss, ...]) -> Markup | None:
    """Single rows with their text, the worst first."""
    if not rows:
        return None
    axis = Axis.over([value for one in rows for value in (one.before, one.after)])
    lines = tag("ol", *(_row(one, axis, name) for one in rows[:SHOWN_ROWS]), class_="row-losses")
    return folded(say(f"report.{name}", count=len(rows)), lines)


def _row(one: RowLoss, axis: Axis, name: str) -> Markup:
    tone = "bad" if name == "worse" else "quiet"
    before = Figure(value=one.before) if one.before is not None else None
    picture = change(axis, before, Figure(value=one.after), tone)
    head = join(tag("b", say("report.row", row=f"{one.row:,}")), tag("span", way(one.before, one.after), class_="ends"))
    return tag("li", tag("div", head, class_="loss-head"), picture, tag("p", one.text, class_="quoted"))
