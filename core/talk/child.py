"""``python -m core.talk.child``: one model with its adapter, answering over a pipe.

The card's lock is taken without waiting and held while this process lives. It leaves at once when its pipe closes,
also while the model is still loading, and within a second or two when a run waits for the card.

Everything heavy lies in ``speaker`` and is imported when the card is ours: a busy card is answered at once.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from typing import Any, TextIO

from pydantic import ValidationError

from core.contract.errors import MachineError, StudioError
from core.locations import Locations
from core.runs.folder import RUN_ID, JobFolder
from core.runs.locks import CardLock, held_by
from core.runs.log import LAST_KINDS, last_event
from core.runs.queue import card_wanted
from core.talk.words import Ask, Fault, Piece, Setup

__all__ = ["main"]

LOOK_SECONDS = 1.0
ENDING_SECONDS = 15.0


class Mouth:
    """The one place that writes to the client; its lines never interleave."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._lock = out, threading.Lock()

    def say(self, word: dict[str, Any]) -> None:
        """One line; where nobody listens any more this process has nothing left to do."""
        with self._lock:
            try:
                self._out.write(json.dumps(word) + "\n")
                self._out.flush()
            except BrokenPipeError:
                os._exit(0)


class Ear:
    """Reads the client's lines on a thread of its own: questions into a queue, cancelled ones into a set."""

    def __init__(self, mouth: Mouth) -> None:
        self.asked: queue.Queue[Ask] = queue.Queue()
        self.cancelled: set[str] = set()
        self._mouth = mouth

    def start(self) -> None:
        """Begins to listen; ends the process when the pipe closes."""
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            try:
                word = json.loads(line)
                if "cancel" in word:
                    self.cancelled.add(str(word["cancel"]))
                else:
                    self.asked.put(Ask.model_validate(word))
            except (ValueError, TypeError, ValidationError):
                self._mouth.say(_said(MachineError("talk.word", "Expected a question, found a line that is none.")))
        os._exit(0)  # the client is gone; a generation in mid-word has nobody to listen


def main() -> int:
    """Reads Setup, then questions, until stdin closes."""
    # Libraries print to stdout; the pipe is for our words alone.
    mouth = Mouth(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)
    ear = Ear(mouth)
    try:
        setup = Setup.model_validate_json(sys.stdin.readline())
        ear.start()
        locations = Locations.find(setup.home)
        card = _take_card(locations, setup.lock_name)
        threading.Thread(target=_leave_when_wanted, args=(locations, mouth), daemon=True).start()
        from core.talk.speaker import load_speaker

        speaker = load_speaker(setup)
    except StudioError as error:
        mouth.say(_said(error))
        return 1
    mouth.say({"ready": True})
    while card.fileno() >= 0:  # held until the process ends
        _answer(speaker, ear.asked.get(), ear.cancelled, mouth)
    return 0


def _take_card(locations: Locations, lock_name: str) -> CardLock:
    card = CardLock(locations.make(), lock_name)
    patience = time.monotonic() + ENDING_SECONDS
    while not card.acquire(wait=False, holder="Try"):
        holder = held_by(locations, lock_name) or "another program"
        if not _is_ending(locations, holder) or time.monotonic() > patience:
            raise MachineError(
                "card.busy",
                f"Expected a free card, found it held by {holder}.",
                "Ask through that run while it trains, or ask again when it has ended.",
            )
        time.sleep(0.1)
    return card


def _is_ending(locations: Locations, holder: str) -> bool:
    """Whether the holder is a run that has said its last word: its process ends a moment later."""
    if not RUN_ID.fullmatch(holder):
        return holder == "another program"  # it let go between our try and our look
    last = last_event(JobFolder(locations.runs / holder).events)
    return last is not None and last.kind in LAST_KINDS


def _leave_when_wanted(locations: Locations, mouth: Mouth) -> None:
    while not card_wanted(locations):
        time.sleep(LOOK_SECONDS)
    mouth.say(
        _said(MachineError("card.busy", "A run waits for the card, so the model left it.", "Ask when it has ended."))
    )
    os._exit(0)


def _answer(speaker: Any, ask: Ask, cancelled: set[str], mouth: Mouth) -> None:
    from core.talk.speaker import Cancelled

    try:
        for side in speaker.sides:
            for text in speaker.stream(ask, side, lambda: ask.id in cancelled):
                mouth.say(Piece(id=ask.id, side=side, text=text).model_dump())
            mouth.say(Piece(id=ask.id, side=side, done=True).model_dump())
    except Cancelled:
        pass
    except StudioError as error:
        mouth.say(_said(error, ask.id))
    finally:
        cancelled.discard(ask.id)


def _said(error: StudioError, question: str = "") -> dict[str, Any]:
    return Fault(id=question, code=error.code, message=error.message, hint=error.hint).model_dump()


if __name__ == "__main__":
    sys.exit(main())
