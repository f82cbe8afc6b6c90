"""How long the rows are, the second panel of the Data block: a histogram under a slider that sets "Max length".

The slider's stops are the histogram's bins, ``n`` an octave (as many as make about forty in all)::

    2^k, 2^k · (1 + 1/n), …, 2^k · (1 + (n-1)/n), 2^(k+1), …

so that thumb, limit and bars share one scale. All numbers are the estimate's own: moving the slider writes the knob,
and the answer comes from the same arithmetic as the summary's.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import gradio as gr

from core.contract.data import DataFacts
from core.contract.estimate import Estimate
from studio.pages.new_run.data.sources import working_view
from studio.pages.new_run.form import KNOBS, Form
from studio.pages.new_run.view import View
from studio.pages.new_run.words import say
from studio.shell.markup import Markup, join, push, tag
from studio.shell.parts import board

_BINS = 48
_FINEST = 16
_LEAST = int(KNOBS["train.max_length"].minimum or 1)
_MOST = int(KNOBS["train.max_length"].maximum or 1 << 20)

# ── layout ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def layout(form: Form) -> None:
    """The empty panel. The slider's board is never replaced, so that it can be dragged; ``pages/new_run/slider.js``
    takes its stops from the picture."""
    with gr.Column(elem_id="panel-lengths", elem_classes="panel"):
        form.board("lengths-picture")
        slider = tag("input", type="range", id="length-slider", min="0", max="0", step="1", value="0",
                     data_words=say("lengths.slider.value"))  # fmt: skip
        label = tag("label", say("lengths.slider"), for_="length-slider", class_="sr-only")
        board(tag("div", label, slider, class_="length-slide"), elem_id="lengths-slider")
        form.board("lengths-figures")


# ── view ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def stops_of(shortest: int, longest: int) -> list[int]:
    """The slider's stops, ascending: from a power of two at or below the shortest row to one that holds all rows."""
    low = 1 << max(3, max(1, shortest).bit_length() - 1)
    high = min(_MOST, 1 << math.ceil(math.log2(max(longest, low * 2, _LEAST * 2))))
    octaves = (high // low).bit_length() - 1
    parts = min(low, _FINEST, max(4, 1 << int(math.log2(_BINS / octaves))))
    return [(low << octave) * (parts + part) // parts for octave in range(octaves) for part in range(parts)] + [high]


def lengths_view(view: View) -> tuple[Markup, Markup]:
    """The picture with its table, and what the limit means in numbers."""
    facts = view.facts
    if facts is None or not facts.lengths:
        words = "lengths.waiting" if view.waiting else "lengths.nothing"
        return tag("p", say(words), class_="quiet"), Markup()
    spread = spread_of(facts.lengths)
    picture = _picture(spread, view.config.train.max_length)
    if view.figures is None:
        return picture, Markup()
    return picture, join(_figures(view, facts, view.figures), _sample(view, facts), _table(spread))


@dataclass(frozen=True)
class Spread:
    """All lengths, ascending, and how they fall into bins."""

    ordered: tuple[int, ...]
    stops: tuple[int, ...]
    bars: tuple[int, ...]


@lru_cache(maxsize=16)
def spread_of(lengths: tuple[int, ...]) -> Spread:
    """Counted once for each file and tokenizer, so that a slider costs next to nothing."""
    ordered = tuple(sorted(lengths))
    stops = stops_of(ordered[0], ordered[-1])
    below = [bisect_right(ordered, stop) for stop in stops[:-1]] + [len(ordered)]
    bars = (count - before for count, before in zip(below, [0, *below], strict=False))
    return Spread(ordered, tuple(stops), tuple(bars))


def _picture(spread: Spread, limit: int) -> Markup:
    """The histogram with its limit and axis; its name says in words what it shows."""
    stops, ordered = spread.stops, spread.ordered
    name = say(
        "lengths.name", rows=f"{len(ordered):,}", shortest=f"{ordered[0]:,}", longest=f"{ordered[-1]:,}",
        half=f"{ordered[len(ordered) // 2]:,}", limit=f"{limit:,}",
        cut=f"{len(ordered) - bisect_right(ordered, limit):,}",
    )  # fmt: skip
    drawing = tag("svg", *_bars(spread.bars, stops, limit), role="img", aria_label=name, class_="histogram")
    line = tag("div", class_="limit", style=f"left:{100 * place(limit, stops):.2f}%", aria_hidden="true")
    octaves = [stop for stop in stops if stop & (stop - 1) == 0]
    ticks = (
        tag("span", f"{stop // 1024}k" if stop >= 1024 else stop, style=f"left:{100 * place(stop, stops):.2f}%")
        for stop in octaves[:: max(1, math.ceil(len(octaves) / 8))]
    )
    attributes = {"data-stops": ",".join(map(str, stops)), "data-first": bisect_left(stops, _LEAST)}
    plot, axis = tag("div", drawing, line, class_="plot"), tag("div", *ticks, class_="axis", aria_hidden="true")
    return tag("div", plot, axis, class_="lengths", data_limit=limit, **attributes)


def place(length: int, stops: Sequence[int]) -> float:
    """A length's place on the axis, from 0 to 1: a stop is its bin's right edge, linear in between."""
    index = bisect_left(stops, length)
    if index >= len(stops):
        return 1.0
    if index == 0:
        return length / stops[0] / len(stops)
    before = stops[index - 1]
    return (index + (length - before) / (stops[index] - before)) / len(stops)


def _bars(bars: Sequence[int], stops: Sequence[int], limit: int) -> list[Markup]:
    """Bars in per cent of the picture; those above the limit are marked as cut."""
    tallest, width = max(*bars, 1), 100 / len(bars)
    drawn = []
    for index, (count, stop) in enumerate(zip(bars, stops, strict=True)):
        if not count:
            continue
        height = max(1.5, 100 * count / tallest)
        over = "over" if stop > limit else "under"
        title = tag("title", say("lengths.bar", stop=f"{stop:,}", rows=f"{count:,}"))
        drawn.append(
            tag("rect", title, x=f"{index * width + 0.08 * width:.2f}%", y=f"{100 - height:.2f}%",
                width=f"{0.84 * width:.2f}%", height=f"{height:.2f}%", class_=over)
        )  # fmt: skip
    return drawn


def _table(spread: Spread) -> Markup:
    """The same numbers, an octave a line."""
    lines, total, told, before = [], 0, 0, 0
    for count, stop in zip(spread.bars, spread.stops, strict=True):
        total += count
        if stop & (stop - 1) == 0 or stop == spread.stops[-1]:
            cells = f"{total - told:,}", f"{100 * total / len(spread.ordered):.0f}%"
            lengths = tag("th", f"{before + 1:,} – {stop:,}", scope="row")
            lines.append(tag("tr", lengths, *(tag("td", cell) for cell in cells)))
            before, told = stop, total
    head = tag("tr", *(tag("th", say(f"lengths.table.{name}"), scope="col") for name in ("tokens", "rows", "upto")))
    table = tag("table", tag("thead", head), tag("tbody", *lines))
    return tag("details", tag("summary", say("lengths.table")), table, class_="as-table", data_keep="lengths-table")


def _figures(view: View, facts: DataFacts, figures: Estimate) -> Markup:
    whole = figures.tokens_per_epoch + figures.tokens_lost
    rows = [
        ("cut", say("lengths.of", part=f"{figures.rows_cut:,}", whole=f"{facts.rows:,}"), figures.rows_cut > 0),
        ("lost", _share(figures.tokens_lost, whole), figures.tokens_lost > 0),
        ("saved", _share(figures.padding_saved, figures.tokens_packed + figures.padding_saved), False),
        ("steps", f"{figures.steps_per_epoch:,}", False),
        ("tokens", f"{figures.tokens_per_epoch:,}", False),
    ]
    limit = tag("div", tag("dt", say("lengths.limit")), tag("dd", f"{view.config.train.max_length:,}"))
    drawn = (
        tag("div", tag("dt", say(f"lengths.{name}")), tag("dd", words), class_="warned" if warned else None)
        for name, words, warned in rows
    )
    return tag("dl", limit, *drawn, class_="length-figures")


def _sample(view: View, facts: DataFacts) -> Markup:
    """Says where lengths are of a sample only, with the button to count all rows."""
    if not facts.sampled:
        return Markup()
    if (counting := view.progress.get("count")) is not None:
        done, total = (*counting, 0, 0)[:2]
        return working_view(say("lengths.counting", done=f"{done:,}", total=f"{facts.rows:,}"), done, total, "count")
    note = tag("p", say("lengths.sampled", rows=f"{len(facts.lengths):,}"), class_="hint")
    words = say("lengths.count", rows=f"{facts.rows:,}")
    return join(note, push(words, "count"))


def _share(part: int, whole: int) -> str:
    if not part or not whole:
        return "0"
    share = 100 * part / whole
    return say("lengths.share", count=f"{part:,}", share="<1" if share < 1 else f"{share:.0f}")
