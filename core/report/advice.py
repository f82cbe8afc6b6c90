"""What to do next, in at most three sentences, each with the figures that it follows from.

Rules look at a report and at the run's held-out losses, the gravest first; of two that contradict each other the graver
one stands.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile

from core.report.schema import BAD, GOOD, Advice, Figure, HeldOut, Report

MOST = 3
FEW_ROWS = 20
"""Held-out rows below which most differences are chance."""
FORGOTTEN = 0.1
"""KL in nats a token from which a person notices: the model says other things than before."""
KNEW = 6.0
"""A loss in nats a token from which on the base knew nothing of such texts."""
RECITED = 24
"""Tokens of a training row said from its prompt alone that no chance explains."""
_GAP = 0.2
"""Share of the training loss by which the held-out one lies above it where rows are learned by heart."""
_FALLING = 0.01
_FULL, _EMPTY = 0.75, 0.25
_NO_KIND = ("others", BAD, "not sure")
_BEHIND = 0.5
"""A group learned little where its loss fell by less than this part of what all rows' fell."""


@dataclass(frozen=True)
class Course:
    """Held-out losses on the way: ``(step, loss)`` in order; the epochs of the run; and the step that did best, None
    where that is not known."""

    losses: tuple[tuple[int, float], ...] = ()
    epochs: float = 0.0
    best: int | None = None


def advice(report: Report, course: Course) -> tuple[Advice, ...]:
    """The sentences, the gravest first."""
    given: list[Advice] = []
    about: set[str] = set()
    for changed, says in _RULES:
        wanted = set(changed.split())
        if not wanted & about and (said := says(report, course)) is not None:
            given.append(said)
            about |= wanted
    return tuple(given[:MOST])


def _learned_wrong(report: Report, _course: Course) -> Advice | None:
    held_out = report.held_out
    if held_out is None or held_out.difference is None or held_out.change != "worse" or _prefers(held_out):
        return None
    text = "Look at the data and take a lower learning rate: after training it fits rows like these less well."
    return Advice(key="learned_wrong", text=text, reason=_course_of(held_out, "rose"))


def _learned_nothing(report: Report, _course: Course) -> Advice | None:
    held_out = report.held_out
    if held_out is None or held_out.difference is None or held_out.change != "same":
        return None
    if held_out.rows < FEW_ROWS or _prefers(held_out):
        return None
    text = "Take a higher learning rate or more epochs."
    return Advice(key="learned_nothing", text=text, reason=_course_of(held_out, "did not change measurably"))


def _course_of(held_out: HeldOut, said: str) -> str:
    before, after, difference = held_out.before, held_out.after, held_out.difference
    both = f"{before.value:.3f} before, {after.value:.3f} after" if before else f"{after.value:.3f}"
    return f"The held-out loss {said}: {both}" + (f", difference {_of(difference)}." if difference else ".")


def _prefers(held_out: HeldOut) -> bool:
    """Whether it tells good answers from bad ones better than before: what learning from pairs or marks is for, and may
    make both less likely."""
    before, after = held_out.accuracy_before, held_out.accuracy_after
    if before is not None and after is not None:
        return after.value > before.value
    moved = {group.name: group.difference.value for group in held_out.groups if group.difference}
    return GOOD in moved and BAD in moved and moved[BAD] > moved[GOOD]


def _by_heart(report: Report, _course: Course) -> Advice | None:
    known = report.memorising
    if known is None:
        return None
    # The most characters of a held-out row's answer that are said word for word: these are learned, not by heart.
    rows = report.answers.rows if report.answers else ()
    pairs = ((row.after.strip(), row.reference.strip()) for row in rows)
    alike = (takewhile(lambda both: both[0] == both[1], zip(*pair, strict=False)) for pair in pairs)
    expected = max((sum(1 for _ in same) for same in alike), default=0)
    recited = [one for one in known.recited if one.tokens >= RECITED and one.tokens > 2 * (one.before or 0)]
    recited = [one for one in recited if len(one.text) >= 2 * expected]
    gap, trained = known.gap, known.trained
    wide = (
        gap is not None and trained is not None and gap.low is not None and gap.low > 0
        and gap.value > _GAP * abs(trained.value)
    )  # fmt: skip
    if not wide and not recited:
        return None
    reasons = []
    if wide and trained and known.held_out:
        reasons.append(f"training rows have a loss of {trained.value:.3f}, held-out ones {known.held_out.value:.3f}")
    if recited:
        most = max(recited, key=lambda one: one.tokens)
        reasons.append(f"row {most.row} is said word for word for {most.tokens} tokens from its prompt alone")
    reason = " and ".join(reasons)
    text = "Train fewer epochs, or give more rows: it begins to learn rows by heart."
    return Advice(key="memorised", text=text, reason=f"{reason[:1].upper()}{reason[1:]}.")


def _past_the_best(_report: Report, course: Course) -> Advice | None:
    after = [(step, loss) for step, loss in course.losses if step > 0]
    if len(after) < 2:
        return None
    best, last = min(after, key=lambda one: one[1]), after[-1]
    if last[1] - best[1] <= _FALLING * abs(best[1]) or best[0] > 0.8 * last[0]:
        return None
    if course.best not in (None, best[0]):
        return None  # what the method itself measures was best at another step
    share = best[0] / max(1, last[0])
    epochs = f"about {max(0.1, course.epochs * share):.1f}" if course.epochs else "fewer"
    text = f"Train {epochs} epochs next time: after that it got worse."
    reason = f"The held-out loss was lowest at step {best[0]:,} ({best[1]:.3f}) and {last[1]:.3f} at step {last[0]:,}."
    return Advice(key="fewer_epochs", text=text, reason=reason)


def _still_falling(_report: Report, course: Course) -> Advice | None:
    after = [(step, loss) for step, loss in course.losses if step > 0]
    if len(after) < 2 or after[-1][1] > min(loss for _, loss in after):
        return None
    before, last, all_of_it = after[-2], after[-1], course.losses[0][1] - after[-1][1]
    if before[1] - last[1] <= max(_FALLING * abs(before[1]), _FALLING * all_of_it):
        return None
    reason = (
        f"The held-out loss still fell at the end: {before[1]:.3f} at step {before[0]:,}, {last[1]:.3f} at {last[0]:,}."
    )
    return Advice(key="more_epochs", text="Train more epochs: it had not learned all that it could.", reason=reason)


def _forgot(report: Report, _course: Course) -> Advice | None:
    worst = max(report.forgetting, key=lambda one: one.kl.value, default=None)
    if worst is None or worst.kl.value < FORGOTTEN or worst.change != "worse" or worst.before.value > KNEW:
        return None
    name = "general texts" if worst.name == "general" else worst.name
    groups = [one for one in worst.groups if one.change == "worse" and one.difference]
    most = max(groups, key=lambda one: one.difference.value if one.difference else 0.0, default=None)
    where = f", most on {most.name} ({_of(most.difference)})" if most and most.difference else ""
    text = "Mix general rows into the data, or take a lower learning rate or rank: it forgot some of what it knew."
    reason = f"On {name} the loss changed by {_of(worst.difference)}{where}; KL {worst.kl.value:.2f} nats per token."
    return Advice(key="forgot", text=text, reason=reason)


def _few_rows(report: Report, _course: Course) -> Advice | None:
    held_out = report.held_out
    if held_out is None or held_out.rows >= FEW_ROWS or held_out.change != "same":
        return None
    text = f"Hold out more rows: {held_out.rows} cannot tell learning from chance."
    difference = held_out.difference
    told = f"The difference is {_of(difference)}" if difference else "There is no interval"
    return Advice(key="few_rows", text=text, reason=f"{told}, from {held_out.rows} held-out rows.")


def _behind(report: Report, _course: Course) -> Advice | None:
    held_out = report.held_out
    if held_out is None or held_out.difference is None or held_out.change != "better":
        return None
    fall = held_out.difference.value
    slow = [
        (one.difference, one)
        for one in held_out.groups
        if one.difference and one.difference.low is not None and one.name not in _NO_KIND
        if one.change == "worse" or (one.difference.low > _BEHIND * fall and one.after.value > held_out.after.value)
    ]
    if not slow:
        return None
    difference, least = max(slow, key=lambda one: one[0].value)
    words = {"length": f"of {least.name} tokens", "language": f"in {least.name}"}.get(least.by, f"of {least.name!r}")
    return Advice(
        key="more_of_a_kind",
        text=f"Add rows {words}: they learned least.",
        reason=f"Their loss changed by {_of(difference)}, that of all rows by {fall:+.3f}; {least.rows} of "
        f"{held_out.rows} held-out rows are such.",
    )


def _rank(report: Report, course: Course) -> Advice | None:
    known = [one for one in report.moved.matrices if one.rank and one.norm] if report.moved else []
    known = [one for one in known if one.directions is not None and len(one.singular) >= min(one.rank, 8)]
    if report.learns == "everything" or not known:
        return None
    used = sorted((one.directions or 0) / one.rank for one in known)[len(known) // 2]
    rank = known[0].rank
    if used >= _FULL and _still_falling(report, course):
        text = f"Take a higher rank than {rank}: all directions of the adapter are in use."
    elif used <= _EMPTY and rank >= 16:
        text = f"A rank of {max(4, rank // 2)} would do: it makes a smaller adapter and forgets less."
    else:
        return None
    reason = f"In the middle matrix {used * rank:.0f} of {rank} directions hold nine tenths of the change."
    return Advice(key="rank", text=text, reason=reason)


_RULES: tuple[tuple[str, Callable[[Report, Course], Advice | None]], ...] = (
    ("epochs", _by_heart),
    ("data", _learned_wrong),
    ("epochs", _past_the_best),
    ("rate rank", _forgot),
    ("epochs rate", _learned_nothing),
    ("rows", _few_rows),
    ("epochs", _still_falling),
    ("kinds", _behind),
    ("rank", _rank),
)
"""What each wants changed, one word or several; of rules about one thing the first that speaks stands."""


def _of(figure: Figure) -> str:
    """A difference with its interval."""
    if figure.low is None or figure.high is None:
        return f"{figure.value:+.3f}"
    return f"{figure.value:+.3f} ({figure.low:+.3f} to {figure.high:+.3f})"
