"""The memory budget in the run summary: one stacked bar over the whole card, in pictures and in words.

    |▒▒ held by others ▒▒|█ model █|█ activations █| … |        free        |
                         0 ────────── the need ─────▲    free memory ends ──▲

What other programs hold stands apart, and the need is laid into what is free. Where it is more than that, the bar is as
long as the need, and a line says where the memory ends.
"""

from core.contract.estimate import Estimate, MemoryPart
from core.machine.hardware import Machine
from studio.shell.explained import leads_to
from studio.shell.markup import Markup, icon, tag
from studio.words.text import say

_LEAST_SHARE = 0.004
_TINY = 1 << 20


def budget_view(figures: Estimate, machine: Machine) -> Markup:
    """Bar and verdict."""
    held, free = _held(figures), figures.free_bytes
    room = max(figures.total_bytes or 0, held + (free or 0), held + figures.peak_bytes, 1)
    sizes = [("held", held), *((term.key, _height(term, figures)) for term in figures.terms)]
    pieces = [
        tag("span", class_=f"part-{key}", style=f"width:{100 * size / room:.2f}%")
        for key, size in sizes
        if size / room >= _LEAST_SHARE
    ]
    if free is not None and held + free < room:  # where the free memory ends, when the need goes beyond it
        pieces.append(tag("em", style=f"left:{100 * (held + free) / room:.2f}%"))
    parts = ", ".join(f"{say(f'part.{key}')} {gb_or_mb(size)}" for key, size in [*sizes[1:], sizes[0]] if size)
    bar = tag("div", *pieces, class_="bar", role="img", aria_label=f"{verdict_words(figures)} {parts}")
    peak = gb_or_mb(figures.peak_bytes)
    against = peak if free is None else say("summary.of", peak=peak, free=gb_or_mb(free))
    where = say("summary.memory.card" if machine.gpu else "summary.memory.ram")
    head = tag("div", tag("span", where), tag("b", against), class_="memory-head")
    picture = icon("check" if figures.verdict == "fits" else "warning")
    verdict = tag("p", picture, tag("span", verdict_words(figures)), class_=f"verdict {figures.verdict}")
    return tag("div", head, bar, verdict, class_="memory")


def parts_view(figures: Estimate) -> Markup:
    """The legend, folded: every part with its bytes, and what it is made of as its title."""
    parts = sorted(((term.key, _height(term, figures), term.how) for term in figures.terms), key=lambda part: -part[1])
    lines = (
        tag("li", tag("i", class_=f"part-{key}"), tag("span", say(f"part.{key}")), tag("b", gb_or_mb(size)),
            title=how or None)
        for key, size, how in (*parts, ("held", figures.held_bytes or 0, say("part.held.how"))) if size
    )  # fmt: skip
    note = tag("p", say("summary.parts.peak"), " ", leads_to("part-memory", say("glossary.choices")), class_="hint")
    return tag("details", tag("summary", say("summary.parts")), tag("ul", *lines, class_="legend"), note,
               class_="parts", data_keep="parts")  # fmt: skip


def verdict_words(figures: Estimate) -> str:
    """Fits, tight, does not fit, and by how much; the estimator's own sentence may name the amount already."""
    spare = (figures.free_bytes or 0) - figures.peak_bytes
    if figures.verdict != "fits" or spare <= _TINY or "spare" in figures.sentence:
        return figures.sentence
    return f"{figures.sentence} {say('summary.spare', size=gb_or_mb(spare))}"


def _height(term: MemoryPart, figures: Estimate) -> int:
    """A part's bytes when the run takes most: these add up to the need. Before they are known, its own height."""
    return term.at_peak if any(other.at_peak for other in figures.terms) else term.bytes


def _held(figures: Estimate) -> int:
    """What other programs hold of the card."""
    if figures.held_bytes is not None:
        return figures.held_bytes
    if figures.free_bytes is None or figures.total_bytes is None:
        return 0
    return max(0, figures.total_bytes - figures.free_bytes)


def gb_or_mb(size: int) -> str:
    """Memory as cards are sold: in units of 1024 bytes thrice."""
    return f"{size / (1 << 30):.1f} GB" if size >= (1 << 30) // 2 else f"{size / (1 << 20):.0f} MB"
