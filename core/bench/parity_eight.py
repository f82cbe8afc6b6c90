"""Compares training with 8-bit products and with 16-bit ones: ``parity --arithmetic fp8`` (or ``fp8,int8``).

All train the same rows from the same weights, each in three draws of the adapter and of the rows' order. Rounding to
8 bits is no error of a kernel that has to vanish: what counts is what becomes of the model. So the verdict looks at the
held-out loss after the last step (measured in 16 bits on all sides)::

    share = (mean of 8 bits - mean of 16 bits) / mean of 16 bits          within 0.5 %
    worst = max over draws |8 bits - 16 bits| / 16 bits                   within 0.5 %, or 16 bits' own spread

as ``core.contract.weight_forms.Evidence`` has it, by which "auto" goes too. The table shows every tenth step's loss,
the held-out loss on the way, and how far the gradients of each layer are turned. A model folder's sides also answer
the held-out rows of a file; how many answers are the rows' own, word for word, is told and not judged: of forty
answers one more or less says little.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.bench.children import Outcome, Runner, measure_all
from core.bench.parity import EVERY
from core.bench.report import MACHINE, command_of, markdown, shown
from core.bench.setting import Setting, check
from core.contract.errors import RunError
from core.contract.weight_forms import DEFAULT_ARITHMETIC, HELD_OUT_SHARE, Evidence

DRAWS = 3
MEASURED = 6
"""How often the held-out rows are measured on the way."""


def asked(base: Setting) -> list[str]:
    """The arithmetics that ``--arithmetic`` names, with commas between."""
    return [name for name in base.arithmetic.split(",") if name != DEFAULT_ARITHMETIC]


def settings_of(base: Setting) -> dict[str, Setting]:
    """Every side by its name; those of 16 bits come last."""
    every = max(1, base.total_steps // MEASURED)
    return {
        f"{arithmetic} {draw + 1}": check(
            replace(base, arithmetic=arithmetic, draw=draw, evaluate_every=every, effects=True)
        )
        for arithmetic in (*asked(base), DEFAULT_ARITHMETIC)
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
    return compare(settings, outcomes)


def compare(settings: Mapping[str, Setting], outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """The table and the verdicts. A loss that is not finite fails its side."""
    results = {name: outcome.result for name, outcome in outcomes.items() if outcome.result is not None}
    some = next(iter(results.values()))
    sides: dict[str, list[str]] = {}
    for name in results:
        sides.setdefault(settings[name].arithmetic, []).append(name)
    held = {name: result["held_out_loss"] for name, result in results.items()}
    exact = sides.pop(DEFAULT_ARITHMETIC)
    sixteen = [held[name] for name in exact]
    verdicts = {
        arithmetic: {
            **_verdict([held[name] for name in names], sixteen),
            "cosines": results[names[0]]["cosines"],
            "answers": _answers(
                [results[name]["answers"] for name in names], [results[name]["answers"] for name in exact]
            ),
            "seconds_a_step": results[names[0]]["seconds_a_step"],
        }
        for arithmetic, names in sides.items()
    }
    steps = min(len(result["losses"]) for result in results.values())
    tenths = range(EVERY, steps + 1, EVERY) or [steps]
    return {
        "bench": "parity",
        "commands": {name: command_of(setting) for name, setting in settings.items()},
        **{name: some[name] for name in MACHINE},
        "plans": {name: result["plan"] for name, result in results.items()},
        "steps": steps,
        "sides": {name: settings[name].arithmetic for name in results},
        "verdicts": verdicts,
        "held_out": held,
        "curves": {name: result["held_out_curve"] for name, result in results.items()},
        "seconds_a_step": {name: result["seconds_a_step"] for name, result in results.items()},
        "agrees": all(verdict["agrees"] for verdict in verdicts.values()),
        "table": [{"step": step, "losses": {n: r["losses"][step - 1] for n, r in results.items()}} for step in tenths],
        "losses": {name: result["losses"] for name, result in results.items()},
    }


def _verdict(eight: Sequence[float | None], sixteen: Sequence[float | None]) -> dict[str, Any]:
    """Means, and the shares of ``Evidence``; null where a loss is not finite."""
    known = [loss for loss in (*eight, *sixteen) if loss is not None and math.isfinite(loss) and loss > 0]
    names = ("eight", "sixteen", "share", "worst", "spread")
    if len(known) < len(eight) + len(sixteen):
        return {**dict.fromkeys(names), "agrees": False}
    mine, theirs = known[: len(eight)], known[len(eight) :]
    means = sum(mine) / len(mine), sum(theirs) / len(theirs)
    worst = max(abs(one - other) / other for one, other in zip(mine, theirs, strict=True))
    found = Evidence((means[0] - means[1]) / means[1], worst, (max(theirs) - min(theirs)) / means[1], "")
    values = (*means, found.share, found.worst, found.spread)
    return {**dict(zip(names, values, strict=True)), "agrees": found.allows}


def _answers(eight: Sequence[Any], sixteen: Sequence[Any]) -> dict[str, Any] | None:
    """How many answers each draw gives word for word, of so many; None where nothing was asked."""
    if not all(told and told["asked"] for told in (*eight, *sixteen)):
        return None
    right = {"eight": [told["right"] for told in eight], "sixteen": [told["right"] for told in sixteen]}
    return {"asked": eight[0]["asked"], **right}


def table(result: dict[str, Any]) -> str:
    """A Markdown table of every tenth step, and the verdicts."""
    names = list(result["losses"])
    rows = [(row["step"], *(shown(row["losses"][name], 5) for name in names)) for row in result["table"]]
    lines = [markdown(("step", *names), rows), ""]
    for arithmetic, found in result["verdicts"].items():
        if found["share"] is None:
            lines.append(f"held out  DIFFERS: a loss of {arithmetic} is not finite, or nothing was held out")
            continue
        word = "agrees" if found["agrees"] else "DIFFERS"
        lines.append(
            f"held out  {word}: {arithmetic} {found['eight']:.5f}, 16-bit {found['sixteen']:.5f}, "
            f"{found['share']:+.3%} (allowed: {HELD_OUT_SHARE:.1%}), {found['worst']:.3%} in the worst draw "
            f"(16-bit's own lie {found['spread']:.3%} apart)"
        )
        if turned := found["cosines"]:
            said = ", ".join(f"{cosine:.4f}" for cosine in turned)
            lines.append(f"gradients {arithmetic}: cosine with those of 16 bits, layer by layer: {said}")
        if told := found["answers"]:
            lines.append(
                f"answers   {arithmetic}: {told['eight']} of {told['asked']} held-out rows word for word, "
                f"16-bit {told['sixteen']}"
            )
    return "\n".join(lines)
