"""The plan: every automatic value made definite, so that a run fits the machine.

Dtype, optimiser and memory follow from the card; then checkpointing and tokens a micro-batch are chosen together. Of
what fits, the least time a token wins, as ``core.estimate.duration`` counts it for a micro-batch of usual size. "none"
keeps all activations of every micro-batch that may come. "budget" decides at each what it keeps, so that only the
longest one limits it; it wants our own layers and a card. Elsewhere what does not fit is recomputed.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product, takewhile
from typing import Any

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.contract.estimate import Resolved
from core.contract.optimisers import USUAL, USUAL_ON_CPU
from core.contract.weight_forms import DEFAULT_ARITHMETIC, SMALLEST_WEIGHT_FORM
from core.estimate.duration import seconds_per_token, streaming_seconds
from core.estimate.eight_bits import AUTO, KEY, choose, served
from core.estimate.inputs.cards import copy_rate, deciding, oldest, published_of, shared_by
from core.estimate.inputs.rows import Rows, rows_of, total_steps
from core.estimate.inputs.work import GIB, Policy, Work, most_proposed, most_streamed, policy_of, streams, work_of
from core.estimate.learned import Learned, likeness
from core.estimate.peak import peak_bytes
from core.estimate.reach import place
from core.estimate.terms import context_of, kept_there, pinned_bytes
from core.machine.hardware import Machine
from core.models.families import is_gemma
from core.models.suited import put, suited

SPARE = 0.9
"""The share of free memory that a plan may use: the allocator rounds up and leaves gaps."""
PINNED_SHARE = 0.5
"""The share of the machine's free memory that may always be pinned: about what WSL and Windows allow."""
MOST_SIZES = 4
"""Of micro-batches that are compared where layers stream: smaller ones hide less of the copies."""
LEAST_RANK, LEAST_TOKENS = 8, 256
"""The least that a run is asked for."""
HOST_BYTES = 3 * GIB
"""Resident size of a worker beside a card: libraries, CUDA's host side, and a part of the weights on its way."""
ABOVE_AVERAGE = 1.25
USEFUL_TOKENS = 2048
"""Of a micro-batch where nothing is known of the card's memory."""
MOST_TOKENS = 16_384
MOST_ROWS = 8
BUDGET_TOKENS = 8192
"""Longer micro-batches under a budget only recompute more."""
CPU_TOKENS = 2048
DEFAULT_EVERY = 50
MOST_EVERY = 200
STREAMED, TILE = "model.streamed_layers", "train.tile_tokens"
TILES = (32_768, 16_384, 8192, 4096, 2048)
"""Tokens of the tiles that are tried where a row does not fit whole: the larger, the fewer launches."""
HOST_SHARE = 0.85
"""The share of the machine's free memory that inputs and streamed weights may take together."""
Choice = tuple[str, Any, str]
"""Dotted key, value, reason."""


def resolve(
    config: RunConfig, spec: ModelSpec, facts: DataFacts | None, machine: Machine, learned: Learned | None = None
) -> tuple[RunConfig, list[Resolved]]:
    """Fills in what follows from the model; dtype, optimiser, memory, checkpointing, tokens a micro-batch, and how
    often to measure and save.

    Returns:
        the complete config, and one line for every value that was chosen here, not by hand.
    """
    config, lines = suited(config, spec)
    config, placed = place(config, spec, facts)
    config, more = plan(config, spec, rows_of(config, facts), machine, learned)
    return config, [*lines, *placed, *more]


def plan(
    config: RunConfig, spec: ModelSpec, rows: Rows, machine: Machine, learned: Learned | None = None
) -> tuple[RunConfig, list[Resolved]]:
    """``resolve``, from the data's numbers.

    Where earlier runs like this one took more than counted, and that would exceed the limit, the plan is made again
    with so much less memory. Of several cards each has to be able to keep it.
    """
    machine, rows = deciding(machine), shared_by(rows, machine)
    if config.train.arithmetic == AUTO:
        return _plan_of_auto(config, spec, rows, machine, learned)
    machine = measured(machine, learned)
    counted, lines = _planned(config, spec, rows, machine, 1.0)
    limit = limit_bytes(counted, machine)
    if config.train.memory_gib or machine.gpu is None or learned is None or limit is None:
        return counted, lines
    work = pass_work(counted, spec, rows, machine, pass_tokens(counted, rows))
    more = learned.memory(likeness(counted, spec, rows, machine, work)).reserved
    if more <= 1 or more * peak_bytes(work) <= limit:
        return counted, lines
    return _planned(config, spec, rows, machine, more)


def _plan_of_auto(
    config: RunConfig, spec: ModelSpec, rows: Rows, machine: Machine, learned: Learned | None
) -> tuple[RunConfig, list[Resolved]]:
    """The arithmetic by a plan for 16 bits, then the plan for it; where a trial may yet decide otherwise, that for 16
    bits if it holds for both."""
    sixteen, lines = plan(put(config, KEY, DEFAULT_ARITHMETIC), spec, rows, machine, learned)
    tokens = usual_tokens(sixteen, rows, pass_tokens(sixteen, rows))
    chosen = choose(sixteen, spec, machine, learned or Learned(), tokens)
    line = Resolved(key=KEY, value=chosen.name, reason=chosen.reason)
    if chosen.name == DEFAULT_ARITHMETIC:
        return sixteen, [line, *lines]
    both, limit = put(sixteen, KEY, chosen.name), limit_bytes(sixteen, machine)
    peak = peak_bytes(pass_work(both, spec, rows, machine, pass_tokens(both, rows)))
    if chosen.untried and (limit is None or peak <= limit):
        return both, [line, *lines]
    full, lines = plan(put(config, KEY, chosen.name), spec, rows, machine, learned)
    return full, [line, *lines]


def measured(machine: Machine, learned: Learned | None) -> Machine:
    """The machine with what earlier runs measured of the way to its card."""
    if machine.gpu is None or learned is None:
        return machine
    return replace(machine, copy_bytes_a_second=learned.copy_rate(machine.gpu.name, machine.cards.ranks))


def _planned(
    config: RunConfig, spec: ModelSpec, rows: Rows, machine: Machine, more: float
) -> tuple[RunConfig, list[Resolved]]:
    """The plan, each part from what those before it chose; ``more``: measured over counted memory of earlier runs."""
    lines: list[Resolved] = []
    parts: tuple[Callable[[RunConfig], Iterator[Choice]], ...] = (
        lambda config: _arithmetic(config, spec, machine),
        lambda config: ((line.key, line.value, line.reason) for line in served(config, spec, machine)[1]),
        lambda config: _memory(config, machine, more),
        lambda config: _micro_batch(config, spec, rows, machine),
        lambda config: _intervals(config, rows),
    )
    for part in parts:
        for key, value, reason in part(config):
            config = put(config, key, value)
            lines.append(Resolved(key=key, value=str(value), reason=reason))
    # All on the card, and rows in one piece, are what everybody expects: no line says so.
    config = put(config, STREAMED, min(max(0, config.model.streamed_layers), most_streamed(config, spec)))
    return put(config, TILE, max(0, config.train.tile_tokens)), lines


def free_bytes(machine: Machine) -> int | None:
    """The card's free memory, or a process's share of the machine's on a CPU; None where unknown."""
    return machine.gpu.free_bytes if machine.gpu else machine.ram_free_bytes // machine.cards.ranks


def limit_bytes(config: RunConfig, machine: Machine) -> int | None:
    """What the run may use of that: as chosen, else nine tenths; None where neither is known."""
    free = free_bytes(machine)
    if machine.gpu and config.train.memory_gib:
        chosen = round(config.train.memory_gib * GIB)
        return chosen if free is None else min(chosen, free)
    return None if free is None else int(SPARE * free)


def row_tokens(config: RunConfig, rows: Rows) -> int:
    """Tokens of the largest row in a micro-batch: a pair brings both sides, padded to the longer without packing."""
    return rows.most if config.train.packing else rows.longest * rows.sides


def step_tokens(config: RunConfig, rows: Rows) -> int:
    """Tokens of the fullest step, on the fullest of its cards; without packing every row counts as the longest."""
    row = row_tokens(config, rows)
    full = row * rows.of_step(config.rows_per_step)
    if not (config.train.packing or rows.even):
        return full
    cards = 1 if rows.unlike else rows.shared
    more = row if cards > 1 else 0  # by which the fullest card's share may be above the mean
    return min(full, max(row, rows.fullest // cards + more))


def pass_tokens(config: RunConfig, rows: Rows) -> int:
    """Tokens of the largest micro-batch: as chosen, between the longest row and the fullest step."""
    return max(row_tokens(config, rows), min(config.train.tokens_per_pass, step_tokens(config, rows)))


def pass_work(config: RunConfig, spec: ModelSpec, rows: Rows, machine: Machine, tokens: int) -> Work:
    """The largest micro-batch, of so many tokens. Padded rows of equal length need no mask."""
    work = work_of(config, spec, tokens, machine.gpu is not None, rows.longest, limit_bytes(config, machine))
    context = context_of(machine.gpu.name) if machine.gpu else 0
    if not config.train.packing and not rows.even:
        work = replace(work, model=replace(work.model, masked=True))
    if rows.labels and work.model.scores:
        work = replace(work, model=replace(work.model, scores=rows.labels))
    rate = copy_rate(machine)
    single = tokens >= step_tokens(config, rows)
    return replace(work, single=single, varied=not rows.even, context_bytes=context, copy_rate=rate)


def usual_tokens(config: RunConfig, rows: Rows, most: int) -> int:
    """Tokens of a usual micro-batch where none may have more than ``most``: an average step in equal parts, as many as
    a step a quarter above the average needs."""
    average = config.rows_per_step * (rows.mean * rows.sides if rows.known else row_tokens(config, rows)) / rows.shared
    parts = math.ceil(min(step_tokens(config, rows), ABOVE_AVERAGE * average) / most)
    return max(1, min(most, round(average / max(1, parts))))


def _arithmetic(config: RunConfig, spec: ModelSpec, machine: Machine) -> Iterator[Choice]:
    card = oldest(machine)
    if config.model.dtype == "auto":
        if card is None:
            yield "model.dtype", "float32", "the CPU computes fastest and most exactly in 32 bits"
        elif card.bf16:
            yield "model.dtype", "bfloat16", f"{card.name} has it"
        elif is_gemma(spec.model_type):
            yield "model.dtype", "float32", f"{card.name} has no bfloat16, and Gemma overflows in float16"
        else:
            yield "model.dtype", "float16", f"{card.name} has no bfloat16"
    if config.train.optim == "auto":
        if card is None:
            yield "train.optim", USUAL_ON_CPU, "on the CPU memory is no worry"
        else:
            yield "train.optim", USUAL, "a quarter of the memory for the same result"


def _memory(config: RunConfig, machine: Machine, more: float) -> Iterator[Choice]:
    free = machine.gpu.free_bytes if machine.gpu else None
    if config.train.memory_gib == 0 and free is not None:
        share = math.floor(SPARE / more * free / GIB * 100) / 100
        earlier = f", as runs like this one took {more - 1:.0%} more than counted" if more > 1 else ""
        if share:
            yield "train.memory_gib", share, f"{SPARE / more:.0%} of the {free / GIB:.1f} GB that are free{earlier}"


def _micro_batch(config: RunConfig, spec: ModelSpec, rows: Rows, machine: Machine) -> Iterator[Choice]:
    """Checkpointing and tokens a micro-batch, together."""
    limit, sizes = limit_bytes(config, machine), _sizes(config, rows, gpu=machine.gpu is not None)
    fast = work_of(config, spec, 1, machine.gpu is not None).model.fast
    policies: tuple[str, ...] = ("none", "budget", "recompute") if fast else ("none", "recompute")  # the fastest first
    if config.train.checkpointing != "auto":
        policies = (config.train.checkpointing,)
    best = None if limit is None else _best(config, spec, rows, machine, policies, limit)
    ours = config.model.streamed_layers < 0 and streams(spec, config, machine.gpu is not None)
    row = row_tokens(config, rows)
    tiles = [tile for tile in TILES if tile < row] if fast and config.train.tile_tokens < 0 and limit else []
    if best is None and limit is not None and ours and _larger_than_card(config, spec, rows, machine, limit):
        counts = range(spec.shape.num_hidden_layers, most_proposed(config, spec) + 1)  # the last with the head
        for count, tile in product(counts, (config.train.tile_tokens, *tiles)):
            found = _streamed(put(put(config, TILE, tile), STREAMED, count), spec, rows, machine, policies, limit)
            if (best := found[0]) is not None:
                if tile in tiles:
                    yield TILE, tile, f"else a row of {row:,} tokens does not fit"
                yield STREAMED, *found[1:]
                break
    elif best is None:
        for tile in tiles:
            best = _best(put(config, TILE, tile), spec, rows, machine, policies, limit or 0)
            if best is not None or tile == tiles[-1]:  # else what needs least memory
                yield TILE, tile, f"else a row of {row:,} tokens does not fit; attention sees it whole"
                break
    if best is not None:
        policy, tokens = best
    else:  # what needs least memory
        policy = "budget" if "budget" in policies else policies[-1]
        tokens = sizes[-1] if limit is not None else min(sizes[0], max(sizes[-1], USEFUL_TOKENS))
    if config.train.checkpointing == "auto":
        if policy == "none":
            reason = "everything fits as it is, which is faster"
        elif limit is None:
            reason = "the card does not say what is free"
        else:
            reason = "each pass keeps what fits, and recomputes the rest"
            reason = reason if policy == "budget" else "else a pass would not fit"
        yield "train.checkpointing", policy, reason
    if config.train.tokens_per_pass == 0:
        alone = best is None and limit is not None
        yield "train.tokens_per_pass", tokens, "the longest row, alone" if alone else "the fastest that fits"


def _best(
    config: RunConfig, spec: ModelSpec, rows: Rows, machine: Machine, policies: Sequence[str], limit: int
) -> tuple[str, int] | None:
    """Policy and tokens of the fastest micro-batch that fits; of equals the one that keeps everything, then the
    larger."""
    sizes = _sizes(config, rows, gpu=machine.gpu is not None)
    best, least = None, math.inf
    largest = max(BUDGET_TOKENS, row_tokens(config, rows))
    base, card = pass_work(config, spec, rows, machine, sizes[0]), published_of(machine)

    def fits(work: Work) -> bool:
        return peak_bytes(work) <= limit and has_room(work, machine)

    for policy in policies:
        own = policy_of(policy, base.model.gpu, base.model.fast)
        for work in _fitting(base, own, sizes, fits):
            if own == "budget" and work.tokens > largest and not config.train.tokens_per_pass:
                break
            cost = seconds_per_token(work.at(usual_tokens(config, rows, work.tokens)), rows.seen, card)
            if cost < least or (cost == least and best is not None and policy == best[0] == "budget"):
                best, least = (policy, work.tokens), cost
    return best


def has_room(work: Work, machine: Machine) -> bool:
    """Whether the machine's own memory holds the layer inputs of every card, and weights that stream from it."""
    free, cards = machine.ram_free_bytes, machine.cards.ranks
    both = kept_there(work, cards) <= HOST_SHARE * free - cards * HOST_BYTES
    if cards * pinned_bytes(work) > PINNED_SHARE * free:
        return both and not machine.pins_little
    return both or not work.model.streamed


def _larger_than_card(config: RunConfig, spec: ModelSpec, rows: Rows, machine: Machine, limit: int) -> bool:
    """Whether the model does not fit however little is asked of it: a short row, a low rank, weights in 4 bits. Where
    one of these helps, streaming is a proposal among others (``core.estimate.suggest``)."""
    least = put(config, "lora.r", min(config.lora.r, LEAST_RANK))
    if SMALLEST_WEIGHT_FORM.name in config.learns.weight_forms:
        least = put(least, "model.quantization", SMALLEST_WEIGHT_FORM.name)
    work = pass_work(least, spec, rows, machine, LEAST_TOKENS)
    return peak_bytes(work.at(LEAST_TOKENS, policy_of("offload", work.model.gpu, work.model.fast))) > limit


def _streamed(
    config: RunConfig, spec: ModelSpec, rows: Rows, machine: Machine, policies: Sequence[str], limit: int
) -> tuple[tuple[str, int] | None, int, str]:
    """Where nothing fits with all weights on the card: policy and tokens of the fastest micro-batch with as few of the
    config's streamed layers as make it fit, or all where the head streams too, their number, and why at what cost."""
    sizes, layers = _sizes(config, rows, gpu=True), config.model.streamed_layers
    base, card = pass_work(config, spec, rows, machine, sizes[0]), published_of(machine)
    policy, least = next((one for one in policies if one == "budget"), policies[-1]), math.inf
    own, a_layer = policy_of(policy, base.model.gpu, base.model.fast), base.model.streamed_layer_bytes
    lean: Policy = "offload" if own == "budget" else own  # a budget keeps what there is room for, and counts no more
    chosen_work: Work | None = None
    for tokens in [size for size in sizes if size <= max(BUDGET_TOKENS, sizes[-1])][:MOST_SIZES]:
        work = base.at(tokens, lean, single=tokens >= sizes[0] and base.single)
        if (over := peak_bytes(work) - limit) > 0:
            continue
        here = 0 if base.model.streamed_head else -over // a_layer  # each that does not stream takes its own bytes
        work = work.at(tokens, own).streaming(max(1, layers - here))
        cost = seconds_per_token(work.at(usual_tokens(config, rows, tokens)), rows.seen, card)
        if cost < least and has_room(work, machine):
            chosen_work, least = work, cost
    while chosen_work is not None and peak_bytes(chosen_work) > limit:  # the budget's own gaps
        more = chosen_work.model.streamed + 1
        chosen_work = chosen_work.streaming(more) if more <= layers else None
    if chosen_work is None:
        return None, 0, ""
    extra = streaming_seconds(chosen_work, rows.seen, card)
    costs = f"adds about {extra:.1f} s to a pass" if extra >= 0.05 else "copied while others compute"
    once = f" once for all {rows.shared} cards" if rows.shared > 1 else ""
    head = ", with the head," if chosen_work.model.streamed_head else ""
    held = f"{chosen_work.model.host_weights_bytes / GIB:.1f} GB of them{head} in the machine's memory{once}"
    return (policy, chosen_work.tokens), chosen_work.model.streamed, f"else the weights do not fit; {held}, {costs}"


def _fitting(base: Work, policy: Policy, sizes: Sequence[int], fits: Callable[[Work], bool]) -> Iterator[Work]:
    """The sizes worth comparing: under a budget all that fit, the smallest first; else the largest that fits.

    A whole step in one micro-batch may fit where a part of it does not: no gradient of an earlier one stands beside it.
    """
    works = [base.at(tokens, policy, single=tokens >= sizes[0] and base.single) for tokens in sizes]
    if policy == "budget":
        yield from takewhile(fits, reversed(works))
    elif fits(works[0]):
        yield works[0]
    else:
        first = bisect_left(range(len(works)), True, lo=1, key=lambda place: fits(works[place]))
        yield from works[first : first + 1]


def _sizes(config: RunConfig, rows: Rows, gpu: bool) -> list[int]:
    """Tokens worth trying, largest first: a whole step, powers of two and multiples of the longest row, down to it."""
    row = row_tokens(config, rows)
    if config.train.tokens_per_pass:
        return [pass_tokens(config, rows)]
    most = max(row, min(step_tokens(config, rows), MOST_TOKENS if gpu else CPU_TOKENS))
    powers = [2**power for power in range(23, 4, -1)]
    some_rows = [row * count for count in range(1, MOST_ROWS + 1)]
    return [most, *sorted({size for size in (*powers, *some_rows) if row <= size < most}, reverse=True)]


def _intervals(config: RunConfig, rows: Rows) -> Iterator[Choice]:
    steps = total_steps(config, rows.train) if rows.known else config.train.max_steps
    every = max(1, min(steps // 10, MOST_EVERY)) if steps else DEFAULT_EVERY
    reason = "the number of steps is not known yet"
    if steps:
        reason = f"about ten times over {steps:,} steps" if steps >= 10 else "after each of so few steps"
        reason = reason if steps <= 10 * MOST_EVERY else "often enough to keep the best"
    if config.train.eval_steps == 0:
        yield "train.eval_steps", every, reason
    if config.train.save_steps == 0:
        yield "train.save_steps", config.train.eval_steps or every, "with each measurement, so that the best is kept"


def chosen(config: RunConfig, key: str) -> Any:
    """What stands under one key, dotted or not."""
    part, _, field = key.partition(".")
    return getattr(getattr(config, part), field) if field else getattr(config, part)
