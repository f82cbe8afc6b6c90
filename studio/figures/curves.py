"""Pictures for pages that a script fills: lines over training steps and bars, as shapes in JSON.

A shape is ``[element, attributes, children...]``, a child a shape or a text; ``assets/js/dom.js`` draws them. Places
across are per cent of the picture's width, so that it is as wide as its card; heights are pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Shape = list[Any]
Points = Sequence[tuple[float, float]]
"""Steps and values, ascending."""
_HEIGHT, _TOP, _BOTTOM = 200, 18, 24
_LEAST = 0.0075
"""A scale shows at least this share on either side of nothing."""
_MOST = 0.5


@dataclass(frozen=True)
class Beside:
    """What a side lies apart from the others' mean, as shares of it over the steps: its ``mean``, and the ``ends`` of
    its single draws."""

    name: str
    mean: Points
    ends: Sequence[float]


def beside(sides: Sequence[Beside], band: Sequence[tuple[float, float, float]], allowed: float) -> Shape:
    """Each side's line, the others' own spread as a band (step, low, high), and what is allowed as two lines."""
    values = [value for side in sides for _, value in side.mean] + [end for side in sides for end in side.ends]
    values += [edge for _, low, high in band for edge in (low, high)] + [_LEAST, 1.2 * allowed]
    most = min(_MOST, 1.12 * max(map(abs, values)))
    last = max((step for step, *_ in band), default=1.0) or 1.0
    first = min((step for step, *_ in band), default=0.0)

    def x(step: float) -> float:
        return round(100 * (step - first) / max(1.0, last - first), 2)

    def y(value: float) -> float:
        inner = _HEIGHT - _TOP - _BOTTOM
        return round(_TOP + inner * (0.5 - min(max(value, -most), most) / (2 * most)), 1)

    # A nested picture is stretched across; lines in it keep their width (``vector-effect`` in the style sheet).
    stretched: Shape = ["svg", {"viewBox": f"0 0 100 {_HEIGHT}", "preserveAspectRatio": "none", "width": "100%",
                                "height": str(_HEIGHT)}]  # fmt: skip
    edges = [*((x(step), y(high)) for step, _, high in band), *((x(step), y(low)) for step, low, _ in reversed(band))]
    stretched.append(["polygon", {"class": "band", "points": _points(edges)}])
    stretched += [
        ["polyline", {"class": f"line side-{place}", "points": _points([(x(step), y(v)) for step, v in side.mean])}]
        for place, side in enumerate(sides)
    ]
    rules, words = zip(*_rules(y, allowed), strict=True)
    dots = [
        ["circle", {"class": f"dot side-{place}", "cx": "99%", "cy": f"{y(end)}", "r": "4"}]
        for place, side in enumerate(sides)
        for end in side.ends
    ]
    steps = [
        ["text", {"x": f"{across:g}%", "y": f"{_HEIGHT - 6}", "class": f"tick at-{edge}"}, f"{step:,.0f}"]
        for step, across in ((step, x(step)) for step, *_ in band)
        for edge in ["start" if across < 1 else "end" if across > 99 else "middle"]
    ]
    return _svg(_HEIGHT, *rules, stretched, *dots, *words, *steps)


def _rules(y: Any, allowed: float) -> Iterator[tuple[Shape, Shape]]:
    """Nothing, and what is allowed on either side of it, each with its words at the left."""
    for value, kind in ((allowed, "allowed"), (0.0, "zero"), (-allowed, "allowed")):
        words = f"{100 * value:+.1f}%".replace("-", "−") if value else "16 bits"
        line = ["line", {"class": kind, "x1": "0", "x2": "100%", "y1": f"{y(value)}", "y2": f"{y(value)}"}]
        yield line, ["text", {"class": "tick", "x": "0", "y": f"{y(value) - 4:.1f}"}, words]


def bars(values: Sequence[tuple[float, str]], most: float, place: int, height: int = 40) -> Shape:
    """Upright bars in a side's colour, each with its words beside the pointer."""
    width = 100 / max(len(values), 1)
    shapes: list[Shape] = []
    for number, (value, words) in enumerate(values):
        tall = max(1.0, height * min(max(value / most, 0.0), 1.0)) if most > 0 else 1.0
        where = {"x": f"{number * width + 0.1 * width:.2f}%", "width": f"{0.8 * width:.2f}%"}
        upright = {"y": f"{height - tall:.1f}", "height": f"{tall:.1f}"}
        shapes.append(["rect", {"class": f"strip side-{place}", **where, **upright}, ["title", {}, words]])
    return _svg(height, *shapes)


def _svg(height: int, *shapes: Shape) -> Shape:
    hidden: Mapping[str, str] = {"aria-hidden": "true", "focusable": "false"}
    return ["svg", {"class": "beside", "width": "100%", "height": str(height), **hidden}, *shapes]


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{across:g},{down:g}" for across, down in places)
