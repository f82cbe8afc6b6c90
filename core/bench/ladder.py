"""The ladder: from Hugging Face's Trainer as it was to the fast core, one optimisation a rung.

Each rung is the one before with a few flags changed, measured in a process of its own. A rung's plan (in the JSON) says
what ran: without a card the fast rungs run what the machine has.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.bench.children import Outcome, Runner, measure_all
from core.bench.report import MACHINE, command_of, markdown, shown
from core.bench.setting import Setting, check


@dataclass(frozen=True)
class Rung:
    """One row: what changes against the rung before."""

    name: str
    changes: dict[str, Any] = field(default_factory=dict)
    one_pass: bool = False
    """All rows of a step in one batch: batch × accumulation becomes their product × 1."""


RUNGS = (
    Rung(
        "plain: 4-bit, PEFT, eager attention, norms and head in float32, AdamW in 32 bits, padded, recomputed",
        {"plain": True, "checkpointing": "recompute", "attention": "eager", "optim": "adamw_torch", "upcast": True},
    ),
    Rung("norms, embedding and head stay in 16 bits", {"upcast": False}),
    Rung("torch's scaled dot product attention", {"attention": "auto"}),
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
    """The whole setting of every rung by its name, first to last."""
    found: dict[str, Setting] = {}
    now = base
    for rung in rungs:
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
    commands = {name: command_of(setting) for name, setting in settings.items()}
    machine = {name: earlier.get(name) for name in MACHINE} if earlier else {}
    outcomes = {
        row["name"]: Outcome({**machine, **row})
        for row in (earlier["rungs"] if earlier else ())
        if row["status"] == "measured" and commands.get(row["name"]) == row["command"]
    }
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


def _result(rungs: Sequence[Rung], settings: dict[str, Setting], outcomes: dict[str, Outcome]) -> dict[str, Any]:
    measured = [outcome.result for outcome in outcomes.values() if outcome.result]
    rows: list[dict[str, Any]] = []
    for rung in rungs:
        before = next((row for row in reversed(rows) if row["seconds_a_step"] is not None), None)
        first = next((row for row in rows if row["seconds_a_step"] is not None), None)
        if rung.name not in outcomes:
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
    per_cent = lambda value: None if value is None else f"{value:.1f} %"  # noqa: E731
    rows = [
        (
            row["name"] + (f" ({row['status']}: {row['reason']})" if row["reason"] else ""),
            row["seconds_a_step"],
            shown(row["tokens_per_second"], 0),
            per_cent(row["saved_per_cent"]),
            per_cent(row["saved_per_cent_vs_plain"]),
            row["peak_allocated_gib"],
            row["peak_reserved_gib"],
            row["loss"],
        )
        for row in result["rungs"]
    ]
    return markdown(header, rows)


FIGURES = (
    "seconds_a_step",
    "seconds",
    "tokens_per_second",
    "peak_allocated_gib",
    "peak_reserved_gib",
    "losses",
    "plan",
)
SAVED = {"": "seconds_a_step", "memory_": "peak_allocated_gib"}


def _row(name: str, status: str, **known: Any) -> dict[str, Any]:
    saved = [f"{what}saved_per_cent{against}" for what in SAVED for against in ("", "_vs_plain")]
    return {"name": name, "status": status, **dict.fromkeys(["reason", "command", "loss", *FIGURES, *saved]), **known}


def _measured(
    name: str, setting: Setting, outcome: Outcome, before: dict[str, Any] | None, first: dict[str, Any] | None
) -> dict[str, Any]:
    command, figures = command_of(setting), outcome.result
    if figures is None:
        return _row(name, "failed", reason=outcome.error, command=command)
    saved = {
        f"{what}saved_per_cent{against}": _saved(figures, other, key)
        for what, key in SAVED.items()
        for against, other in (("", before), ("_vs_plain", first))
    }
    known = {key: figures[key] for key in FIGURES}
    return _row(name, "measured", command=command, loss=figures["losses"][-1], **saved, **known)


def _saved(found: dict[str, Any], other: dict[str, Any] | None, key: str) -> float | None:
    """Per cent of ``other`` that is no longer needed; less than 0 where more is needed."""
    if other is None or not other[key] or found[key] is None:
        return None
    return round(100 * (1 - float(found[key]) / float(other[key])), 1)
