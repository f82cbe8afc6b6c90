"""A resolved config's largest pass against the machine: what it needs, whether it fits, and in which words."""

from dataclasses import dataclass
from typing import Literal

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.estimate.fit import SPARE, free_bytes, limit_bytes, pass_tokens, pass_work, plan, usual_tokens
from core.estimate.inputs.rows import Rows
from core.estimate.inputs.work import GIB, Work
from core.estimate.learned import Learned, Likeness, Memory, likeness
from core.estimate.peak import Height, height
from core.machine.hardware import Machine

Verdict = Literal["fits", "tight", "too_large", "unknown"]


@dataclass(frozen=True)
class Judged:
    """``work`` is the largest pass, ``usual`` one of a usual size. ``counted`` is arithmetic alone; ``peak``,
    ``allocated`` and ``reserved`` are corrected by what was learned."""

    config: RunConfig
    rows: Rows
    work: Work
    usual: Work
    like: Likeness
    memory: Memory
    counted: Height
    allocated: int
    reserved: int
    peak: int
    limit: int | None
    free: int | None
    verdict: Verdict


def judge(config: RunConfig, spec: ModelSpec, rows: Rows, machine: Machine, learned: Learned | None) -> Judged:
    """The plan for this config on this machine, and whether it fits."""
    config, _ = plan(config, spec, rows, machine, learned)
    work = pass_work(config, spec, rows, machine, pass_tokens(config, rows))
    usual = work.at(usual_tokens(config, rows, work.tokens))
    like = likeness(config, spec, rows, machine, work)
    memory = learned.memory(like) if learned is not None else Memory()
    counted = height(work)
    allocated = round(counted.allocated * memory.allocated)
    reserved = max(allocated, round(counted.reserved * memory.reserved))
    peak = reserved + counted.parts["context"]
    limit, free = limit_bytes(config, machine), free_bytes(machine)
    # The limit is held by counting, as the run itself does; what is free has to bear what was learned as well.
    verdict: Verdict
    if limit is None or free is None:
        verdict = "unknown"
    elif counted.total <= limit and peak <= SPARE * free:  # a run that may use all has nothing left to err in
        verdict = "fits"
    else:
        verdict = "tight" if peak <= free else "too_large"
    return Judged(config, rows, work, usual, like, memory, counted, allocated, reserved, peak, limit, free, verdict)


def sentence_of(found: Judged) -> str:
    """The verdict for people, with by how much."""
    peak, limit, free = found.peak, found.limit, found.free
    if limit is None or free is None:
        return f"Needs about {gigabytes(peak)}; this machine does not say how much is free."
    need = f"{peak / GIB:.1f} of {gigabytes(free)} free"
    if found.verdict == "fits":
        return f"Fits: {need}."
    if found.verdict == "tight" and peak <= SPARE * free:
        return f"Tight: {need}, but only {gigabytes(limit)} are to be used. Allow more, or shorten the longest example."
    if found.verdict == "tight":
        return f"Tight: {need}. Close other programs, or make the longest example shorter."
    return (
        f"Too large: needs {need}, {gigabytes(peak - free)} too much. "
        "Shorten the longest example, lower the rank, or choose a smaller model."
    )


def gigabytes(size: int) -> str:
    """In words. Cards are sold in units of 1024³ bytes under the name GB, and people compare with the box."""
    return f"{size / GIB:.1f} GB"
