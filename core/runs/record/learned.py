"""``learned.jsonl`` under the root folder: for each finished run a line with what was predicted and what it took; for
each trial of arithmetics, and for each proof of one, a line too (``kind``).

Append only, one write a line under a lock. Damaged lines are skipped, and only the newest are read.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from core.contract.estimate import LayerTrial, LearnedRun, ProvenHere
from core.contract.events import Step
from core.estimate.learned import LEAST_STEPS, Learned
from core.machine.disk import append_line
from core.machine.locations import Locations
from core.machine.locks import locked
from core.runs.folder.job_folder import JobFolder
from core.runs.record.job_record import RunRecord
from core.runs.record.pace import WARM_UP, own_steps, rate_of

NEWEST = 500
MOST_BYTES = 1 << 20
MOST_START_SECONDS = 3600.0
_TRIAL, _PROOF = b'"kind":"trial"', b'"kind":"proof"'
"""In lines that are of no run."""
_NAME = re.compile(r"[0-9a-z_-]+", re.ASCII)


def learned_file(locations: Locations) -> Path:
    """The file of one root."""
    return locations.home / "learned.jsonl"


def speeds(locations: Locations) -> Learned:
    """What finished runs measured, the newest last; empty where there is no file."""
    try:
        with learned_file(locations).open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - MOST_BYTES))
            raw = file.read()
    except OSError:
        return Learned()
    runs: list[LearnedRun] = []
    trials: list[LayerTrial] = []
    proofs: list[ProvenHere] = []
    for text in filter(None, raw.split(b"\n")):
        with suppress(ValidationError):
            if _TRIAL in text:
                trials.append(LayerTrial.model_validate_json(text))
            elif _PROOF in text:
                proofs.append(ProvenHere.model_validate_json(text))
            else:
                runs.append(LearnedRun.model_validate_json(text))
    kept = (line for line in proofs if _NAME.fullmatch(line.proof) and (locations.proofs / line.proof).is_dir())
    return Learned(tuple(runs[-NEWEST:]), tuple(trials[-NEWEST:]), tuple(kept))


def append(locations: Locations, line: LearnedRun | LayerTrial | ProvenHere) -> None:
    """Adds a line. Raises OSError where the disk does not take it."""
    path = learned_file(locations)
    with locked(path):
        append_line(path, line.model_dump_json().encode())


def learn(folder: JobFolder, record: RunRecord, locations: Locations) -> None:
    """Adds an ended training run's line, once; a disk that refuses is ignored."""
    if folder.kind != "train" or (line := line_of(folder.name, record)) is None:
        return
    with suppress(OSError):
        if all(known.run_id != line.run_id for known in speeds(locations).runs):
            append(locations, line)


def line_of(run_id: str, record: RunRecord) -> LearnedRun | None:
    """A finished or stopped run's line; None where it was too short or nothing was predicted."""
    plan, own = record.plan, own_steps(record.steps)
    if plan is None or plan.predicted is None or record.state not in ("finished", "stopped") or len(own) < LEAST_STEPS:
        return None
    drawn = [watts for step in own if (watts := _watts(step))]
    first, start_seconds = record.steps[0], 0.0
    if record.started_at is not None and (first.attempt, first.step) == (1, 1):
        # Up to the first step, without the evaluation before it; and what the first steps took longer than others.
        measured = sum(evaluation.seconds for evaluation in record.evaluations if evaluation.step == 0)
        begun = first.at - first.seconds - measured - record.started_at
        start_seconds = max(0.0, begun) + _longer(record.steps, rate_of(own))
    return plan.predicted.model_copy(
        update={
            "run_id": run_id,
            "at": record.ended_at or 0.0,
            "kernels": "fast" if plan.fast else "plain",
            "measured_bytes": _most(step.memory_bytes for step in own if step.reserved_bytes is not None),
            "measured_reserved_bytes": _most(step.reserved_bytes for step in own),
            "measured_tokens_per_second": rate_of(own),
            "watts": sum(drawn) / len(drawn) if drawn else 0.0,
            "steps": len(own),
            "start_seconds": min(MOST_START_SECONDS, start_seconds),
        }
    )


def _watts(step: Step) -> float | None:
    """What all cards drew."""
    if not step.cards:
        return step.power_watts
    drawn = [card.power_watts for card in step.cards]
    return sum(filter(None, drawn)) if all(drawn) else None


def _longer(steps: Sequence[Step], rate: float) -> float:
    """Seconds that the first steps took beyond the pace of the others: they compile and warm up."""
    first = steps[:WARM_UP]
    usual = sum(step.tokens for step in first) / rate if rate else 0.0
    return max(0.0, sum(step.seconds for step in first) - usual)


def _most(sizes: Iterable[int | None]) -> int:
    return max((size for size in sizes if size), default=0)
