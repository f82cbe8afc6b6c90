"""What a report says first: whether it learned, what to do next, and a tile for each part."""

from collections.abc import Callable

from core.report.schema import HeldOut, Report
from studio.figures.pictures import Axis, change
from studio.figures.run_figures import UNKNOWN
from studio.pages.report.sections.tables import ends_of, told
from studio.pages.report.view import TONES, Headline, digits_of, headline, kind_of, number, percent, shares_way, signed
from studio.pages.report.words import say
from studio.shell.markup import Markup, join, tag

Tile = tuple[str, str, str]
"""A figure, what it means, and its tone."""


def head(report: Report) -> Markup:
    """The sentence and its figure, the advice, and the tiles that lead to the sections."""
    said = headline(report)
    words = tag("div", tag("h2", said.text), tag("p", said.more) if said.more else None, class_="said")
    known = said.after != UNKNOWN
    figure = tag("div", _ends(said), tag("p", said.label, class_="hint"), class_="figure") if known else None
    first = tag("div", words, figure, class_="first")
    drawn = _drawn(report.held_out, said.tone) if report.held_out else None
    lines = [tag("li", tag("b", one.text), " ", tag("span", one.reason, class_="why")) for one in report.advice]
    advice = tag("div", tag("h3", say("report.advice")), tag("ol", *lines), class_="next-steps") if lines else None
    told_first = tag("section", first, drawn, advice, class_=f"card report-head tone-{said.tone}")
    return join(told_first, _tiles(report))


def _ends(said: Headline) -> Markup:
    before = tag("span", f"{said.before} → ", class_="from") if said.before else None
    return tag("p", before, tag("b", said.after), class_="ends")


def _drawn(held: HeldOut, tone: str) -> Markup:
    """Before and after on their axis, of the figure that stands above, with what the marks mean."""
    share = held.accuracy_after is not None
    before, after = (held.accuracy_before, held.accuracy_after) if share else (held.before, held.after)
    axis = Axis(0.0, 1.0, 0.2) if share else Axis.over(ends_of([held]))
    marks = ("before", "after", "range") if before else ("after", "range")
    key = (
        tag("span", tag("span", class_=f"key {name}", aria_hidden="true"), say(f"report.key.{name}")) for name in marks
    )
    picture = change(axis, before, after, tone)
    return tag("div", picture, axis.labels(share), tag("p", *key, class_="key-line hint"), class_="drawn")


def _tiles(report: Report) -> Markup:
    """Each part in a figure; a tile leads to its section."""
    made = []
    for name, tile in _TILES.items():
        value, words, tone = tile(report) or (UNKNOWN, say("report.tile.missing"), "quiet")
        inner = (tag("span", say(f"report.tile.{name}"), class_="hint"), tag("b", value), told(tone, words))
        made.append(tag("li", tag("a", *inner, href=f"#{name}")))
    return tag("ul", *made, class_="report-tiles")


def _held_out(report: Report) -> Tile | None:
    held = report.held_out
    if held is None:
        return None
    if held.accuracy_after is not None:
        words = say(f"report.tile.accuracy.{kind_of(report)}")
        return shares_way(held.accuracy_before, held.accuracy_after), words, headline(report).tone
    worse = sum(group.change == "worse" for group in held.groups)
    tone = "wait" if worse and held.change != "worse" else TONES[held.change]
    if held.difference is None:
        return number(held.after.value), say("report.tile.after"), tone
    words = say(f"report.tile.worse.{_few(worse)}", count=worse) if worse else say(f"report.change.{held.change}")
    return signed(held.difference.value, digits_of(held)), words, tone


def _few(count: int) -> str:
    return "one" if count == 1 else "some"


def _answers(report: Report) -> Tile | None:
    part = report.answers
    if part is None or not part.rows:
        return None
    counted = [tally for tally in part.tallies if tally.of]
    if not counted:
        return f"{len(part.rows)}", say("report.tile.prompts"), "quiet"
    after, of = (sum(getattr(tally, name) for tally in counted) for name in ("passed_after", "of"))
    known = [tally.passed_before for tally in counted if tally.passed_before is not None]
    words = say("report.tile.passed", of=of)
    if len(known) < len(counted):
        return f"{after}", words, "quiet"
    before = sum(known)
    return f"{before} → {after}", words, "good" if after > before else "bad" if after < before else "quiet"


def _forgetting(report: Report) -> Tile | None:
    if not report.forgetting:
        return None
    worst = max(report.forgetting, key=lambda one: one.difference.value)
    lost = "bad" if worst.change == "worse" and worst.difference.value >= _MUCH else "wait"
    words = say(f"report.tile.forgetting.{worst.change}")
    return signed(worst.difference.value, 3), words, lost if worst.change == "worse" else "good"


_MUCH = 0.1
"""Nats a token that a general set may lose before it is called much."""


def _moved(report: Report) -> Tile | None:
    part = report.moved
    if part is None:
        return None
    tone = "wait" if part.told else "quiet"
    words = say("report.tile.moved.told" if part.told else "report.tile.moved.all")
    return (number(part.norm, 2) if part.relative is None else percent(part.relative, 2)), words, tone


def _memorising(report: Report) -> Tile | None:
    part = report.memorising
    if part is None or part.gap is None:
        return None
    sure = part.gap.low is not None and part.gap.low > 0
    words = say("report.tile.gap" if sure else "report.tile.gap.none")
    return signed(part.gap.value), words, "wait" if sure else "good"


_TILES: dict[str, Callable[[Report], Tile | None]] = {
    "held_out": _held_out, "answers": _answers, "moved": _moved, "forgetting": _forgetting, "memorising": _memorising,
}  # fmt: skip
"""In the order of the sections, by their anchors."""
