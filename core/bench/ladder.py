"""The ladder: from plain Hugging Face training to the fast core, one optimisation a rung.

Each rung changes a few flags of the one before. Its ``plan`` in the JSON says what ran (without a card, no kernels).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from core.bench.children import Outcome, Runner, measure_all
from core.bench.report import MACHINE, command_of, markdown, rung_of, shown, title_of
from core.bench.setting import Setting, check

RUNGS: dict[str, dict[str, Any]] = {
    "plain: 4-bit, PEFT, eager attention, norms and head in float32, AdamW in 32 bits, padded, recomputed": {
        "plain": True, "checkpointing": "recompute", "attention": "eager", "optim": "adamw_torch", "upcast": True,
    },
    "norms, embedding and head stay in 16 bits": {"upcast": False},
    "torch's scaled dot product attention": {"attention": "auto"},
    "AdamW in 8 bits": {"optim": "adamw_8bit"},
    "no padding: the rows of a batch one after another": {"rows_as": "packed"},
    "all rows of a step in one pass": {"accumulation": 1},
    "attention by row bounds, no T×T mask": {"attention": "packed"},
    "fast layers: LoRA by hand-written backward passes, plain torch": {
        "plain": False, "rows_as": "auto", "attention": "auto", "kernels": "twins", "loss": "plain",
    },
    "Triton kernels: NF4, norms, rotation, gate": {"kernels": "auto"},
    "head and cross-entropy in one": {"loss": "auto"},
    "recomputed, layer inputs in host memory": {"checkpointing": "offload"},
    "recomputed only as far as memory asks (auto)": {"checkpointing": "auto"},
    "nothing recomputed": {"checkpointing": "none"},
}  # fmt: skip
"""Flags that differ from the rung before. An accumulation of 1 puts all rows of a step into one batch."""
FIGURES = (
    "seconds_a_step", "seconds", "tokens_per_second", "peak_allocated_gib", "peak_reserved_gib", "losses", "plan",
)  # fmt: skip
SAVED = {"": "seconds_a_step", "memory_": "peak_allocated_gib"}


def settings_of(base: Setting, rungs: Mapping[str, dict[str, Any]] = RUNGS) -> dict[str, Setting]:
    """The setting of every rung by its name, in order."""
    settings: dict[str, Setting] = {}
    for name, changes in rungs.items():
        batch = base.rows_a_step if "accumulation" in changes else base.batch
        base = settings[name] = check(replace(base, batch=batch, **changes))
    return settings


def climb(
    base: Setting,
    run: Runner,
    say: Callable[[str], None],
    rungs: Mapping[str, dict[str, Any]] = RUNGS,
    keep: Callable[[dict[str, Any]], None] = lambda _: None,
    earlier: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Measures every rung, one after another.

    Args:
        keep: gets the result so far after each rung.
        earlier: a result of this machine, whose rungs are not measured again.

    Returns:
        the rungs with their figures, and the machine, as JSON.
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
        result = outcomes[name].result
        if earlier and result and result["rows"] != earlier.get("rows"):
            say("the file has other rows than it had then: all rungs are measured anew")
            return climb(base, run, say, rungs, keep)
        keep(_result(settings, outcomes))
    return _result(settings, outcomes)


def _result(settings: Mapping[str, Setting], outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    measured = [outcome.result for outcome in outcomes.values() if outcome.result]
    rows: list[dict[str, Any]] = []
    for name, setting in settings.items():
        known = [row for row in rows if row["seconds_a_step"] is not None]
        rows.append(_row(name, setting, outcomes.get(name), known))
    machine = {name: measured[0][name] if measured else None for name in MACHINE}
    return {"bench": "ladder", **machine, "rungs": rows}


def _row(name: str, setting: Setting, outcome: Outcome | None, known: list[dict[str, Any]]) -> dict[str, Any]:
    """A rung's figures, and what it saves against the last and the first row of ``known``."""
    row = rung_of(name, setting, outcome, FIGURES)
    row["loss"] = row["losses"][-1] if row["losses"] else None
    for what, key in SAVED.items():
        for against, others in (("", known[-1:]), ("_vs_plain", known[:1])):
            before = others[0][key] if others else None
            saved = round(100 * (1 - row[key] / before), 1) if before and row[key] is not None else None
            row[f"{what}saved_per_cent{against}"] = saved
    return row


def table(result: dict[str, Any]) -> str:
    """The ladder as a Markdown table."""
    header = ("optimisation", "s a step", "tokens/s", "saved vs the row before", "saved vs plain",
              "peak GiB", "reserved GiB", "last loss")  # fmt: skip
    per_cent = lambda value: None if value is None else f"{value:.1f} %"  # noqa: E731
    rows = [
        (
            title_of(row),
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
