"""Light: which step of a run is measured, and what that teaches the planner."""

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.contract.estimate import LearnedRun, Probe
from core.data.deal.packing import cut
from core.estimate import probed
from core.estimate.inputs.rows import dealt_steps, learned_lengths
from core.machine.hardware import Machine

MOST_ROWS = 100_000
"""So many rows are dealt to look for the longest step; later ones hold no surprise."""
PROBE_RUN = "probe-"
"""How the ``run_id`` of a line that a probe left begins; a run's begins with its date."""


def longest_step(config: RunConfig, facts: DataFacts | None) -> list[int]:
    """Lengths of the rows of the step that takes most: the largest micro-batch, of those the most tokens.

    Steps are dealt as the run will deal them. Without data every row is full, and where only a sample was measured, its
    longest rows are taken together. Fewer rows than a step wants are one step.
    """
    most, limit = config.rows_per_step, config.train.max_length
    if facts is None or not facts.lengths:
        return [limit] * most
    lengths = [min(length, limit) for length in learned_lengths(facts, limit)]
    if facts.sampled or facts.rows != len(facts.lengths):
        return sorted(lengths, reverse=True)[:most]
    steps: set[tuple[int, ...]] = {
        tuple(lengths[row] for row in step) for step in dealt_steps(config, facts, MOST_ROWS)
    }

    def height(step: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
        if not config.packed:
            return max(step), sum(step), step  # padded to the longest row
        passes = cut(list(step), config.train.tokens_per_pass)
        return max(sum(step[place] for place in places) for places in passes), sum(step), step

    longest: tuple[int, ...] = max(steps, key=height)
    return list(longest)


def lesson(
    found: Probe, config: RunConfig, spec: ModelSpec, facts: DataFacts | None, machine: Machine, at: float
) -> LearnedRun:
    """The line of ``learned.jsonl`` that a probe leaves: what was predicted of it by counting alone, and what it took.

    On the CPU no memory is told, since what a process holds there is not its tensors' alone; and no speed of a card
    whose memory had spilled.

    Args:
        config: as it was probed, without automatic values.
        at: seconds since 1970.
    """
    line = probed(found, config, spec, facts, machine)
    told: dict[str, object] = {"run_id": f"{PROBE_RUN}{at:.0f}", "at": at}
    if machine.gpu is None:
        told |= {"measured_bytes": 0, "measured_reserved_bytes": 0}
    if found.spilled:
        told |= {"measured_tokens_per_second": 0.0}
    return line.model_copy(update=told)
