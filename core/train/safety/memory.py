"""Memory: what a process may take of a card, how a micro-batch gets smaller, when a card spills.

Under Windows the driver lends a full card the machine's memory over the bus, and steps get several times slower without
an error. Recognised by::

    slow    seconds > 3 · max(tokens · median(seconds / token), median(seconds of a step))
    spill   three of the last five steps were slow with nothing free; or torch holds more than the card has

The second median is there since short steps wait for Python.
"""

import gc
import statistics
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from transformers import TrainingArguments
from transformers.training_args import OptimizerNames

from core.contract.optimisers import MATRICES, AskedOptimiser, OptimiserName, optimiser_of, part_of
from core.estimate.fit import SPARE
from core.estimate.inputs.work import GIB
from core.estimate.terms import context_of
from core.model.adapters import Trained, of_layer
from core.model.faults import is_out_of_memory
from core.train.channel.reporter import EventReporter

T = TypeVar("T")
SLOWER = 3.0
NOTHING_FREE_BYTES = 128 * 2**20
FIRST_STEPS = 2
"""Steps that are not timed: kernels are compiled and memory is taken."""
ENOUGH = 4
"""Steps before medians count."""
LATELY, OF_THEM = 5, 3
KEPT = 200
LEAST_SHARE = 0.05
"""Lowest cap, as a share of the card: a card that is nearly full has another message."""


def pass_tokens(lengths: Sequence[int], packed: bool) -> int:
    """Tokens that a micro-batch computes: the rows end to end, or each padded to the longest."""
    return sum(lengths) if packed else len(lengths) * max(lengths)


def asked_optimiser(args: TrainingArguments) -> OptimiserName:
    """The optimiser that TrainingArguments name, or of whose name they have only ``others``'."""
    said: Any = args.optim_args.removeprefix(MATRICES) if args.optim_args else OptimizerNames(args.optim).value
    return cast(OptimiserName, said)


def state_bytes(optim: AskedOptimiser, trained: Trained, paged: bool = False) -> int:
    """What an optimiser's state of the trained parameters will take, those of 16 bits as if they had 32.

    Args:
        paged: with what leaves the card where it is full.
    """
    total, optimiser = 0, optimiser_of(optim, gpu=True)
    for name, parameter in trained.named:
        row = part_of(optimiser, of_layer(name, parameter))
        total += (row.state_bytes if paged else row.card_bytes)(parameter.shape, max(4, parameter.itemsize))
    return total


def halved(lengths: Sequence[int], packed: bool, least: int = 1) -> int | None:
    """Tokens a micro-batch after one of rows of these lengths did not fit; None where no smaller number cuts them.

    Args:
        least: lower bound: the data's longest row, which has to fit anyway.
    """
    if len(lengths) < 2:
        return None
    held = pass_tokens(lengths, packed)
    new = max(least, max(lengths), held // 2)
    return new if new < held else None


def may_allocate(memory_gib: float, device: torch.device) -> int:
    """Bytes that torch may allocate on the card: as chosen less the context, and no more than is free now."""
    if device.type != "cuda":
        return 0
    free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    context = context_of(torch.cuda.get_device_name(device))  # as the plan counts it
    return min(free, round(memory_gib * GIB) - context) if memory_gib else int(SPARE * free)


def cap_allocator(memory_gib: float, device: torch.device, wsl: bool) -> int:
    """Caps torch's allocator on WSL, where the driver never reports a full card; returns bytes, 0: not capped.

    With a cap torch runs out of memory by itself, and micro-batches get smaller.
    """
    if not wsl or device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    allowed = min(may_allocate(memory_gib, device), int(SPARE * (free + torch.cuda.memory_reserved(device))))
    share = min(1.0, max(LEAST_SHARE, allowed / total))
    torch.cuda.set_per_process_memory_fraction(share, device)
    return int(share * total)


def there_for_us(device: torch.device) -> int:
    """Bytes that torch could hold of the card now: what is free and what it has, up to its cap."""
    free, total = torch.cuda.mem_get_info(device)
    cap = torch.cuda.get_per_process_memory_fraction(device) * total
    return int(min(free + torch.cuda.memory_reserved(device), cap))


def let_go_of(error: BaseException) -> None:
    """Frees the tensors that a caught error's traceback keeps, and gives the allocator's cache back to the card."""
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        before = seen.__cause__ or seen.__context__
        seen.__traceback__ = seen.__cause__ = seen.__context__ = None
        seen = before
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def saved_once_more(work: Callable[[], T], reporter: EventReporter) -> T:
    """``work()``, which saves; where memory runs out, noted and done once more after unused memory was freed."""
    try:
        return work()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        let_go_of(error)
    hint = "What was free was given back, and it is done again."
    reporter.note("memory.checkpoint", "The memory ran out in a checkpoint.", hint)
    return work()


@dataclass(frozen=True)
class Taken:
    """One step: real tokens, seconds, and the card's memory at its end; None where unknown."""

    tokens: int
    seconds: float
    free_bytes: int | None
    held_bytes: int | None = None
    """By torch's allocator."""
    total_bytes: int | None = None


def spill_factor(step: Taken, usual_seconds: float | None) -> float:
    """0 without a sign of spilled memory; else how many times longer than usual the step took, at least 1.

    Args:
        usual_seconds: of a step of its size; None: unknown.
    """
    times = step.seconds / usual_seconds if usual_seconds else 1.0
    full = step.free_bytes is not None and step.free_bytes < NOTHING_FREE_BYTES
    beyond = step.held_bytes is not None and step.total_bytes is not None and step.held_bytes > step.total_bytes
    return max(1.0, times) if beyond or (full and times > SLOWER) else 0.0


class SpillWatch:
    """Recognises spilled memory from the steps of one attempt."""

    def __init__(self) -> None:
        self._seen = 0
        self._usual: deque[tuple[float, float]] = deque(maxlen=KEPT)
        self._lately: deque[bool] = deque(maxlen=LATELY)

    def begin_again(self) -> None:
        """Forgets recent slow steps, after a cure; medians are kept."""
        self._lately.clear()
        self._seen = FIRST_STEPS - 1

    def add(self, step: Taken) -> float:
        """0 where memory has not spilled; else how many times slower than usual steps are, 1: unknown."""
        self._seen += 1
        if self._seen <= FIRST_STEPS or not step.tokens or step.seconds <= 0:
            return 0.0
        usual = None
        if len(self._usual) >= ENOUGH:
            a_token, a_step = (statistics.median(values) for values in zip(*self._usual, strict=True))
            usual = max(step.tokens * a_token, a_step)
        factor = spill_factor(step, usual)
        self._lately.append(factor > 0)
        if not factor:
            self._usual.append((step.seconds / step.tokens, step.seconds))
        return max(1.0, factor) if sum(self._lately) >= OF_THEM else 0.0
