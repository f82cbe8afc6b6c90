"""Small pictures as SVG: an axis, a change with its interval, shares, bars and heat.

Places are per cent of the picture's width, so that it is as wide as its cell without a script. Colours are classes of
``assets/report.css``; the numbers stand in words beside each picture, which assistive technology skips.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.report.schema import Figure
from studio.shell.markup import Markup, tag

_EDGE = 2.0
"""Per cent that an axis leaves free at each end, for marks that lie there."""
MOST = 1e12
"""What is larger is no reading."""
_MIDDLE = 13
"""Half the height in pixels of a picture in a row of a table."""


@dataclass(frozen=True)
class Axis:
    """A linear axis from ``low`` to ``high`` with a tick every ``step``."""

    low: float
    high: float
    step: float

    @classmethod
    def over(cls, values: Iterable[float | None]) -> Axis:
        """The axis on which all known values lie, with a little room at its ends; not below 0 where none of them is."""
        known = [value for value in values if value is not None and abs(value) <= MOST]
        least, most = (min(known), max(known)) if known else (0.0, 1.0)
        spread = most - least
        room = 0.04 * spread if spread > 1e-9 * max(1.0, abs(least)) else 0.5 * max(1.0, abs(least))
        low, high = least - room, most + room
        low = max(low, 0.0) if least >= 0 else low
        rough = (high - low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        return cls(low, high, next(power * times for times in (1, 2, 5, 10) if power * times >= rough))

    @property
    def ticks(self) -> list[float]:
        """The values with a tick, ascending: the step's multiples."""
        first, last = math.ceil(self.low / self.step - 1e-9), math.floor(self.high / self.step + 1e-9)
        return [number * self.step for number in range(first, last + 1)]

    def at(self, value: float) -> float:
        """Where a value lies, in per cent; one outside at the nearer end."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return _EDGE + share * (100 - 2 * _EDGE)

    def labels(self, share: bool = False) -> Markup:
        """The ticks' numbers, for the head of a column of pictures; of a ``share`` in per cent."""
        digits = len(f"{self.step:.6f}".rstrip("0").partition(".")[2])
        texts = (
            tag("text", written.replace("-", "−"), x=_per(self.at(value)), y="13", class_="tick")
            for value in self.ticks
            for written in [f"{100 * value:.0f}%" if share else f"{value:.{digits}f}"]
        )
        return _svg("picture axis", 18, *texts)

    def lines(self) -> list[Markup]:
        """The ticks as faint lines through a row."""
        return [_line(self.at(value), self.at(value), 0, 2 * _MIDDLE, "grid") for value in self.ticks]


def _svg(kind: str, height: int, *shapes: Markup) -> Markup:
    return tag("svg", *shapes, class_=kind, width="100%", height=height, aria_hidden="true", focusable="false")


def _per(value: float) -> str:
    return f"{value:.2f}%"


def _line(left: float, right: float, top: float, bottom: float, kind: str) -> Markup:
    return tag("line", x1=_per(left), x2=_per(right), y1=f"{top:g}", y2=f"{bottom:g}", class_=kind)


def change(axis: Axis, before: Figure | None, after: Figure | None, tone: str = "same") -> Markup:
    """From a hollow mark (before) to a full one (after), with the intervals of both; coloured by ``tone``."""
    shapes = axis.lines()
    if before and after:
        shapes.append(_line(axis.at(before.value), axis.at(after.value), _MIDDLE, _MIDDLE, "stretch"))
    for figure, kind, radius in ((before, "before", 4.5), (after, "after", 5.5)):
        if figure is None:
            continue
        if figure.low is not None and figure.high is not None:
            shapes.append(_line(axis.at(figure.low), axis.at(figure.high), _MIDDLE, _MIDDLE, f"range {kind}"))
        shapes.append(tag("circle", cx=_per(axis.at(figure.value)), cy=_MIDDLE, r=radius, class_=kind))
    return _svg(f"picture change tone-{tone}", 2 * _MIDDLE, *shapes)


def marks(axis: Axis, values: Sequence[tuple[float | None, str]], before: float | None = None) -> Markup:
    """Several runs' values on one axis, each with the class that colours it; ``before`` as a hollow mark."""
    shapes = axis.lines()
    if before is not None:
        shapes.append(tag("circle", cx=_per(axis.at(before)), cy=_MIDDLE, r="4.5", class_="before"))
    for value, kind in values:
        if value is not None:
            shapes.append(tag("circle", cx=_per(axis.at(value)), cy=_MIDDLE, r="5.5", class_=f"after {kind}"))
    return _svg("picture change", 2 * _MIDDLE, *shapes)


def shares(before: Figure | None, after: Figure | None, tone: str = "same") -> Markup:
    """Two bars from 0 to 1, before above after, with the second's interval."""
    shapes = []
    for figure, top, height, kind in ((before, 3, 7, "before"), (after, 12, 11, "after")):
        if figure is not None:
            shapes += [_bar(100.0, top, height, "ground"), _bar(100 * figure.value, top, height, kind)]
    if after is not None and after.low is not None and after.high is not None:
        shapes.append(_line(100 * after.low, 100 * after.high, 17.5, 17.5, "range"))
    return _svg(f"picture shares tone-{tone}", 2 * _MIDDLE, *shapes)


def _bar(width: float, top: float, height: float, kind: str) -> Markup:
    return tag("rect", x="0", y=f"{top:g}", width=_per(width), height=f"{height:g}", rx="2", class_=kind)


def bar(value: float, most: float, kind: str = "") -> Markup:
    """One bar from 0 to ``most``."""
    width = 100 * min(max(value / most, 0.0), 1.0) if most > 0 else 0.0
    shapes = _bar(100.0, 8, 10, "ground"), _bar(width, 8, 10, f"full {kind}".strip())
    return _svg("picture gauge", 2 * _MIDDLE, *shapes)


def columns(values: Sequence[tuple[float, str]], most: float, height: int = 64, kind: str = "") -> Markup:
    """Upright bars, each with the words that stand beside the pointer."""
    width = 100 / max(len(values), 1)
    shapes = []
    for place, (value, words) in enumerate(values):
        tall = max(1.0, height * min(max(value / most, 0.0), 1.0)) if most > 0 else 1.0
        shapes.append(
            tag("rect", tag("title", words), x=_per(place * width), y=f"{height - tall:.1f}", width=_per(width),
                height=f"{tall:.1f}", class_="column")
        )  # fmt: skip
    return _svg(f"picture columns {kind}{_fine(values)}", height, *shapes)


def heat(values: Sequence[tuple[float | None, str]], most: float) -> Markup:
    """A strip of cells, the strongest where the value is ``most``; None is left empty."""
    width = 100 / max(len(values), 1)
    shapes = []
    for place, (value, words) in enumerate(values):
        strength = 0.0 if value is None or most <= 0 else min(max(value / most, 0.0), 1.0)
        kind = "cell" if value is not None else "cell none"
        shapes.append(
            tag("rect", tag("title", words), x=_per(place * width), y="0", width=_per(width), height="100%",
                class_=kind, fill_opacity=f"{0.06 + 0.94 * strength:.3f}")
        )  # fmt: skip
    return _svg(f"picture heat{_fine(values)}", 2 * _MIDDLE, *shapes)


def _fine(values: Sequence[object]) -> str:
    """A class for many bars or cells, which have no edges."""
    return " fine" if len(values) > 48 else ""


def spectrum(singular: Sequence[float]) -> Markup:
    """Singular values beside the largest of them, descending."""
    first = singular[0] if singular else 0.0
    return columns([(value, "") for value in singular], first, 2 * _MIDDLE)
