"""A run's pace from its own steps: tokens a second, and the time that is left.

Steps differ in their tokens where rows differ in length, so time follows from tokens::

    left = tokens left / (tokens / seconds of own steps)  +  evaluations left × seconds of one  +  steps left × pause

The plan gives the run's tokens. The first three steps of an attempt warm up, and do not count where there are others.
Before ten own steps the result is a range, marked as estimated.
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
"""How many of the last steps count: the pace changes when the machine is used for other things."""


@dataclass(frozen=True)
class Left:
    """Seconds until the last step; ``low`` and ``high`` are equal unless ``estimated``."""

    low: float
    high: float
    estimated: bool

    @property
    def middle(self) -> float:
        """The mean of both."""
        return (self.low + self.high) / 2


def own_steps(steps: Sequence[Step]) -> list[Step]:
    """The steps of the newest attempt, without its first three where others are there."""
    if not steps:
        return []
    begin = bisect_left(steps, steps[-1].attempt, key=_attempt)  # steps are in the order of their attempts
    return list(steps[begin + WARM_UP :] if len(steps) - begin > WARM_UP else steps[begin:])


def rate_of(steps: Sequence[Step]) -> float:
    """Tokens a second within steps; 0 where nothing was measured."""
    seconds = sum(step.seconds for step in steps)
    return sum(step.tokens for step in steps) / seconds if seconds > 0 else 0.0


def time_left(record: RunRecord, config: RunConfig) -> Left | None:
    """What is left of a training run by its own pace; None before its first step."""
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
    """By the plan's tokens of an epoch where it has them, else by the mean of the steps so far."""
    if not plan.train_tokens or not plan.train_rows:
        mean = sum(map(_tokens, record.steps)) / len(record.steps)
        return max(0, plan.total_steps - record.last_step) * mean
    an_epoch = math.ceil(plan.train_rows / config.rows_per_step)
    first = record.last_step // an_epoch * an_epoch
    whole = first + an_epoch
    last = min(whole, plan.total_steps)
    # This epoch: its tokens less those of its steps so far, in proportion where the run ends within it.
    begin, end = (bisect_right(record.steps, number, key=_number) for number in (first, last))
    done = list(map(_tokens, record.steps[begin:end]))
    unknown = max(0, record.last_step - first - len(done)) * plan.train_tokens / an_epoch
    to_come = max(0.0, plan.train_tokens - sum(done) - unknown)
    now = to_come * max(0, last - record.last_step) / (whole - record.last_step)
    return now + max(0, plan.total_steps - whole) / an_epoch * plan.train_tokens


def _between(plan: Plan, record: RunRecord, config: RunConfig, own: Sequence[Step]) -> float:
    """Seconds of evaluations and pauses between steps, for the rest of the run. Pauses as long as STEP_SECONDS (sleep,
    a changed clock) are left out."""
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
