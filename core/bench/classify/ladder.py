"""The ladder of BERT: from float32 and one tensor at a time to packed rows, one optimisation a rung.

All rungs see the same rows in the same order, as often (``--epochs``) or for as many steps (``--steps``).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from core.bench.children import Outcome, Runner, measure_all
from core.bench.classify.setting import ClassifySetting, check
from core.bench.report import MACHINE, markdown, rung_of, shown, title_of

LARGER = "larger batch"
DRAWN = ": accuracy compares rungs, it is not what a pretrained model reaches"
RUNGS: dict[str, dict[str, Any]] = {
    "float32, AdamW one tensor at a time, eager attention, padded to the longest row of a step": {},
    "AdamW over lists of tensors (foreach)": {"optim": "foreach"},
    "AdamW in one kernel (fused)": {"optim": "fused"},
    "TF32 products": {"precision": "tf32"},
    "bfloat16 autocast, weights in float32": {"precision": "bf16"},
    "torch's scaled dot product attention": {"attention": "sdpa"},
    LARGER: {},
    "no padding: rows end to end, attention by row bounds": {"layout": "packed"},
    "torch.compile of every layer": {"compiled": True},
    "layer norm and residual in one, in place of torch.compile": {"compiled": False, "norm": "fused"},
}
"""Fields that differ from the rung before; the larger batch is a flag of its own."""
FIGURES = (
    "steps", "learning_rate", "seconds_a_step", "samples_per_second", "tokens_per_second", "padding_per_cent",
    "compile_seconds", "peak_allocated_gib", "accuracy", "plan",
)  # fmt: skip
SHARED = (*MACHINE, "weights")


def settings_of(base: ClassifySetting, larger: int) -> dict[str, ClassifySetting]:
    """The setting of every rung by its name, in order."""
    settings: dict[str, ClassifySetting] = {}
    for name, changes in RUNGS.items():
        more: dict[str, Any] = {"batch": larger} if name is LARGER else {}
        base = settings[name] = check(replace(base, **changes, **more))
    return settings


def climb(
    settings: Mapping[str, ClassifySetting],
    run: Runner,
    say: Callable[[str], None],
    keep: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Measures every rung, one after another; ``keep`` gets the result so far after each.

    Returns:
        the rungs with their figures, how many times the first rung's speed the best one has, how many times the best
        padded rung's the best one without padding, and the machine, as JSON.
    """
    outcomes: dict[str, Outcome] = {}
    for name, setting in settings.items():
        outcomes |= measure_all({name: setting}, run, 1, say)
        keep(_result(settings, outcomes))
    return _result(settings, outcomes)


def _result(settings: Mapping[str, ClassifySetting], outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    measured = [outcome.result for outcome in outcomes.values() if outcome.result]
    rungs = []
    for name, setting in settings.items():
        rung = rung_of(name, setting, outcomes.get(name), (*FIGURES, "losses"))
        losses = rung.pop("losses")
        rungs.append(
            {**rung, "rows_a_step": setting.batch, "layout": setting.layout, "last_loss": losses and losses[-1]}
        )
    first = rungs[0]["samples_per_second"]
    for rung in rungs:
        rung["times_first"] = (
            round(rung["samples_per_second"] / first, 2) if first and rung["samples_per_second"] else None
        )
    best = {
        layout: max((rung["samples_per_second"] or 0.0 for rung in rungs if rung["layout"] == layout), default=0.0)
        for layout in ("padded", "packed")
    }
    return {
        "bench": "ladder",
        "task": "classify",
        **{name: measured[0][name] if measured else None for name in SHARED},
        "best_times_first": max((rung["times_first"] or 0.0 for rung in rungs), default=None),
        "packed_times_best_padded": round(best["packed"] / best["padded"], 2) if all(best.values()) else None,
        "rungs": rungs,
    }


def table(result: dict[str, Any]) -> str:
    """The ladder as a Markdown table, and what its accuracy means."""
    header = ("optimisation", "rows a step", "samples/s", "times the first", "peak GiB", "accuracy", "compiling, s")
    cells = [
        (
            title_of(row),
            row["rows_a_step"],
            shown(row["samples_per_second"], 0),
            shown(row["times_first"], 2),
            row["peak_allocated_gib"],
            row["accuracy"],
            shown(row["compile_seconds"], 1),
        )
        for row in result["rungs"]
    ]
    lines = [markdown(header, cells), ""]
    if result["rows"]:
        rows = result["rows"]
        lines += [
            f"rows      {rows['from']}: {rows['train']:,} to train on, {rows['mean_tokens']} tokens in the mean, "
            f"{rows['longest']} at most; accuracy on {rows['held_out']:,} others",
            f"weights   {result['weights']}" + DRAWN * result["weights"].startswith("drawn"),
            f"speed     best rung {shown(result['best_times_first'], 2)} × the first; without padding "
            f"{shown(result['packed_times_best_padded'], 2)} × the best padded one",
        ]  # fmt: skip
    return "\n".join(lines)
