"""What the proof page shows of each proof: verdict, machine, and ``core.bench``'s figures; the unknown is "–"."""

import math
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from core.proof.store import COMMANDS, Proof
from core.runs.record.job_record import RUNNING
from studio.figures.run_figures import UNKNOWN, day_and_time, duration
from studio.pages.proof import eight
from studio.pages.proof.words import say
from studio.words.faults import in_one
from studio.words.runs import STATES

Cells = list[list[str]]
_LONGEST_CELL, _MOST_ROWS = 300, 1000
_LIBRARIES = ("torch", "triton", "transformers", "peft", "bitsandbytes")


def shown(proof: Proof, now: float) -> dict[str, Any]:
    """One proof for the page; one with an unreadable result says so."""
    try:
        return _shown(proof, now)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        told = _shown(replace(proof, result=None), now)
        return {**told, "verdict": say("proof.unreadable"), "tone": "bad", "note": say("proof.unreadable.note")}


def _shown(proof: Proof, now: float) -> dict[str, Any]:
    record, result = proof.record, proof.result or {}
    living = record.state in RUNNING
    verdict, tone = _verdict(proof)
    end = record.ended_at or now
    took = duration(end - record.started_at) if record.started_at and record.state != "lost" else UNKNOWN
    head, rows = _TABLES[proof.kind](result) if result else ([], [])
    failure = record.failure
    cause = in_one(failure) if failure else ""
    return {
        "id": proof.id,
        "kind": proof.kind,
        "title": say(f"proof.{proof.kind}"),
        "when": day_and_time(record.started_at),
        "living": living,
        "verdict": verdict,
        "tone": tone,
        "progress": _progress(proof) if living else None,
        "cause": say("proof.lost") if record.state == "lost" else cause,
        "facts": [] if living or not result else [[name, fact[:_LONGEST_CELL]] for name, fact in _facts(result, took)],
        "picture": eight.picture_of(result) if proof.kind == "eight" and not living and result else None,
        "command": shlex.join(("python", "-m", "core.bench", COMMANDS[proof.kind], *proof.flags)),
        "note": _note(proof),
        "head": [cell[:_LONGEST_CELL] for cell in head],
        "rows": [[cell[:_LONGEST_CELL] for cell in row] for row in rows[:_MOST_ROWS]],
    }


def _verdict(proof: Proof) -> tuple[str, str]:
    """The verdict in words, and its tone."""
    if proof.record.state != "finished" or proof.result is None:
        return STATES[proof.record.state]
    if proof.kind == "ladder":
        return say("proof.measured"), "good"
    if proof.kind == "eight":
        return eight.verdict_of(proof.result)
    if proof.result.get("agrees"):
        return say("proof.agrees"), "good"
    return (say("proof.nearer"), "good") if _nearer_everywhere(proof.result) else (say("proof.differs"), "bad")


def _nearer_everywhere(result: dict[str, Any]) -> bool:
    """Whether fast differs only by being nearer to float32 than plain, with an equal held-out loss."""
    outside, held = result.get("outside") or [], result.get("held_out") or {}
    nearer = bool(outside) and result.get("outside_and_nearer") == len(outside)
    asked = any(loss is not None for loss in (held.get("losses") or {}).values())
    finite = all(row["distance"] is not None for row in result.get("table", ()))
    return nearer and finite and (held.get("agrees") is True or not asked)


def _progress(proof: Proof) -> dict[str, Any]:
    stage = proof.record.stage
    if stage is None or not (stage.text or stage.stage == "waiting"):
        return {"text": say("proof.starting"), "share": None}
    if stage.stage == "waiting":
        return {"text": say("proof.waiting", who=stage.text), "share": None}
    part = say("proof.part", done=f"{stage.done + 1:.0f}", total=f"{stage.total:.0f}") if stage.total else ""
    return {
        "text": " ".join(filter(None, (part, stage.text))),
        "share": share if stage.total and math.isfinite(share := stage.done / stage.total) else None,
    }


def _note(proof: Proof) -> str:
    if proof.kind == "kernels" and proof.result:
        return say("proof.ran.kernels" if proof.result.get("path") == "kernels" else "proof.ran.textbook")
    if proof.kind == "eight" and proof.record.state == "finished" and proof.result:
        return eight.note_of(proof.result)
    if proof.result and (judge := proof.result.get("judge")):
        outside = proof.result["outside"]
        steps = ", ".join(map(str, outside))
        if judge.get("error"):
            return say("proof.unjudged", steps=steps, error=judge["error"])
        told = say("proof.judged", steps=steps, nearer=proof.result["outside_and_nearer"], count=len(outside))
        return f"{told} {say('proof.judged.why')}" if _nearer_everywhere(proof.result) else told
    return ""


def _facts(result: dict[str, Any], took: str) -> Cells:
    versions = result.get("versions") or {}
    named = ", ".join(f"{name} {versions[name]}" for name in _LIBRARIES if versions.get(name))
    return [
        [say("proof.device"), str(result.get("device") or UNKNOWN)],
        [say("proof.driver"), str(result.get("driver") or UNKNOWN)],
        [say("proof.versions"), named or UNKNOWN],
        [say("proof.took"), took],
    ]


def _kernels(result: dict[str, Any]) -> tuple[list[str], Cells]:
    head = [say(f"proof.head.{name}") for name in ("op", "dtype", "ours", "plain", "allowed", "verdict")]
    rows = [
        [row["op"], row["dtype"], *(_small(row[name]) for name in ("error", "plain_error", "allowed")),
         say("proof.agrees" if row["agrees"] else "proof.differs")]
        for row in result.get("rows", ())
    ]  # fmt: skip
    return head, rows


def _parity(result: dict[str, Any]) -> tuple[list[str], Cells]:
    names, judged = list(result.get("losses", {})), "judge" in result
    head = [say("chart.step"), *names, say("proof.head.spread"), say("proof.head.distance")]
    head += [say("proof.head.judge")] if judged else []
    rows = [
        [str(row["step"]), *(_number(row["losses"][name], 5) for name in names), _small(row["spread"]),
         _small(row["distance"]), *([_number(row["judge"], 5)] if judged else [])]
        for row in result.get("table", ())
    ]  # fmt: skip
    held = result.get("held_out") or {}
    if held.get("fast") is not None and held.get("plain_mean") is not None:
        losses = held.get("losses") or {}
        measured = [_number(losses.get(name), 5) for name in names]
        apart = _small(abs(held["fast"] - held["plain_mean"]))
        judge = [UNKNOWN] if judged else []
        rows.append([say("proof.held_out"), *measured, _small(held.get("plain_spread")), apart, *judge])
    return head, rows


def _ladder(result: dict[str, Any]) -> tuple[list[str], Cells]:
    head = [say(f"proof.head.{name}") for name in ("rung", "seconds", "speed", "saved", "plain_saved", "peak", "loss")]
    cells = []
    for row in result.get("rungs", ()):
        name = row["name"] + (f" ({row['reason']})" if row.get("reason") else "")
        saved = (_per_cent(row["saved_per_cent"]), _per_cent(row["saved_per_cent_vs_plain"]))
        speed = (_number(row["seconds_a_step"], 4), _number(row["tokens_per_second"], 0))
        cells.append([name, *speed, *saved, _number(row["peak_allocated_gib"], 2, " GiB"), _number(row["loss"], 4)])
    return head, cells


_TABLES: dict[str, Callable[[dict[str, Any]], tuple[list[str], Cells]]] = {
    "kernels": _kernels, "parity": _parity, "ladder": _ladder, "eight": eight.table_of,
}  # fmt: skip


def _number(value: float | None, digits: int, unit: str = "") -> str:
    return UNKNOWN if value is None else f"{value:,.{digits}f}{unit}"


def _small(value: float | None) -> str:
    return UNKNOWN if value is None else "0" if value == 0 else f"{value:.1e}".replace("e-0", "e−").replace("e-", "e−")


def _per_cent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}%".replace("-", "−")
