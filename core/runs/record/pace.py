"""A run's pace from its own steps: tokens a second, memory, and the time that is left.

Steps differ by a third in their tokens where rows differ in length, so time follows from tokens, not from steps::

    left = tokens left / (tokens / seconds of own steps)  +  measurements left × seconds of one  +  saves left × ...

Tokens of the whole run are known from the plan. The first three steps of an attempt compile and warm up; they do not
count where there are others. Before ten own steps what is said is a range, and called estimated.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from statistics import median

from core.contract.config import RunConfig
from core.contract.events import Plan, Step
from core.runs.record.job_record import RunRecord
from core.runs.record.stall import STEP_SECONDS

SURE_STEPS = 10
WARM_UP = 3
EARLY_SPREAD = 0.25
_attempt, _number = attrgetter("attempt"), attrgetter("step")
_tokens: Callable[[Step], int] = attrgetter("tokens")
RECENT = 50
"""So many of the last steps tell the pace: a machine that is used for other things changes its own."""


@dataclass(frozen=True)
class Left:
    """Seconds until the last step (low, high); the same twice once it is no estimate of the first steps any more."""

    low: float
    high: float
    estimated: bool

    @property
    def middle(self) -> float:
        """One number for both."""
        return (self.low + self.high) / 2


def own_steps(steps: Sequence[Step]) -> list[Step]:
    """The steps of the newest attempt, without its first three where others are there."""
    if not steps:
        return []
    begin = bisect_left(steps, steps[-1].attempt, key=_attempt)  # attempts follow each other; a night is not walked
    return list(steps[begin + WARM_UP :] if len(steps) - begin > WARM_UP else steps[begin:])


def rate_of(steps: Sequence[Step]) -> float:
    """Tokens a second within steps; 0 where nothing was measured."""
    seconds = sum(step.seconds for step in steps)
    return sum(step.tokens for step in steps) / seconds if seconds > 0 else 0.0


def time_left(record: RunRecord, config: RunConfig) -> Left | None:
    """What is left of a training run by its own pace; None before its first step and where it does not train."""
    plan = record.plan
    if record.state != "training" or plan is None or not plan.total_steps or not record.steps:
        return None
    own = own_steps(record.steps)[-RECENT:]
    rate = rate_of(own)
    if rate <= 0:
        return None
    left = _tokens_left(plan, record, config) / rate + _between(plan, record, config, own)
    if len(own) + WARM_UP >= SURE_STEPS:
        return Left(left, left, estimated=False)
    return Left(left * (1 - EARLY_SPREAD), left * (1 + EARLY_SPREAD), estimated=True)


def _tokens_left(plan: Plan, record: RunRecord, config: RunConfig) -> float:
    """By the plan's count of an epoch where it has one, else by the mean of the steps so far."""
    if not plan.train_tokens or not plan.train_rows:
        mean = sum(map(_tokens, record.steps)) / len(record.steps)
        return max(0, plan.total_steps - record.last_step) * mean
    an_epoch = math.ceil(plan.train_rows / config.rows_per_step)
    first = record.last_step // an_epoch * an_epoch
    whole = first + an_epoch
    last = min(whole, plan.total_steps)
    # Of this epoch: what it has, less what its steps had; a part of it in proportion.
    begin, end = (bisect_right(record.steps, number, key=_number) for number in (first, last))
    done = list(map(_tokens, record.steps[begin:end]))
    unknown = max(0, record.last_step - first - len(done)) * plan.train_tokens / an_epoch
    to_come = max(0.0, plan.train_tokens - sum(done) - unknown)
    now = to_come * max(0, last - record.last_step) / (whole - record.last_step)
    return now + max(0, plan.total_steps - whole) / an_epoch * plan.train_tokens


def _between(plan: Plan, record: RunRecord, config: RunConfig, own: Sequence[Step]) -> float:
    """Measurements, and whatever else lies between steps, for the rest of the run. A night's sleep and a clock that was
    set lie between two steps as well: what is longer than a step may be silent says nothing of the others."""
    took = {evaluation.step: evaluation.seconds for evaluation in record.evaluations}
    every = config.train.eval_steps
    now, to_come = record.last_step, 0
    if plan.eval_rows:
        to_come = 1 + ((plan.total_steps - 1) // every - now // every if every else 0)
        to_come += bool(every) and 0 < now < plan.total_steps and now % every == 0 and now not in took
    gaps = [
        max(0.0, gap)
        for before, after in pairwise(own)
        if after.step == before.step + 1
        and abs(gap := after.at - before.at - after.seconds - took.get(before.step, 0.0)) < STEP_SECONDS
    ]
    aside = sum(gaps) / len(gaps) if gaps else 0.0
    measuring = median(took.values()) if took else 0.0
    return max(0, to_come) * measuring + max(0, plan.total_steps - now) * aside
