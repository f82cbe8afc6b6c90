"""Forgetting, memorising, and how the report was measured."""

from core.report.schema import Copied, Figure, Forgetting, Memorising, Recited, Report, TextLoss
from studio.figures.pictures import Axis, bar, change
from studio.figures.run_figures import day_and_time, duration
from studio.pages.report.sections.tables import (
    body,
    changed,
    ends_of,
    folded,
    missing,
    named,
    part_line,
    row,
    section,
    table,
)
from studio.pages.report.view import between, number, signed, way
from studio.pages.report.words import say
from studio.shell.markup import Markup, join, tag


def forgetting(report: Report) -> Markup:
    """How far the model moved on texts that have nothing to do with the data."""
    title, lacking = say("report.part.forgetting"), missing(report.part("forgetting"))
    if not report.forgetting:
        return section("forgetting", title, lacking or tag("p", say("report.why.none"), class_="hint"))
    about = tag("p", say("report.forgetting.about"), class_="hint")
    return section("forgetting", title, lacking, about, *map(_set, report.forgetting))


def set_name(one: Forgetting) -> str:
    """The name of a set of texts."""
    return say("report.forgetting.general") if one.name == "general" else one.name


def _set(one: Forgetting) -> Markup:
    name = named(set_name(one), say("report.forgetting.count", texts=f"{one.texts:,}", tokens=f"{one.tokens:,}"))
    axis = Axis.over(ends_of([one, *one.groups]))
    interval = between(one.kl)
    spread = f" ({interval})" if interval else ""
    kl = tag("p", say("report.forgetting.kl", name=set_name(one), kl=number(one.kl.value), spread=spread))
    head = (say("report.texts"), axis.labels(), say("report.head.change"))
    rows = [changed(one, name, axis)]
    for group in one.groups:
        rows.append(changed(group, named(group.name, say("report.count.texts", texts=f"{group.rows:,}")), axis))
    worst = _worst(one.worst)
    return tag("div", kl, table(set_name(one), head, body(rows)), worst, class_="report-set")


def _worst(texts: tuple[TextLoss, ...]) -> Markup | None:
    if not texts:
        return None
    most = max(one.kl for one in texts)
    lines = (
        tag(
            "li",
            tag(
                "div",
                tag("b", one.kind or say("report.text")),
                tag("span", say("report.forgetting.text", kl=number(one.kl), way=way(one.before, one.after))),
                class_="loss-head",
            ),
            bar(one.kl, most, "quiet"),
            tag("p", one.text, class_="quoted"),
        )
        for one in texts
    )
    return folded(say("report.forgetting.worst"), tag("ol", *lines, class_="row-losses"))


def memorising(report: Report) -> Markup:
    """Trained rows beside held-out ones, and what was copied."""
    part, title = report.memorising, say("report.part.memorising")
    lacking = missing(report.part("memorising"))
    if part is None:
        return section("memorising", title, lacking)
    lists = (_copied(part.copied), _recited(part.recited))
    return section("memorising", title, lacking, _gap(report, part), _losses(report, part), *lists)


def _gap(report: Report, part: Memorising) -> Markup | None:
    if part.gap is None:
        return None
    interval = between(part.gap)
    spread = f" ({interval})" if interval else ""
    known = report.held_out.unit if report.held_out else ""
    unit = f" {say(f'report.per.{known}')}" if known.startswith("nats") else ""
    sure = part.gap.low is not None and part.gap.low > 0
    words = say("report.gap" if sure else "report.gap.none", gap=signed(part.gap.value), unit=unit, spread=spread)
    return tag("p", words)


def _losses(report: Report, part: Memorising) -> Markup | None:
    """Trained and held-out rows on one axis."""
    before = report.held_out.before if report.held_out else None
    lines = [("trained", part.trained_before, part.trained), ("held", before, part.held_out)]
    known = [(name, first, last) for name, first, last in lines if last is not None]
    if not known:
        return None
    axis = Axis.over(
        value for _, first, last in known for one in (first, last) if one for value in (one.value, one.low, one.high)
    )
    rows = (_rows(name, first, last, axis) for name, first, last in known)
    head = (say("report.rows"), axis.labels(), say("report.head.loss"))
    return table(say("report.part.memorising"), head, body(rows))


def _rows(name: str, before: Figure | None, after: Figure, axis: Axis) -> Markup:
    ends = tag("span", way(before.value if before else None, after.value), class_="ends")
    about = named(say(f"report.memorising.{name}"), say("report.count.rows", rows=f"{after.of:,}"))
    return row(about, change(axis, before, after), ends)


def _copied(rows: tuple[Copied, ...]) -> Markup:
    if not rows:
        return tag("p", say("report.copied.none"))
    lines = (
        _quote(say("report.copied.row", **_counts(one), row=f"{one.row:,}", source=f"{one.from_row:,}"), one)
        for one in rows
    )
    return folded(say("report.copied", tokens=rows[0].tokens), tag("ol", *lines, class_="row-losses"))


def _recited(rows: tuple[Recited, ...]) -> Markup | None:
    if not rows:
        return None
    lines = (_quote(say("report.recited.row", **_counts(one), row=f"{one.row:,}"), one) for one in rows)
    return folded(say("report.recited", tokens=rows[0].tokens), tag("ol", *lines, class_="row-losses"))


def _counts(one: Copied | Recited) -> dict[str, str]:
    return {"tokens": f"{one.tokens:,}", "of": f"{one.answer_tokens:,}"}


def _quote(words: str, one: Copied | Recited) -> Markup:
    before = say("report.copied.before", tokens=f"{one.before:,}") if one.before is not None else None
    head = tag("div", tag("span", words), tag("span", before, class_="hint") if before else None, class_="loss-head")
    share = one.tokens / one.answer_tokens if one.answer_tokens else 0.0
    return tag("li", head, bar(share, 1.0, "quiet"), tag("p", one.text, class_="quoted"))


def measured(report: Report) -> Markup:
    """What was measured of which run, how much of it, and in which time."""
    step = say("report.step", step=f"{report.step:,}") if report.step else report.checkpoint
    facts = [
        (say("report.fact.model"), report.model),
        (say("report.fact.data"), report.data),
        (say("report.fact.checkpoint"), step),
        (say("report.fact.resumed"), report.resume_from),
        (say("report.fact.trained_on"), ", ".join(report.trained_on)),
        (say("report.fact.device"), report.device),
        (say("report.fact.made"), day_and_time(report.made_at) if report.made_at else ""),
        (say("report.fact.took"), _took(report)),
    ]
    pairs = (tag("div", tag("dt", name), tag("dd", value)) for name, value in facts if value)
    listed = tag("dl", *pairs, class_="report-facts")
    head = (say("report.part"), say("report.head.amount"), say("report.head.time"), say("report.head.why"))
    parts = table(say("report.measured"), head, body(part_line(report)), kind="of-parts") if report.parts else None
    return section("measured", say("report.measured"), listed, parts)


def _took(report: Report) -> str:
    spent = duration(report.seconds)
    if not report.budget_seconds:
        return spent
    return join(say("report.took", spent=spent, budget=duration(report.budget_seconds)), f" {report.budget_text}")
