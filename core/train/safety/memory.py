"""Memory, judged and counted: what a process may take of a card, how a micro-batch gets smaller, when a card spills.

One that did not fit is halved; what one row needs is the least::

    rows that failed: t tokens ─► t / 2, at least ``least`` and their longest        one row alone: None

Under Windows the driver lends a full card the machine's memory over the bus, and steps get several times slower with no
error. The sign is both at once: no memory free on the card, and steps that take three times what steps of their size
took in this run::

    slow    seconds > 3 · max(tokens · median(seconds / token), median(seconds of a step))
    spill   three of the last five steps were slow with nothing free; or torch holds more than the card has

Counted per token since longer rows take longer, and never by less than a usual step, since short steps wait for Python.
"""

import gc
import statistics
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from core.estimate.fit import SPARE
from core.estimate.inputs.work import GIB
from core.estimate.terms import context_of
from core.model.faults import is_out_of_memory
from core.train.channel.reporter import EventReporter

T = TypeVar("T")
SLOWER = 3.0
NOTHING_FREE_BYTES = 128 * 2**20
FIRST_STEPS = 2
"""Steps in which kernels are compiled and memory is taken; nothing is learned from them."""
ENOUGH = 4
"""Steps from which a usual one is known."""
LATELY, OF_THEM = 5, 3
KEPT = 200
LEAST_SHARE = 0.05
"""No cap is set lower than this share of the card: a card that is nearly full has another message."""


def pass_tokens(lengths: Sequence[int], packed: bool) -> int:
    """What a micro-batch computes: the rows end to end, or each padded to the longest."""
    return sum(lengths) if packed else len(lengths) * max(lengths)


def state_bytes(optim: str) -> int:
    """What an optimiser keeps of each trained number: two moments, of one byte or of four."""
    return 2 if optim == "adamw_8bit" else 8


def halved(lengths: Sequence[int], packed: bool, least: int = 1) -> int | None:
    """Tokens a micro-batch after one of rows of these lengths did not fit; None where no smaller number cuts them.

    Args:
        least: not below it: the longest row of the data has to fit anyway, and short rows together are no larger.
    """
    if len(lengths) < 2:
        return None
    held = pass_tokens(lengths, packed)
    new = max(least, max(lengths), held // 2)
    return new if new < held else None


def may_allocate(memory_gib: float, device: torch.device) -> int:
    """What torch may allocate on the card: as chosen less the context, and no more than is free now."""
    if device.type != "cuda":
        return 0
    free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    context = context_of(torch.cuda.get_device_name(device))  # as the plan counts it
    return min(free, round(memory_gib * GIB) - context) if memory_gib else int(SPARE * free)


def cap_allocator(memory_gib: float, device: torch.device, wsl: bool) -> int:
    """On WSL torch may hold what the plan may use and no more; returns that in bytes, 0 where nothing was capped.

    There the driver does not say that a card is full: it takes the machine's memory, and Windows with it. With a cap
    torch says it itself, and micro-batches get smaller.
    """
    if not wsl or device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    allowed = min(may_allocate(memory_gib, device), int(SPARE * (free + torch.cuda.memory_reserved(device))))
    share = min(1.0, max(LEAST_SHARE, allowed / total))
    torch.cuda.set_per_process_memory_fraction(share, device)
    return int(share * total)


def there_for_us(device: torch.device) -> int:
    """What torch could hold of the card now: what is free and what it has, and no more than its cap."""
    free, total = torch.cuda.mem_get_info(device)
    cap = torch.cuda.get_per_process_memory_fraction(device) * total
    return int(min(free + torch.cuda.memory_reserved(device), cap))


def let_go_of(error: BaseException) -> None:
    """Frees what the frames of a failed call still hold, and gives the allocator's cache back to the card.

    To be called where the error is caught: its traceback keeps every frame and so every tensor of the failed call.
    """
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        before = seen.__cause__ or seen.__context__
        seen.__traceback__ = seen.__cause__ = seen.__context__ = None
        seen = before
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def once_more(work: Callable[[], T], reporter: EventReporter, what: str) -> T:
    """``work()``; where memory runs out it is done again after all that is not needed was freed, and that is said."""
    try:
        return work()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        let_go_of(error)
    hint = "What was free was given back, and it is done again."
    reporter.note(f"memory.{what}", f"The memory ran out in a {what}.", hint)
    return work()


@dataclass(frozen=True)
class Taken:
    """One step: real tokens, seconds without what is no step, and the card at its end; unknown is None."""

    tokens: int
    seconds: float
    free_bytes: int | None
    held_bytes: int | None = None
    """By torch's allocator."""
    total_bytes: int | None = None


def spill_factor(step: Taken, usual_seconds: float | None) -> float:
    """0 where this step shows no sign of spilled memory; else how many times longer than usual it took.

    Args:
        usual_seconds: of a step of its size; None where that is not known, and then the factor is 1.
    """
    times = step.seconds / usual_seconds if usual_seconds else 1.0
    full = step.free_bytes is not None and step.free_bytes < NOTHING_FREE_BYTES
    beyond = step.held_bytes is not None and step.total_bytes is not None and step.held_bytes > step.total_bytes
    return max(1.0, times) if beyond or (full and times > SLOWER) else 0.0


class SpillWatch:
    """Sees a card's memory reach into the machine's, from the steps of one attempt."""

    def __init__(self) -> None:
        self._seen = 0
        self._usual: deque[tuple[float, float]] = deque(maxlen=KEPT)
        self._lately: deque[bool] = deque(maxlen=LATELY)

    def begin_again(self) -> None:
        """After a cure: the next steps are looked at afresh, and what is usual stays known."""
        self._lately.clear()
        self._seen = FIRST_STEPS - 1

    def add(self, step: Taken) -> float:
        """0 where memory has not spilled; else how many times slower than usual steps are, 1 where that is unknown."""
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
