"""The estimate: memory against what is free, steps, tokens, time and disk, for a config and a machine.

It resolves the config first, so what is shown is what would be run. It touches neither disk nor card: the same inputs
give the same answer, in well under five milliseconds, for every change of a knob.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import core.estimate.terms as terms
from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.contract.estimate import Estimate, MemoryPart
from core.estimate.cost import cost_of, disk_of
from core.estimate.duration import operations_per_token, predicted_rate, run_seconds, start_seconds
from core.estimate.fit import usual_tokens
from core.estimate.inputs.rows import Rows, learned_rows, rows_of, steps_per_epoch, total_steps
from core.estimate.inputs.work import Work
from core.estimate.judge import Judged, gigabytes, judge, sentence_of
from core.estimate.learned import Learned, Likeness, Memory, Speed
from core.estimate.peak import memory_terms
from core.machine.hardware import Machine

__all__ = ["estimate"]

HOST_BYTES = 3 * terms.GIB
"""Resident size of a worker beside a card: libraries, CUDA's host side, and a part of the weights on its way."""
LEAST_SAID = 0.005


def estimate(
    config: RunConfig,
    spec: ModelSpec,
    facts: DataFacts | None,
    machine: Machine,
    learned: Learned | None = None,
) -> Estimate:
    """What this run would need on this machine.

    Args:
        facts: lengths of the data's rows; None before it is read, when every row is taken as full.
        learned: finished runs of this machine, predicted and measured (``core.runs.record.learned.speeds``).
    """
    rows = rows_of(config, facts)
    found = judge(config, spec, rows, machine, learned)
    config, work = found.config, found.work
    steps = total_steps(config, rows.train) if rows.known else 0
    usual = work.at(usual_tokens(config, rows, work.tokens))
    speed = None
    if learned is not None and learned.runs:
        counted = predicted_rate(usual, rows, machine), operations_per_token(usual, rows.seen)
        speed = learned.speed(found.like, *counted)
    return Estimate(
        device=machine.gpu.name if machine.gpu else "cpu",
        total_steps=steps,
        rows_per_step=config.rows_per_step,
        steps_per_epoch=steps_per_epoch(config, rows.train) if rows.known else 0,
        tokens_per_epoch=rows.tokens_per_epoch,
        trained_tokens_per_epoch=rows.trained_per_epoch,
        rows_cut=rows.cut,
        tokens_lost=rows.lost,
        padding_saved=rows.padding,
        notes=(*_notes(config, spec, facts, rows, found.memory), *_short_of(work, spec, machine)),
        learned_from=found.memory.runs,
        **_memory(found, machine),
        **_time(usual, rows, _tokens(config, rows, facts, steps), machine, speed, (learned, found.like)),
        **_disk(work, spec, machine),
    )


def _memory(found: Judged, machine: Machine) -> dict[str, Any]:
    pinned = terms.pinned_bytes(found.work)
    return {
        "terms": tuple(_with_difference(memory_terms(found.work), found.peak - found.counted.total)),
        "peak_bytes": found.peak,
        "allocated_bytes": found.allocated,
        "reserved_bytes": found.reserved,
        "free_bytes": found.free,
        "total_bytes": machine.gpu.total_bytes if machine.gpu else machine.ram_total_bytes,
        "held_bytes": machine.gpu.held_bytes if machine.gpu else machine.ram_total_bytes - machine.ram_free_bytes,
        "verdict": found.verdict,
        "sentence": sentence_of(found),
        "host_bytes": HOST_BYTES + pinned if machine.gpu else found.peak,
        "pinned_bytes": pinned,
    }


def _with_difference(counted: tuple[MemoryPart, ...], difference: int) -> Iterator[MemoryPart]:
    """What was learned stands with the activations: of the rest every byte is counted."""
    for term in counted:
        if difference and term.key == "activations":
            term = term.model_copy(
                update={"at_peak": max(0, term.at_peak + difference), "bytes": max(0, term.bytes + difference)}
            )
        yield term


def _time(
    usual: Work,
    rows: Rows,
    tokens: float,
    machine: Machine,
    speed: Speed | None,
    rest: tuple[Learned | None, Likeness],
) -> dict[str, Any]:
    """The whole run by the clock: starting counts too."""
    learned, like = rest
    time = run_seconds(usual, rows, tokens, machine, speed)
    known = learned.start_seconds(like) if learned is not None else None
    start = start_seconds(2 * usual.model.shape.parameters, known)
    whole = (time.seconds[0] + start[0], time.seconds[1] + start[1]) if time.seconds else None
    cost = cost_of(whole, machine, learned)
    return {
        "seconds": whole,
        "time_basis": time.basis,
        "tokens_per_second": time.tokens_per_second,
        "energy_kwh": cost.kwh,
        "energy_basis": cost.basis,
    }


def _disk(work: Work, spec: ModelSpec, machine: Machine) -> dict[str, Any]:
    disk = disk_of(work, spec)
    return {
        "disk_bytes": disk.download + disk.checkpoints,
        "disk_free_bytes": machine.disk_free_bytes,
        "download_bytes": disk.download,
        "checkpoints_bytes": disk.checkpoints,
        "merged_bytes": disk.merged,
    }


def _tokens(config: RunConfig, rows: Rows, facts: DataFacts | None, steps: int) -> float:
    """Tokens of the whole run, as training tokens; a measured token costs a third of a trained one."""
    if not rows.known or facts is None or not rows.train:
        return 0.0
    windows = math.ceil(rows.train / config.rows_per_step)
    trained = rows.tokens_per_epoch * steps / windows
    kept_aside = learned_rows(config, facts) - rows.train
    measured = (1 + steps / config.train.eval_steps) * kept_aside * (rows.tokens_per_epoch / rows.train) / 3
    reference = trained / 3 if config.learning.reference else 0
    return trained + measured + reference


def _short_of(work: Work, spec: ModelSpec, machine: Machine) -> Iterator[str]:
    """What the card is not asked for, and is short all the same."""
    disk = disk_of(work, spec)
    need, free = disk.download + disk.checkpoints, machine.disk_free_bytes
    if free is not None and need > free:
        yield f"The disk has {gigabytes(free)} free, and {gigabytes(need)} are needed: make room, or choose another."
    host = HOST_BYTES + terms.pinned_bytes(work)
    if machine.gpu is not None and host > machine.ram_free_bytes:
        yield (
            f"About {gigabytes(host)} of the machine's own memory are needed, and {gigabytes(machine.ram_free_bytes)} "
            "are free: close other programs."
        )


def _notes(config: RunConfig, spec: ModelSpec, facts: DataFacts | None, rows: Rows, memory: Memory) -> Iterator[str]:
    limit = config.train.max_length
    if memory.runs and abs(memory.reserved - 1) >= LEAST_SAID:
        more = f"{abs(memory.reserved - 1):.0%} {'more' if memory.reserved > 1 else 'less'}"
        count = "An earlier run" if memory.runs == 1 else f"{memory.runs} earlier runs"
        yield f"{count} like this one took {more} memory than counted; that is in the figure."
    if not rows.known or facts is None:
        yield f"No data yet: every row is taken as full ({limit:,} tokens), and steps and time are left open."
        return
    if rows.cut:
        yield f"{rows.cut:,} of {facts.rows:,} rows are longer than {limit:,} tokens and are cut there."
    if facts.sampled:
        yield f"Lengths come from a sample of {len(facts.lengths):,} rows."
    if limit > spec.shape.max_position_embeddings and rows.longest > spec.shape.max_position_embeddings:
        yield f"The model was made for {spec.shape.max_position_embeddings:,} tokens; longer rows may not be learned."
