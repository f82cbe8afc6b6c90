"""Which step of a run a probe measures, and the line that it leaves for the planner. Imports no torch."""

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.contract.estimate import LearnedRun, Probe
from core.data.deal.packing import cut
from core.estimate import probed
from core.estimate.inputs.rows import computed_lengths, dealt_steps, learned_lengths
from core.machine.hardware import Machine
from core.train.ranks.share import shares

MOST_ROWS = 100_000
"""The longest step is searched among so many rows."""
PROBE_RUN = "probe-"
"""Begins the ``run_id`` of a probe's line."""


def longest_step(config: RunConfig, facts: DataFacts | None, cards: int = 1) -> list[int]:
    """What each row of the largest step computes, in tokens, a pair's sides together: of the step with the largest
    micro-batch, then with the most tokens. Of several alike cards, of the largest share that one of them has.

    Steps are dealt as in the run. Without data every row is full; of a sample the longest rows make the step.
    """
    most, limit = -(-config.rows_per_step // cards), config.train.max_length
    if facts is None or not facts.lengths:
        return [limit * config.learning.answers] * most
    lengths = _computed(config, facts)
    if facts.sampled or facts.rows != len(facts.lengths):
        return sorted(lengths, reverse=True)[:most]
    steps: set[tuple[int, ...]] = {
        tuple(lengths[step[place]] for place in share)
        for step in dealt_steps(config, facts, MOST_ROWS)
        for share in shares([lengths[row] for row in step], [1.0] * cards)
        if share
    }

    def height(step: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
        if not config.train.packing:
            return max(step), sum(step), step  # padded to the longest row
        micro_batches = cut(list(step), config.train.tokens_per_pass)
        return max(sum(step[place] for place in places) for places in micro_batches), sum(step), step

    longest: tuple[int, ...] = max(steps, key=height)
    return list(longest)


def _computed(config: RunConfig, facts: DataFacts) -> list[int]:
    """Tokens that a micro-batch computes for each row; without packing all its sides have the longest one's length."""
    limit = config.train.max_length
    if config.train.packing:
        computed, most = computed_lengths(config, facts)
        return [min(length, most) for length in computed.given]
    return [config.learning.answers * min(length, limit) for length in learned_lengths(facts, limit)]


def lesson(
    result: Probe, config: RunConfig, spec: ModelSpec, facts: DataFacts | None, machine: Machine, at: float
) -> LearnedRun:
    """The line of ``learned.jsonl`` that a probe leaves: what was predicted without corrections, and what it took.

    No memory on the CPU, where a process holds more than its tensors, and no speed of a card that spilled, that was
    tried for unlike ones, or that had for itself a bus over which several will stream.

    Args:
        config: of the probe, without automatic values.
        machine: with the cards of the run; the line is of one of them.
        at: seconds since 1970.
    """
    line = probed(result, config, spec, facts, machine)
    told: dict[str, object] = {"run_id": f"{PROBE_RUN}{at:.0f}", "at": at}
    if machine.gpu is None:
        told |= {"measured_bytes": 0, "measured_reserved_bytes": 0}
    if result.spilled or line.cards > 1 or (line.streamed and machine.cards.ranks > 1):
        told |= {"measured_tokens_per_second": 0.0}
    return line.model_copy(update=told)
