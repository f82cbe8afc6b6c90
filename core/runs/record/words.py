"""The states and verdicts of a run in words, for pages and command line alike."""

from collections.abc import Sequence

from core.runs.record.job_record import State
from core.runs.record.outcome import Outcome, Verdict

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

VERDICT_WORDS: dict[Verdict, str] = {
    "better": "Better than before training",
    "no_better": "No better than before training",
    "worse": "Worse than before training",
    "unmeasured": "Not measured",
}

ADVICE: dict[Verdict, str] = {
    "better": "",
    "no_better": "Run again with more passes over the data or a higher learning rate; more rows help, too.",
    "worse": "Run again with a lower learning rate or fewer passes over the data; more rows help, too.",
    "unmeasured": "Compare the answers in Try. To have it measured, hold out a share of the rows in the next run.",
}
"""What to do; empty where nothing needs to be done."""


def outcome_line(became: Outcome) -> str:
    """ "Worse than before training: held-out loss 3.825 → 4.031 (step 100)", the step only where it is not the last
    measured one."""
    word = VERDICT_WORDS[became.verdict]
    if became.before is None or became.after is None:
        return f"{word}: no held-out loss from before and after training."
    step = f" (step {became.after.step:,})" if became.last != became.after.loss else ""
    return f"{word}: held-out loss {became.before:.3f} → {became.after.loss:.3f}{step}"


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
