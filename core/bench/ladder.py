"""The ladder: from Hugging Face's Trainer as it was to the fast core, one optimisation a rung.

Each rung is the one before with a few flags changed, measured in a process of its own. A rung of the published ladders
whose old side today's libraries no longer have stands there with the reason and without a number. A rung's plan (in the
JSON) says what ran: without a card the fast rungs run what the machine has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.bench.children import Outcome, Runner, measure_all
from core.bench.report import MACHINE, command_of, markdown, shown
from core.bench.setting import Setting, check

__all__ = ["RUNGS", "Rung", "climb", "settings_of", "table"]

GONE = "not reproducible today"


@dataclass(frozen=True)
class Rung:
    """One row: what changes against the rung before, or why it cannot be had (``gone``)."""

    name: str
    changes: dict[str, Any] = field(default_factory=dict)
    gone: str = ""
    one_pass: bool = False
    """All rows of a step in one batch: batch × accumulation becomes their product × 1."""


RUNGS = (
    Rung(
        "plain: 4-bit, PEFT, eager attention, norms and head in float32, AdamW in 32 bits, padded, recomputed",
        {"plain": True, "checkpointing": "recompute", "attention": "eager", "optim": "adamw_torch", "upcast": True},
    ),
    Rung("norms, embedding and head stay in 16 bits", {"upcast": False}),
    Rung("4-bit products in bfloat16", gone="bitsandbytes computes in its input's dtype by itself; no flag undoes it"),
    Rung("torch's scaled dot product attention", {"attention": "auto"}),
    Rung("no mask where rows are full", gone="transformers leaves the mask out by itself; no flag undoes it"),
    Rung(
        "FlashAttention or xformers", gone="torch's own attention runs FlashAttention by itself; there is no old side"
    ),
    Rung("AdamW in 8 bits", {"optim": "adamw_8bit"}),
    Rung("no padding: the rows of a batch one after another", {"rows_as": "packed"}),
    Rung("all rows of a step in one pass", one_pass=True),
    Rung("attention by row bounds, no T×T mask", {"attention": "packed"}),
    Rung(
        "fast layers: LoRA by hand-written backward passes, plain torch",
        {"plain": False, "rows_as": "auto", "attention": "auto", "kernels": "twins", "loss": "plain"},
    ),
    Rung("Triton kernels: NF4, norms, rotation, gate", {"kernels": "auto"}),
    Rung("head and cross-entropy in one", {"loss": "auto"}),
    Rung("recomputed, layer inputs in host memory", {"checkpointing": "offload"}),
    Rung("recomputed only as far as memory asks (auto)", {"checkpointing": "auto"}),
    Rung("nothing recomputed", {"checkpointing": "none"}),
)


def settings_of(base: Setting, rungs: Sequence[Rung] = RUNGS) -> dict[str, Setting]:
    """The whole setting of every rung that can be measured, by its name, first to last."""
    found: dict[str, Setting] = {}
    now = base
    for rung in rungs:
        if rung.gone:
            continue
        now = replace(now, **rung.changes)
        if rung.one_pass:
            now = replace(now, batch=now.rows_a_step, accumulation=1)
        found[rung.name] = check(now)
    return found


def climb(
    base: Setting,
    run: Runner,
    say: Callable[[str], None],
    rungs: Sequence[Rung] = RUNGS,
    keep: Callable[[dict[str, Any]], None] = lambda _: None,
    earlier: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Measures every rung, one after another.

    Args:
        keep: gets the result after each rung, so that whoever is cut off loses nothing.
        earlier: such a result of this machine; what it holds already is not measured again.

    Returns:
        JSON: the rungs with their figures, and the machine as the first measured one saw it.
    """
    settings = settings_of(base, rungs)
    outcomes = _measured_before(earlier or {"rungs": []}, settings)
    for number, (name, setting) in enumerate(settings.items(), start=1):
        if name in outcomes:
            continue
        say(f"rung {number} of {len(settings)}")
        outcomes |= measure_all({name: setting}, run, 1, say)
        found = outcomes[name].result
        if earlier and found and found["rows"] != earlier.get("rows"):
            say("the file has other rows than it had then: all rungs are measured anew")
            return climb(base, run, say, rungs, keep)
        keep(_result(rungs, settings, outcomes))
    return _result(rungs, settings, outcomes)


def _measured_before(earlier: dict[str, Any], settings: dict[str, Setting]) -> dict[str, Outcome]:
    """The rungs that an earlier result holds, measured by the same command."""
    machine = {name: earlier.get(name) for name in MACHINE}
    return {
        row["name"]: Outcome({**machine, **row})
        for row in earlier["rungs"]
        if row["status"] == "measured"
        and row["name"] in settings
        and row["command"] == command_of(settings[row["name"]])
    }


def _result(rungs: Sequence[Rung], settings: dict[str, Setting], outcomes: dict[str, Outcome]) -> dict[str, Any]:
    measured = [outcome.result for outcome in outcomes.values() if outcome.result]
    rows: list[dict[str, Any]] = []
    for rung in rungs:
        before = next((row for row in reversed(rows) if row["seconds_a_step"] is not None), None)
        first = next((row for row in rows if row["seconds_a_step"] is not None), None)
        if rung.gone:
            rows.append(_row(rung.name, GONE, reason=rung.gone))
        elif rung.name not in outcomes:
            rows.append(_row(rung.name, "not measured", command=command_of(settings[rung.name])))
        else:
            rows.append(_measured(rung.name, settings[rung.name], outcomes[rung.name], before, first))
    return {
        "bench": "ladder",
        **{name: measured[0][name] if measured else None for name in MACHINE},
        "rungs": rows,
    }


def table(result: dict[str, Any]) -> str:
    """The ladder as a Markdown table."""
    header = ("optimisation", "s a step", "tokens/s", "saved vs the row before", "saved vs plain",
              "peak GiB", "reserved GiB", "last loss")  # fmt: skip
    rows = [
        (
            row["name"] + (f" ({row['status']}: {row['reason']})" if row["reason"] else ""),
            row["seconds_a_step"],
            shown(row["tokens_per_second"], 0),
            _per_cent(row["saved_per_cent"]),
            _per_cent(row["saved_per_cent_vs_plain"]),
            row["peak_allocated_gib"],
            row["peak_reserved_gib"],
            row["loss"],
        )
        for row in result["rungs"]
    ]
    return markdown(header, rows)


def _measured(
    name: str, setting: Setting, outcome: Outcome, before: dict[str, Any] | None, first: dict[str, Any] | None
) -> dict[str, Any]:
    command = command_of(setting)
    if outcome.result is None:
        return _row(name, "failed", reason=outcome.error, command=command)
    found = outcome.result
    return _row(
        name,
        "measured",
        command=command,
        saved_per_cent=_saved(found, before, "seconds_a_step"),
        saved_per_cent_vs_plain=_saved(found, first, "seconds_a_step"),
        memory_saved_per_cent=_saved(found, before, "peak_allocated_gib"),
        memory_saved_per_cent_vs_plain=_saved(found, first, "peak_allocated_gib"),
        loss=found["losses"][-1],
        **{
            key: found[key]
            for key in ("seconds_a_step", "seconds", "tokens_per_second", "peak_allocated_gib", "peak_reserved_gib",
                        "losses", "plan")
        },
    )  # fmt: skip


def _row(name: str, status: str, **known: Any) -> dict[str, Any]:
    empty = ("reason", "command", "seconds_a_step", "seconds", "tokens_per_second", "saved_per_cent",
             "saved_per_cent_vs_plain", "peak_allocated_gib", "peak_reserved_gib", "memory_saved_per_cent",
             "memory_saved_per_cent_vs_plain", "loss", "losses", "plan")  # fmt: skip
    return {"name": name, "status": status, **dict.fromkeys(empty), **known}


def _saved(found: dict[str, Any], other: dict[str, Any] | None, key: str) -> float | None:
    """Per cent of ``other`` that is no longer needed; less than 0 where more is needed."""
    if other is None or not other[key] or found[key] is None:
        return None
    return round(100 * (1 - float(found[key]) / float(other[key])), 1)


def _per_cent(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f} %"
