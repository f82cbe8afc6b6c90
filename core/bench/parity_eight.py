"""Compares training with 8-bit products and with 16-bit ones: ``parity --arithmetic fp8``.

Both train the same rows from the same weights, each in three draws of the adapter and of the rows' order. Rounding to
8 bits is no error of a kernel that has to vanish: what counts is what becomes of the model. So the verdict looks at the
held-out loss after the last step (measured in 16 bits on both sides)::

    share = |mean of 8 bits - mean of 16 bits| / mean of 16 bits  <=  0.5 %

and the table shows it beside 16 bits' own spread over the draws, with every tenth step's loss.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from core.bench.children import Outcome, Runner, measure_all
from core.bench.parity import EVERY
from core.bench.report import MACHINE, command_of, markdown, shown
from core.bench.setting import Setting, check
from core.contract.errors import RunError
from core.contract.weight_forms import DEFAULT_ARITHMETIC

DRAWS = 3
HELD_OUT_SHARE = 0.005


def settings_of(base: Setting) -> dict[str, Setting]:
    """Every side by its name."""
    return {
        f"{arithmetic} {draw + 1}": check(replace(base, arithmetic=arithmetic, draw=draw))
        for arithmetic in (base.arithmetic, DEFAULT_ARITHMETIC)
        for draw in range(DRAWS)
    }


def side_by_side(base: Setting, run: Runner, jobs: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Trains all of them, ``jobs`` at a time, and compares.

    Raises:
        RunError: one of them failed.
    """
    settings = settings_of(base)
    outcomes = measure_all(settings, run, jobs, say, max(1, base.total_steps // 6))
    failed = [f"{name}: {outcome.error}" for name, outcome in outcomes.items() if outcome.result is None]
    if failed:
        raise RunError("bench.parity", failed="; ".join(failed))
    return compare(base.arithmetic, settings, outcomes)


def compare(arithmetic: str, settings: Mapping[str, Setting], outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """The table and the verdict. A loss that is not finite fails it."""
    results = {name: outcome.result for name, outcome in outcomes.items() if outcome.result is not None}
    some, held = next(iter(results.values())), {name: result["held_out_loss"] for name, result in results.items()}
    eight, sixteen = (
        [held[name] for name in results if settings[name].arithmetic == one] for one in (arithmetic, DEFAULT_ARITHMETIC)
    )
    finite = all(loss is not None and math.isfinite(loss) for loss in held.values())
    means = [sum(losses) / len(losses) for losses in (eight, sixteen)] if finite else [None, None]
    share = abs(means[0] - means[1]) / means[1] if means[0] is not None and means[1] else None
    steps = min(len(result["losses"]) for result in results.values())
    tenths = range(EVERY, steps + 1, EVERY) or [steps]
    return {
        "bench": "parity",
        "arithmetic": arithmetic,
        "commands": {name: command_of(setting) for name, setting in settings.items()},
        **{name: some[name] for name in MACHINE},
        "plans": {name: result["plan"] for name, result in results.items()},
        "steps": steps,
        "held_out": {
            "losses": held, "eight": means[0], "sixteen": means[1], "share": share,
            "sixteen_spread": max(sixteen) - min(sixteen) if finite else None,
        },
        "seconds_a_step": {name: result["seconds_a_step"] for name, result in results.items()},
        "agrees": share is not None and share <= HELD_OUT_SHARE,
        "table": [{"step": step, "losses": {n: r["losses"][step - 1] for n, r in results.items()}} for step in tenths],
        "losses": {name: result["losses"] for name, result in results.items()},
    }  # fmt: skip


def table(result: dict[str, Any]) -> str:
    """A Markdown table of every tenth step, and the verdict."""
    names, held = list(result["losses"]), result["held_out"]
    rows = [(row["step"], *(shown(row["losses"][name], 5) for name in names)) for row in result["table"]]
    lines = [markdown(("step", *names), rows), ""]
    if held["share"] is None:
        return "\n".join([*lines, "held out  DIFFERS: a loss is not finite, or nothing was held out"])
    word = "agrees" if result["agrees"] else "DIFFERS"
    lines.append(
        f"held out  {word}: {result['arithmetic']} {held['eight']:.5f}, 16-bit {held['sixteen']:.5f}, "
        f"{held['share']:.3%} apart (allowed: {HELD_OUT_SHARE:.1%}; 16-bit's own draws lie "
        f"{held['sixteen_spread'] / held['sixteen']:.3%} apart)"
    )
    return "\n".join(lines)
