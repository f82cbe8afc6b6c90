"""The memory budget in the run summary: one stacked bar over the whole card, in pictures and in words.

    |▒▒ held by others ▒▒|█ model █|█ activations █| … |        free        |
                         0 ────────── the need ─────▲    free memory ends ──▲

What other programs hold stands apart, and the need is laid into what is free. Where it is more than that, the bar is as
long as the need, and a line says where the memory ends.
"""

from __future__ import annotations

from core.contract.estimate import Estimate, MemoryPart
from core.machine.hardware import Machine
from studio.shell.explained import leads_to
from studio.shell.markup import Markup, icon, tag
from studio.words.text import say

__all__ = ["budget_view", "gb_or_mb", "parts_view"]

_LEAST_SHARE = 0.004
_TINY = 1 << 20


def budget_view(figures: Estimate, machine: Machine) -> Markup:
    """Bar and verdict."""
    bar = tag("div", *_pieces(figures), _limit(figures), class_="bar", role="img", aria_label=_bar_words(figures))
    where = say("summary.memory.card" if machine.gpu else "summary.memory.ram")
    head = tag("div", tag("span", where), tag("b", _against(figures)), class_="memory-head")
    picture = icon("check" if figures.verdict == "fits" else "warning")
    verdict = tag("p", picture, tag("span", verdict_words(figures)), class_=f"verdict {figures.verdict}")
    return tag("div", head, bar, verdict, class_="memory")


def parts_view(figures: Estimate) -> Markup:
    """The legend, folded: every part with its bytes, and what it is made of as its title."""
    terms = sorted(figures.terms, key=lambda term: -_height(term, figures))
    lines = [_line(f"part-{term.key}", say(f"part.{term.key}"), _height(term, figures), term.how) for term in terms
             if _height(term, figures)]  # fmt: skip
    if figures.held_bytes:
        lines.append(_line("part-held", say("part.held"), figures.held_bytes, say("part.held.how")))
    note = tag("p", say("summary.parts.peak"), " ", leads_to("part-memory", say("glossary.choices")), class_="hint")
    return tag("details", tag("summary", say("summary.parts")), tag("ul", *lines, class_="legend"), note,
               class_="parts", data_keep="parts")  # fmt: skip


def verdict_words(figures: Estimate) -> str:
    """Fits, tight, does not fit, and by how much."""
    if figures.free_bytes is None or figures.verdict == "unknown":
        return figures.sentence
    spare = figures.free_bytes - figures.peak_bytes
    return (
        f"{figures.sentence} {say('summary.spare', size=gb_or_mb(spare))}"
        if _wants_spare(figures, spare)
        else (figures.sentence)
    )


def _wants_spare(figures: Estimate, spare: int) -> bool:
    """The estimator's own sentence may name the amount already."""
    return figures.verdict == "fits" and spare > _TINY and "spare" not in figures.sentence


def _against(figures: Estimate) -> str:
    if figures.free_bytes is None:
        return gb_or_mb(figures.peak_bytes)
    return say("summary.of", peak=gb_or_mb(figures.peak_bytes), free=gb_or_mb(figures.free_bytes))


def _height(term: MemoryPart, figures: Estimate) -> int:
    """A part's bytes when the run takes most: these add up to the need. Before they are known, its own height."""
    return term.at_peak if any(other.at_peak for other in figures.terms) else term.bytes


def _held(figures: Estimate) -> int:
    if figures.held_bytes is not None:
        return figures.held_bytes
    if figures.free_bytes is None or figures.total_bytes is None:
        return 0
    return max(0, figures.total_bytes - figures.free_bytes)


def _room(figures: Estimate) -> int:
    """What the whole bar stands for."""
    held = _held(figures)
    return max(figures.total_bytes or 0, held + (figures.free_bytes or 0), held + figures.peak_bytes, 1)


def _pieces(figures: Estimate) -> list[Markup]:
    room, held = _room(figures), _held(figures)
    pieces = [("part-held", held), *((f"part-{term.key}", _height(term, figures)) for term in figures.terms)]
    return [
        tag("span", class_=name, style=f"width:{100 * size / room:.2f}%")
        for name, size in pieces
        if size / room >= _LEAST_SHARE
    ]


def _limit(figures: Estimate) -> Markup | None:
    """Where the free memory ends, when the need goes beyond it."""
    room, held = _room(figures), _held(figures)
    if figures.free_bytes is None or held + figures.free_bytes >= room:
        return None
    return tag("em", style=f"left:{100 * (held + figures.free_bytes) / room:.2f}%")


def _bar_words(figures: Estimate) -> str:
    sizes = [(say(f"part.{term.key}"), _height(term, figures)) for term in figures.terms]
    held = [(say("part.held"), _held(figures))]
    parts = ", ".join(f"{name} {gb_or_mb(size)}" for name, size in [*sizes, *held] if size)
    return f"{verdict_words(figures)} {parts}"


def _line(name: str, words: str, size: int, how: str) -> Markup:
    return tag("li", tag("i", class_=name), tag("span", words), tag("b", gb_or_mb(size)), title=how or None)


def gb_or_mb(size: int) -> str:
    """Memory as cards are sold: in units of 1024 bytes thrice."""
    return f"{size / (1 << 30):.1f} GB" if size >= (1 << 30) // 2 else f"{size / (1 << 20):.0f} MB"
