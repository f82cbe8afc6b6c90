"""What moved in the weights: a strip of layers for each kind of projection, and how many directions were used."""

import math
from collections.abc import Sequence

from core.report.schema import Matrix, Moved, Report
from studio.figures.pictures import bar, columns, heat, spectrum
from studio.pages.report.sections.tables import body, folded, missing, named, row, section, table
from studio.pages.report.view import number, percent
from studio.pages.report.words import say
from studio.shell.markup import Markup, join, tag

MOST_LAYERS = 200
"""Layers of the table of numbers; pictures show all."""


def moved(report: Report) -> Markup:
    """The section; what was not measured is said in its place."""
    part, title = report.moved, say("report.part.moved")
    if part is None:
        return section("moved", title, missing(report.part("moved")))
    told = [tag("p", tag("strong", sentence)) for sentence in part.told]
    others = tag("p", say("report.moved.others", count=f"{part.others:,}"), class_="hint") if part.others else None
    drawn = [strips(part), _numbers(part)] if part.matrices else []
    whole = (*told, tag("p", summary(part)), *drawn, others)
    return section("moved", title, missing(report.part("moved")), *whole)


def summary(part: Moved) -> str:
    """The size of the whole update in a sentence."""
    if part.relative is None:
        return say("report.moved.norm", norm=number(part.norm, 2))
    return say("report.moved.relative", share=percent(part.relative, 2), norm=number(part.norm, 2))


def size_of(one: Matrix) -> float:
    """‖ΔW‖ over ‖W‖ where it is known, else ‖ΔW‖."""
    return one.norm if one.relative is None else one.relative


def layer_norms(part: Moved) -> list[tuple[float, str]]:
    """‖ΔW‖ of each layer with its words: the root of the sum of its matrices' squares."""
    norms = dict.fromkeys(part.layers, 0.0)
    for one in part.matrices:
        if one.layer is not None:
            norms[one.layer] = math.hypot(norms[one.layer], one.norm)
    return [(norm, say("report.moved.layer", layer=layer, norm=number(norm, 3))) for layer, norm in norms.items()]


def strips(part: Moved) -> Markup:
    """One line a kind of projection: its layers as heat, and its directions."""
    layers, of_layers = part.layers, layer_norms(part)
    most = max((size_of(one) for one in part.matrices), default=0.0)
    ends = (f"{say('report.moved.one_layer')} {layers[0]}", f"{layers[-1]}") if len(layers) > 1 else ()
    axis = tag("span", *(tag("span", end) for end in ends), class_="layer-axis")
    head = (say("report.moved.projection"), axis, say("report.moved.rank"))
    total = columns(of_layers, max((norm for norm, _ in of_layers), default=0.0), 48)
    first = row(named(say("report.moved.layers"), say("report.moved.layers.about")), total, "")
    rows = [_strip([one for one in part.matrices if one.projection == name], layers, most) for name in part.projections]
    key = tag("p", say("report.moved.key", most=_written(most, part)), class_="hint")
    return join(table(say("report.part.moved"), head, body([first, *rows]), kind="drawn-rows strips"), key)


def _written(size: float, part: Moved) -> str:
    return number(size, 3) if any(one.relative is None for one in part.matrices) else percent(size, 2)


def _strip(matrices: Sequence[Matrix], layers: Sequence[int], most: float) -> Markup:
    """Several matrices of one kind in one layer (experts) are one cell: the strongest."""
    found: dict[int | None, Matrix] = {}
    for one in matrices:
        if one.layer not in found or size_of(one) > size_of(found[one.layer]):
            found[one.layer] = one
    cells = [(size_of(found[layer]), _words(found[layer])) if layer in found else (None, "") for layer in layers]
    alone = found.get(None)
    picture = heat(cells, most) if alone is None else bar(size_of(alone), most)
    middle = sorted(matrices, key=lambda one: one.effective_rank)[len(matrices) // 2]
    directions = number(middle.effective_rank, 1) if middle.directions is None else f"{middle.directions:,}"
    used = say("report.moved.used", used=directions, rank=f"{middle.rank:,}")
    ranks = tag("span", spectrum(middle.singular), tag("span", used, class_="ends"), class_="ranks")
    return row(named(matrices[0].projection), picture, ranks)


def _words(one: Matrix) -> str:
    size = number(one.norm, 3) if one.relative is None else percent(one.relative, 2)
    return say("report.moved.cell", module=one.module, size=size, used=number(one.effective_rank, 1))


def _numbers(part: Moved) -> Markup:
    """The same as numbers."""
    head = (say("report.moved.one_layer"), *part.projections)
    sizes = {(one.layer, one.projection): one for one in part.matrices}
    lines = (
        row(str(layer), *(_size(sizes.get((layer, name))) for name in part.projections))
        for layer in part.layers[:MOST_LAYERS]
    )
    return folded(say("report.as_table"), table(say("report.moved.table"), head, body(lines), kind="numbers"))


def _size(one: Matrix | None) -> str:
    if one is None:
        return ""
    return number(one.norm, 3) if one.relative is None else percent(one.relative, 2)
