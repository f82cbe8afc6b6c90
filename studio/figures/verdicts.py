"""What became of a run, as pages show it: in words and colour, and which of its checkpoints is the one that is used."""

from core.runs.folder.job_folder import JobFolder, checkpoint_step
from core.runs.record.outcome import Outcome, by_merit, standing
from core.runs.record.words import ADVICE, outcome_line
from studio.words.runs import STATES
from studio.words.text import say

_TONES = {"better": "good", "no_better": "wait", "worse": "bad", "unmeasured": "quiet"}


def tone_of(state: str, found: Outcome | None) -> str:
    """The colour of a state; a finished run has that of what became of it."""
    return _TONES[found.verdict] if found and state == "finished" else STATES[state][1]


def verdict_of(found: Outcome | None, used: str = "") -> dict[str, str] | None:
    """The verdict in one line, what to do about it, which checkpoint is used, and the colour of all that."""
    if found is None:
        return None
    return {"text": outcome_line(found), "do": ADVICE[found.verdict], "used": used, "tone": _TONES[found.verdict]}


def used_words(folder: JobFolder) -> str:
    """Which checkpoint Try and Take home use by themselves, where that is not the last one; else empty."""
    best, last = next(iter(by_merit(folder)), None), next(reversed(standing(folder)), None)
    if best is None or best == last:
        return ""
    return say("verdict.used", step=f"{checkpoint_step(best.name) or 0:,}")
