"""Pictures as shapes: they stay within their frame, whatever was measured."""

from __future__ import annotations

from typing import Any

import pytest

from studio.figures.curves import Beside, bars, beside


def heights(shape: Any) -> list[float]:
    """Every place down that a shape and its children have."""
    _, attributes, *children = shape
    found = [float(attributes[name]) for name in ("cy", "y", "y1", "y2") if name in attributes]
    found += [float(point.split(",")[1]) for point in attributes.get("points", "").split()]
    return found + [place for child in children if not isinstance(child, str) for place in heights(child)]


@pytest.mark.parametrize("share", [0.0, 0.004, -0.02, 3.0, -1.0])
def test_lines_stay_within_the_picture(share: float) -> None:
    side = Beside("fp8", [(50, share), (300, share / 2)], [share, -share, 0.0])
    picture = beside([side], [(50, -0.004, 0.004), (300, -0.004, 0.004)], 0.005)
    assert all(0 <= place <= 200 for place in heights(picture))
    words = [shape[2] for shape in picture[2:] if shape[0] == "text"]
    assert words == ["+0.5%", "16 bits", "−0.5%", "50", "300"]


def test_a_single_step_and_no_layer_can_be_drawn() -> None:
    assert beside([Beside("int8", [(3, 0.1)], [0.1])], [(3, 0.0, 0.0)], 0.005)
    assert bars([], 5.0, 0)[2:] == []
    assert [shape[1]["height"] for shape in bars([(2.5, "a"), (9.0, "b"), (0.0, "c")], 5.0, 0)[2:]] == [
        "20.0", "40.0", "1.0"]  # fmt: skip
