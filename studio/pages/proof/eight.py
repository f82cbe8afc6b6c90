"""8-bit arithmetic on the proof page: a sentence a side, its held-out loss beside that of 16 bits, and how far the
gradients of each layer are turned. The figures are ``core.bench.parity_eight``'s."""

import math
from collections.abc import Sequence
from typing import Any

from core.contract.weight_forms import DEFAULT_ARITHMETIC, HELD_OUT_SHARE
from studio.figures.curves import Beside, bars, beside
from studio.pages.proof.words import say

Told = dict[str, Any]
_MOST_LAYERS = 400
_MOST_DEGREES = 5.0
"""The scale of a layer's angle, unless one is larger."""


def verdict_of(result: Told) -> tuple[str, str]:
    """What is proven, and its tone."""
    proven = [name for name, found in result["verdicts"].items() if found["agrees"]]
    if not proven:
        return say("proof.eight.none"), "bad"
    return say("proof.eight.proven", names=say("proof.eight.and").join(proven)), "good"


def note_of(result: Told) -> str:
    """A paragraph a side."""
    return "\n".join(_sentence(name, found, result["steps"]) for name, found in result["verdicts"].items())


def _sentence(name: str, found: Told, steps: int) -> str:
    if found["share"] is None:
        return say("proof.eight.lost", name=name)
    share = float(found["share"])
    far = say("proof.eight.higher" if share > 0 else "proof.eight.lower", share=_per_cent(abs(share)))
    key = "agrees" if found["agrees"] else "apart" if abs(share) > HELD_OUT_SHARE else "worst"
    loss = say(f"proof.eight.{key}", name=name, steps=f"{steps:,}", far=far, worst=_per_cent(found["worst"]),
               spread=_per_cent(found["spread"]), allowed=_per_cent(HELD_OUT_SHARE))  # fmt: skip
    told = found.get("answers")  # older results have none
    if not told:
        return loss
    eight, sixteen = (_either(told[side]) for side in ("eight", "sixteen"))
    return f"{loss} {say('proof.eight.answers', asked=told['asked'], eight=eight, sixteen=sixteen)}"


def table_of(result: Told) -> tuple[list[str], list[list[str]]]:
    """Every measured step's held-out losses, a column a training."""
    curves = {name: dict(map(tuple, curve)) for name, curve in result["curves"].items()}
    steps = sorted({step for curve in curves.values() for step in curve})
    head = [say("proof.eight.step"), *curves]
    return head, [[f"{step:,}", *(_loss(curve.get(step)) for curve in curves.values())] for step in steps]


def picture_of(result: Told) -> Told | None:
    """Its parts for the page; None where there is nothing to draw."""
    draws: dict[str, list[dict[float, float]]] = {}
    for name, curve in result["curves"].items():
        known = {step: loss for step, loss in curve if step and isinstance(loss, int | float) and math.isfinite(loss)}
        draws.setdefault(result["sides"][name], []).append(known)
    sixteen = draws.pop(DEFAULT_ARITHMETIC)
    steps = sorted(step for step in sixteen[0] if all(step in curve for curve in sixteen))
    means = {step: sum(curve[step] for curve in sixteen) / len(sixteen) for step in steps}
    band = [(step, *_ends([curve[step] / means[step] - 1 for curve in sixteen])) for step in steps if means[step]]
    sides = []
    for name, curves in draws.items():
        whole = [step for step in steps if all(step in curve for curve in curves)]
        line = [(step, sum(curve[step] for curve in curves) / len(curves) / means[step] - 1) for step in whole]
        if line:
            sides.append(Beside(name, line, [curve[whole[-1]] / means[whole[-1]] - 1 for curve in curves]))
    if not band or not sides:
        return None
    return {
        "title": say("proof.eight.picture"),
        "lines": beside(sides, band, HELD_OUT_SHARE),
        "legend": [
            ["band", say("proof.eight.spread")],
            *([f"side-{at}", say("proof.eight.side", name=side.name)] for at, side in enumerate(sides)),
        ],
        "layers": [_layers(at, side.name, result["verdicts"][side.name]["cosines"]) for at, side in enumerate(sides)],
    }


def _layers(place: int, name: str, cosines: list[float]) -> Told:
    degrees = [math.degrees(math.acos(min(1.0, max(-1.0, cosine)))) for cosine in cosines[:_MOST_LAYERS]]
    said = [
        (angle, say("proof.eight.layer", number=number, degrees=f"{angle:.1f}", cosine=f"{cosine:.4f}"))
        for number, (angle, cosine) in enumerate(zip(degrees, cosines, strict=False), start=1)
    ]
    worst = say("proof.eight.turned", name=name, degrees=f"{max(degrees, default=0.0):.1f}",
                cosine=f"{min(cosines, default=1.0):.4f}")  # fmt: skip
    return {"words": worst, "bars": bars(said, max(_MOST_DEGREES, *degrees) if degrees else _MOST_DEGREES, place)}


def _either(counts: list[int]) -> str:
    """What three seeds gave: "38", or "36 to 39"."""
    low, high = _ends(counts)
    return f"{low:,}" if low == high else say("proof.eight.range", low=f"{low:,}", high=f"{high:,}")


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _per_cent(share: float) -> str:
    return f"{100 * share:.2f}%"


def _loss(value: Any) -> str:
    return say("proof.eight.unknown") if value is None else f"{value:.5f}"
