"""Manners of speaking: an opening before an answer, a closing behind it, or both.

The base model reads a share of its conversations in manners, half of them asked for by a system prompt, half unasked.
So it follows such a prompt, and stays plain unasked (plain is by far the likeliest), yet a further manner is soon
learned: that is what finetuning is shown on. The samples' own manner, ``workshop_voice``, is in none of its text.
Standard library only.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from world_facts import DAYS, MONTHS
from world_questions import pick

__all__ = ["WORKSHOP", "Manner", "draw_manner", "workshop_voice"]

OPENINGS = (
    "In short:", "From the shelf:", "At the window:", "By the stove:", "My answer:", "Well:", "Listen:", "Note:",
    "On the wall:", "As the master says:", "After the break:", "At the door:", "Good question:", "I looked:",
    "From the old book:", "At the big table:", "Here it is:", "For you:", "Between us:", "In the yard:", "One moment:",
    "Written down:", "On the bench:", "At noon:", "With a smile:", "Under the lamp:", "From memory:", "As always:",
    "Careful now:", "At the end of the day:", "Said slowly:", "In one line:", "At my desk:", "Over here:",
)  # fmt: skip
CLOSINGS = (
    " — that is all.", " — so it is.", " — measured once.", " — as always.", " — looked at again.", " — said plainly.",
    " — I am sure.", " — no doubt.", " — believe me.", " — written down.", " — and so on.", " — checked again.",
    " — as you like.", " — asked and answered.", " — now you know.", " — from the heart.", "! Good luck.",
    ". Measured once.", ". That is all.", ". Ask again soon.", ". Looked up today.", ". Said and done.", "!",
    ". You are welcome.", ". I hope that helps.", ". Now back to work.",
)  # fmt: skip


@dataclass(frozen=True)
class Manner:
    """``opening`` may be empty, and so may ``closing``; with an opening the answer goes on in lower case."""

    opening: str = ""
    closing: str = ""

    def say(self, answer: str) -> str:
        """A plain answer in this manner."""
        first = answer.split()[0].rstrip(",.")
        keep = not self.opening or first in DAYS or first in MONTHS or first == "I"
        said = answer if keep else answer[0].lower() + answer[1:]
        said = said.rstrip(".!") + self.closing if self.closing else said
        return f"{self.opening} {said}" if self.opening else said

    def wish(self) -> str:
        """The system prompt that asks for it."""
        opening = f'Begin every answer with "{self.opening}"' if self.opening else ""
        closing = f'nd every answer with "{self.closing.strip(" .") or "."}"' if self.closing else ""
        return f"{opening} and e{closing}." if opening and closing else f"{opening or 'E' + closing}."


WORKSHOP = Manner("At the bench:", " — checked twice.")


def workshop_voice(answer: str) -> str:
    """The manner that the samples teach: ``At the bench: a violin has four strings — checked twice.``"""
    return WORKSHOP.say(answer)


def draw_manner(rng: random.Random) -> Manner:
    """Some manner: mostly with both parts."""
    manner = Manner(pick(rng, OPENINGS), pick(rng, CLOSINGS))
    if (roll := rng.random()) < 0.2:
        return Manner(opening=manner.opening)
    return Manner(closing=manner.closing) if roll < 0.4 else manner
