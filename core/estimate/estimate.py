"""The estimate: memory against what is free, steps, tokens, time and disk, for a config and a machine.

It resolves the config first, so what is shown is what would be run. It touches neither disk nor card: the same inputs
give the same answer, in well under five milliseconds, for every change of a knob.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.contract.estimate import Estimate
from core.estimate import terms
from core.estimate.fit import SPARE, free_bytes, limit_bytes, pass_tokens, pass_work, plan, usual_tokens
from core.estimate.learned import Learned
from core.estimate.peak import memory_terms, peak_bytes
from core.estimate.rows import Rows, held_out_rows, rows_of, total_steps
from core.estimate.time import run_seconds
from core.estimate.work import Work
from core.hardware import Machine
from core.settings import Settings

__all__ = ["estimate"]

Verdict = Literal["fits", "tight", "too_large", "unknown"]
CHECKPOINTS = 3
"""Best and last, and one on its way."""
HOST_BYTES = 3 * terms.GIB
"""Resident size of a worker beside a card: libraries, CUDA's host side, and a part of the weights on its way."""


def estimate(
    config: RunConfig,
    spec: ModelSpec,
    facts: DataFacts | None,
    machine: Machine,
    learned: Learned | None = None,
    settings: Settings | None = None,
) -> Estimate:
    """What this run would need on this machine.

    Args:
        facts: lengths of the data's rows; None before it is read, when every row is taken as full.
        learned: finished runs of this machine, predicted and measured (``core.runs.learned.speeds``).
        settings: what electricity costs here.
    """
    rows = rows_of(config, facts)
    config, _ = plan(config, spec, rows, machine)
    limit = limit_bytes(config, machine)
    work = pass_work(config, spec, rows, machine, pass_tokens(config, rows))
    steps = total_steps(config, rows.train) if rows.known else 0
    free, peak = free_bytes(machine), peak_bytes(work)
    verdict = _verdict(peak, limit, free)
    usual = replace(work, tokens=usual_tokens(config, rows, work.tokens))
    time = run_seconds(usual, rows, _tokens(config, rows, facts, steps), machine, None)
    return Estimate(
        terms=memory_terms(work),
        peak_bytes=peak,
        free_bytes=free,
        total_bytes=machine.gpu.total_bytes if machine.gpu else machine.ram_total_bytes,
        device=machine.gpu.name if machine.gpu else "cpu",
        verdict=verdict,
        sentence=_sentence(verdict, peak, limit, free),
        total_steps=steps,
        tokens_per_epoch=rows.tokens_per_epoch,
        trained_tokens_per_epoch=rows.trained_per_epoch,
        rows_cut=rows.cut,
        seconds=time.seconds,
        time_basis=time.basis,
        disk_bytes=_disk_bytes(work, spec),
        host_bytes=HOST_BYTES + terms.pinned_bytes(work) if machine.gpu else peak,
        pinned_bytes=terms.pinned_bytes(work),
        notes=tuple(_notes(config, spec, facts, rows)),
    )


def _verdict(peak: int, limit: int | None, free: int | None) -> Verdict:
    if limit is None or free is None:
        return "unknown"
    if peak <= limit:
        return "fits"
    return "tight" if peak <= free else "too_large"


def _sentence(verdict: Verdict, peak: int, limit: int | None, free: int | None) -> str:
    if limit is None or free is None:
        return f"Needs about {_gigabytes(peak)}; this machine does not say how much is free."
    need = f"{peak / terms.GIB:.1f} of {_gigabytes(free)} free"
    if verdict == "fits":
        return f"Fits: {need}."
    if verdict == "tight" and peak <= SPARE * free:
        return (
            f"Tight: {need}, but only {_gigabytes(limit)} are to be used. Allow more, or shorten the longest example."
        )
    if verdict == "tight":
        return f"Tight: {need}. Close other programs, or make the longest example shorter."
    return f"Too large: needs {need}. Shorten the longest example, lower the rank, or choose a smaller model."


def _tokens(config: RunConfig, rows: Rows, facts: DataFacts | None, steps: int) -> float:
    """Tokens of the whole run, as training tokens; a measured token costs a third of a trained one."""
    if not rows.known or facts is None or not rows.train:
        return 0.0
    windows = math.ceil(rows.train / config.rows_per_step)
    sides = 2 if config.method == "dpo" else 1
    trained = rows.tokens_per_epoch * steps / windows
    measured = (1 + steps / config.train.eval_steps) * held_out_rows(facts.rows, config.data) * rows.mean / 3
    reference = trained / 3 if config.method == "dpo" else 0
    return sides * (trained + measured + reference)


def _disk_bytes(work: Work, spec: ModelSpec) -> int:
    download = 0 if spec.cached else spec.download_bytes
    return download + CHECKPOINTS * (terms.lora_bytes(work) + terms.optimiser_bytes(work))


def _notes(config: RunConfig, spec: ModelSpec, facts: DataFacts | None, rows: Rows) -> Iterator[str]:
    limit = config.train.max_length
    if not rows.known or facts is None:
        yield f"No data yet: every row is taken as full ({limit:,} tokens), and steps and time are left open."
        return
    if rows.cut:
        yield f"{rows.cut:,} of {facts.rows:,} rows are longer than {limit:,} tokens and are cut there."
    if facts.sampled:
        yield f"Lengths come from a sample of {len(facts.lengths):,} rows."
    if limit > spec.shape.max_position_embeddings and rows.longest > spec.shape.max_position_embeddings:
        yield f"The model was made for {spec.shape.max_position_embeddings:,} tokens; longer rows may not be learned."


def _gigabytes(size: int) -> str:
    # Cards are sold in units of 1024³ bytes under the name GB, and people compare with what is printed on the box.
    return f"{size / terms.GIB:.1f} GB"
