"""The run summary: does it fit, how long, how many steps, what is missing; and the words on Start."""

from __future__ import annotations

from core.contract.estimate import Estimate
from core.hardware import Machine
from studio.figures import bytes_words, duration
from studio.markup import Markup, fault, icon, join, tag
from studio.pages.new_run.desk import View
from studio.text import say

__all__ = ["start_words", "summary_view"]

_LEAST_SHARE = 0.004


def summary_view(view: View) -> Markup:
    """The summary's body."""
    parts: list[object] = [tag("h2", say("summary.title"))]
    if view.form_fault is not None:
        parts.append(fault(view.form_fault))
    if view.figures is not None:
        parts += [_memory(view.figures, view.machine), _facts(view, view.figures)]
    else:
        words = say("summary.waiting") if view.waiting else say("summary.nothing")
        parts.append(tag("p", words, class_="quiet"))
    missing = problems(view)
    if missing:
        parts.append(tag("ul", *(tag("li", icon("warning"), tag("span", line)) for line in missing), class_="missing"))
    if view.figures is not None:
        parts += [tag("p", note, class_="hint") for note in view.figures.notes if view.facts or view.waiting]
    return join(*parts)


def _memory(figures: Estimate, machine: Machine) -> Markup:
    room = max(figures.free_bytes or 0, figures.peak_bytes, 1)
    bars = tag(
        "div", *_pieces(figures, room), _limit(figures, room), class_="bar", role="img", aria_label=_bar_words(figures)
    )
    where = say("summary.memory.card" if machine.gpu else "summary.memory.ram")
    head = tag("div", tag("span", where), tag("b", bytes_of(figures)), class_="memory-head")
    legend = (
        tag("li", tag("i", class_=f"part-{term.key}"), tag("span", say(f"part.{term.key}")),
            tag("b", _gb_or_mb(term.bytes)), title=term.how)
        for term in sorted(figures.terms, key=lambda term: -term.bytes) if term.bytes
    )  # fmt: skip
    folded = tag("details", tag("summary", say("summary.parts")), tag("ul", *legend, class_="legend"), class_="parts")
    sentence = tag("p", icon("check" if figures.verdict == "fits" else "warning"), tag("span", figures.sentence),
                   class_=f"verdict {figures.verdict}")  # fmt: skip
    return tag("div", head, bars, sentence, folded, class_="memory")


def bytes_of(figures: Estimate) -> str:
    """Peak against free, as short as can be."""
    if figures.free_bytes is None:
        return _gb_or_mb(figures.peak_bytes)
    return say("summary.of", peak=_gb_or_mb(figures.peak_bytes), free=_gb_or_mb(figures.free_bytes))


def _pieces(figures: Estimate, room: int) -> list[Markup]:
    return [
        tag("span", class_=f"part-{term.key}", style=f"width:{100 * term.bytes / room:.2f}%")
        for term in figures.terms
        if term.bytes / room >= _LEAST_SHARE
    ]


def _limit(figures: Estimate, room: int) -> Markup | None:
    """Where the free memory ends, when the need goes beyond it."""
    if figures.free_bytes is None or figures.free_bytes >= room:
        return None
    return tag("em", style=f"left:{100 * figures.free_bytes / room:.2f}%")


def _bar_words(figures: Estimate) -> str:
    parts = ", ".join(f"{say(f'part.{term.key}')} {_gb_or_mb(term.bytes)}" for term in figures.terms if term.bytes)
    return f"{figures.sentence} {parts}"


def _gb_or_mb(size: int) -> str:
    return f"{size / (1 << 30):.1f} GB" if size >= (1 << 30) // 2 else f"{size / (1 << 20):.0f} MB"


def _facts(view: View, figures: Estimate) -> Markup:
    train = view.config.train
    length = say("summary.steps_of", steps=f"{figures.total_steps:,}", rows=f"{view.config.rows_per_step:,}")
    rows = [
        (say("summary.time"), time_words(figures)),
        (say("summary.steps"), length if figures.total_steps else "–"),
        (say("summary.passes"), _passes(view) if figures.total_steps else f"{train.num_train_epochs:g}"),
        (say("summary.tokens"), f"{figures.trained_tokens_per_epoch:,}" if figures.trained_tokens_per_epoch else "–"),
        (say("summary.disk"), bytes_words(figures.disk_bytes)),
    ]
    drawn = (tag("div", tag("dt", name), tag("dd", words)) for name, words in rows)
    basis = tag("p", say("summary.basis", basis=figures.time_basis), class_="hint") if figures.seconds else None
    return join(tag("dl", *drawn, class_="figures"), basis)


def _passes(view: View) -> str:
    figures, facts = view.figures, view.facts
    if figures is None or facts is None or not view.config.train.max_steps:
        return f"{view.config.train.num_train_epochs:g}"
    return f"{figures.total_steps * view.config.rows_per_step / max(facts.rows, 1):.1f}"


def time_words(figures: Estimate) -> str:
    """The time as a range, or a dash where nothing is known of this device."""
    if figures.seconds is None:
        return "–"
    low, high = (duration(second) for second in figures.seconds)
    return say("summary.about", time=low) if low == high else say("summary.range", low=low, high=high)


def problems(view: View) -> list[str]:
    """What stands in the way of Start, a line each."""
    found = []
    if not view.config.data.path:
        found.append(say("missing.data"))
    elif view.data_fault is not None:
        found.append(say("missing.readable"))
    elif view.report is not None and not view.report.usable:
        found.append(say("missing.rows"))
    elif view.facts is not None and not sum(view.facts.trained):
        found.append(say("missing.trained"))
    if not view.config.model.name:
        found.append(say("missing.model"))
    elif view.model_fault is not None:
        found.append(say("missing.usable_model"))
    return found


def start_words(view: View) -> tuple[str, bool]:
    """The Start button's label, and whether it can be pressed."""
    if view.form_fault is not None:
        return say("start.mend"), False
    if missing := problems(view):
        return missing[0], False
    if view.figures is not None and view.figures.seconds is not None:
        return say("start.about", time=duration(sum(view.figures.seconds) / 2)), True
    return say("start.now"), True
