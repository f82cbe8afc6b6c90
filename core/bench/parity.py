"""Compares the losses of fast and plain training on the same rows from the same weights.

Plain training runs several times with different batch sizes (all rows of a step at once, halves, quarters, ...). These
are mathematically one step, so their differences are plain's own rounding error::

    spread(k)   = max_ij |p_i(k) - p_j(k)|        between the plain runs, at step k
    distance(k) = max_i  |f(k)  - p_i(k)|         of the fast run from the furthest plain run

Fast agrees when at every tenth step its distance is at most 1.5 × plain's largest spread at any tenth step (plus
ε · loss, ε = 2⁻²³, the resolution of plain's float32 losses) and its final held-out loss lies within 0.3 % of plain's
mean. Steps within 1.5 × their own spread are counted as well.

The plain runs share a 16-bit rounding that the spread does not show. Where fast exceeds the bound, plain therefore
trains once more in float32 up to the last such step, and the table says which is nearer to it. The verdict stays.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from core.bench.children import Outcome, Runner, measure_all
from core.bench.report import MACHINE, command_of, markdown, shown
from core.bench.setting import Setting, check
from core.contract.errors import RunError

FACTOR = 1.5
HELD_OUT_SHARE = 0.003
EVERY = 10
EPSILON = 2.0**-23
WAYS = (1, 2, 4, 8)
"""Accumulations of the plain runs, where they divide the rows of a step."""
JUDGE = "plain in float32"


def settings_of(base: Setting) -> dict[str, Setting]:
    """The fast run and the plain runs by name; all get the same rows at each step."""
    rows = base.rows_a_step
    checkpointing = "none" if base.checkpointing == "none" else "recompute"
    sides = {"fast": base}
    for accumulation in WAYS:
        if rows % accumulation == 0:
            way = replace(
                base, plain=True, batch=rows // accumulation, accumulation=accumulation, checkpointing=checkpointing,
                kernels="auto", loss="auto", tokens_per_pass=0,
            )  # fmt: skip
            sides[f"plain {way.batch}x{accumulation}"] = way
    return {name: check(setting) for name, setting in sides.items()}


def side_by_side(
    base: Setting, run: Runner, jobs: int, say: Callable[[str], None],
    keep: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:  # fmt: skip
    """Trains all of them, ``jobs`` at a time, and compares.

    Args:
        keep: gets the verdict before plain is trained in float32.

    Raises:
        RunError: one of them failed.
    """
    settings = settings_of(base)
    every = max(1, base.total_steps // 6)
    outcomes = measure_all(settings, run, jobs, say, every)
    failed = [f"{name}: {outcome.error}" for name, outcome in outcomes.items() if outcome.result is None]
    if failed:
        raise RunError("bench.parity", failed="; ".join(failed))
    result = compare(settings, outcomes)
    keep(result)
    judge = judge_of(result, settings)
    return judged_by(result, judge, measure_all({JUDGE: judge}, run, 1, say, every)[JUDGE]) if judge else result


def judge_of(result: dict[str, Any], settings: Mapping[str, Setting]) -> Setting | None:
    """Plain in float32, with the smallest batch, up to the last step at which fast lies outside.

    None where no step is outside, training is in float32 already, or there is no card.
    """
    way = list(settings.values())[-1]
    if not result["outside"] or way.dtype == "float32" or result["capability"] is None:
        return None
    return check(replace(way, dtype="float32", until=result["outside"][-1], warm_up=0, steps=way.total_steps))


def judged_by(result: dict[str, Any], judge: Setting, outcome: Outcome) -> dict[str, Any]:
    """``result`` with plain's float32 losses, and at how many of the outside steps fast is nearer to them."""
    losses: list[float | None] = outcome.result["losses"] if outcome.result else []
    rows = []
    for row in result["table"]:
        judged = losses[row["step"] - 1] if row["step"] <= len(losses) else None
        fast_nearer = None  # not known
        if judged is not None and row["distance"] is not None:
            away = {name: abs(loss - judged) for name, loss in row["losses"].items()}
            fast_nearer = away.pop("fast") < min(away.values())
        rows.append({**row, "judge": judged, "fast_nearer": fast_nearer})
    nearer = sum(bool(row["fast_nearer"]) for row in rows if row["step"] in result["outside"])
    told = {"command": command_of(judge), "losses": losses, "error": outcome.error}
    return {**result, "table": rows, "judge": told, "outside_and_nearer": nearer}


def compare(settings: Mapping[str, Setting], outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """The table and the verdict. A loss that is not finite fails it."""
    results = {name: outcome.result for name, outcome in outcomes.items() if outcome.result is not None}
    losses: dict[str, list[float | None]] = {name: result["losses"] for name, result in results.items()}
    steps = min(len(values) for values in losses.values())
    tenths = range(EVERY, steps + 1, EVERY) or [steps]  # of fewer than ten the last
    rows = [_at(step, losses) for step in tenths]
    known = [row for row in rows if row["distance"] is not None]
    largest: float | None = max((row["spread"] for row in known), default=None)
    worst: float | None = max((row["distance"] for row in known), default=None)
    held_out = _held_out({name: result["held_out_loss"] for name, result in results.items()})
    complete = worst is not None and largest is not None and len(known) == len(rows)
    resolution = EPSILON * max((abs(loss) for row in known for loss in row["losses"].values()), default=0.0)
    allowed = FACTOR * (largest or 0.0) + resolution
    losses_agree = complete and (worst or 0.0) <= allowed
    some = next(iter(results.values()))
    return {
        "bench": "parity",
        "commands": {name: command_of(setting) for name, setting in settings.items()},
        **{name: some[name] for name in MACHINE},
        "plans": {name: result["plan"] for name, result in results.items()},
        "steps": steps,
        "plain_largest_spread": largest,
        "fast_largest_distance": worst,
        "resolution": resolution,
        "ratio": worst / largest if worst is not None and largest else None,
        "allowed_ratio": FACTOR,
        "tenth_steps": len(rows),
        "tenth_steps_within_their_own_spread": sum(row["distance"] <= FACTOR * row["spread"] for row in known),
        "outside": [row["step"] for row in known if row["distance"] > allowed],
        "held_out": held_out,
        "losses_agree": losses_agree,
        "agrees": losses_agree and held_out["agrees"] is not False,
        "table": rows,
        "losses": {name: result["losses"] for name, result in results.items()},
    }


def table(result: dict[str, Any]) -> str:
    """A Markdown table of every tenth step, and the verdict."""
    names, judged = list(result["losses"]), "judge" in result
    rows = [
        (
            row["step"],
            *(shown(row["losses"][name], 5) for name in names),
            _small(row["spread"]),
            _small(row["distance"]),
            *([shown(row["judge"], 5)] if judged else []),
        )
        for row in result["table"]
    ]
    held = result["held_out"]
    header = ("step", *names, "plain's spread", "fast's distance", *([JUDGE] if judged else []))
    lines = [markdown(header, rows), ""]
    lines.append(
        f"losses    {'agree' if result['losses_agree'] else 'DIFFER'}: fast at most "
        f"{_small(result['fast_largest_distance'])} from plain, plain at most "
        f"{_small(result['plain_largest_spread'])} from itself (allowed: {FACTOR} ×)"
    )
    if judged and result["judge"]["error"]:
        lines.append(f"          {JUDGE} could not be trained: {result['judge']['error']}")
    elif judged:
        count, steps = len(result["outside"]), ", ".join(map(str, result["outside"]))
        nearer = f"nearer to {JUDGE} than plain is at {result['outside_and_nearer']} of {count}"
        lines.append(f"          outside at step {steps}: {nearer}")
    if held["agrees"] is not None:
        word = "agrees" if held["agrees"] else "DIFFERS"
        lines.append(
            f"held out  {word}: fast {held['fast']:.5f}, plain {held['plain_mean']:.5f}, {held['share']:.3%} apart "
            f"(allowed: {HELD_OUT_SHARE:.1%})"
        )
    return "\n".join(lines)


def _at(step: int, losses: Mapping[str, list[float | None]]) -> dict[str, Any]:
    """One row of the table; spread and distance are None where a loss is not finite."""
    there = {name: values[step - 1] for name, values in losses.items()}
    finite = {name: value for name, value in there.items() if value is not None and math.isfinite(value)}
    row = {"step": step, "losses": {name: finite.get(name) for name in there}, "spread": None, "distance": None}
    if len(finite) < len(there):
        return row
    plain = [value for name, value in finite.items() if name != "fast"]
    distance = max(abs(finite["fast"] - value) for value in plain)
    return {**row, "spread": max(plain) - min(plain), "distance": distance}


def _small(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2e}"


def _held_out(losses: Mapping[str, float | None]) -> dict[str, Any]:
    plain = [loss for name, loss in losses.items() if loss is not None and name != "fast"]
    fast, mean = losses.get("fast"), sum(plain) / len(plain) if plain else None
    if fast is None or mean is None:
        return {
            "fast": fast,
            **dict.fromkeys(("plain_mean", "plain_spread", "share", "agrees")),
            "losses": dict(losses),
        }
    share = abs(fast - mean) / mean
    return {
        "fast": fast, "plain_mean": mean, "plain_spread": max(plain) - min(plain), "share": share,
        "agrees": share <= HELD_OUT_SHARE, "losses": dict(losses),
    }  # fmt: skip
