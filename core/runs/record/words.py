"""The states and verdicts of a run in words, for pages and command line alike."""

from collections.abc import Sequence
from dataclasses import dataclass

from core.contract.methods import SHARES
from core.runs.record.job_record import State
from core.runs.record.outcome import Outcome, Readings, Verdict

STATE_WORDS: dict[State, str] = {
    "queued": "Waiting",
    "starting": "Starting",
    "training": "Training",
    "paused": "Paused",
    "finished": "Finished",
    "stopped": "Stopped",
    "failed": "Failed",
    "lost": "Interrupted",
    "unreadable": "Unreadable",
}


@dataclass(frozen=True)
class VerdictWords:
    """What is said of a verdict: in a list, in place of the run's state ("": the state's own), and what to do."""

    title: str
    state: str
    advice: str


VERDICTS: dict[Verdict, VerdictWords] = {
    "better": VerdictWords("It learned", "", "Ask it something that it was not trained on."),
    "no_better": VerdictWords(
        "It learned next to nothing", "", "Run it again with a higher learning rate or more epochs; more rows help too."
    ),
    "worse": VerdictWords(
        "Do not use this one: it got worse", "Came out worse", "Run it again with a lower learning rate."
    ),
    "by_heart": VerdictWords(
        "It began to learn rows by heart", "", "Next time train fewer epochs, or give it more rows."
    ),
    "diverged": VerdictWords(
        "Do not use this one: training diverged", "Diverged", "Run it again with a much lower learning rate."
    ),
    "unmeasured": VerdictWords(
        "Not measured",
        "",
        "Compare the answers in Try. To have it measured, hold out a share of the rows in the next run.",
    ),
}


def state_word(state: State, became: Outcome | None) -> str:
    """The state in a word; of a model that is not to be used, what became of it."""
    return (VERDICTS[became.verdict].state if became else "") or STATE_WORDS[state]


def outcome_line(became: Outcome) -> str:
    """One sentence without its full stop: "Do not use this one: it got worse, held-out loss 3.825 → 4.030 (step 100)".
    The step stands only where the best is not the last measured one."""
    row, after, last, course = VERDICTS[became.verdict], became.after, became.last, became.course
    if became.verdict == "diverged":
        how = "is no number any more"
        if not course.lost and course.begin is not None and course.end is not None:
            how = f"rose from {course.begin:.3f} to {course.end:.3f}"
        title = f"Training diverged after step {after.step:,}" if became.usable and after else row.title
        return f"{title}, its loss {how}"
    if became.before is None or after is None or last is None:
        return f"{row.title}: no held-out loss from before and after training"
    judged = became.judged
    first, best, then = (_figure(judged, one) for one in (judged.before, judged.after, judged.last))
    what = f"held-out {judged.name.replace('_', ' ')} {first} → {best}"
    if became.verdict == "by_heart":
        return f"{row.title} after step {after.step:,}: {what}, then {then}"
    step = f" (step {after.step:,})" if judged.last != judged.after else ""
    return f"{row.title}{',' if ':' in row.title else ':'} {what}{step}"


def _figure(readings: Readings, value: float | None) -> str:
    """A share to a per cent, all else to three places."""
    return f"{100 * (value or 0):.0f}%" if readings.name in SHARES else f"{value or 0:.3f}"


def damage_words(lines: int) -> str:
    """A sentence that counts the damaged or missing lines of a run's log; empty for none."""
    if not lines:
        return ""
    many = "1 line of this run's log is" if lines == 1 else f"{lines:,} lines of this run's log are"
    return f"{many} damaged or missing: what stood there is not shown."


def unknown_fields_words(fields: Sequence[str]) -> str:
    """A sentence that names run.yaml's fields of another version; empty for none."""
    if not fields:
        return ""
    more = f" and {len(fields) - 5:,} more" if len(fields) > 5 else ""
    named = ", ".join(fields[:5]) + more
    return f"run.yaml was written by another version; fields that this one does not know are left out: {named}."
