"""``python -m core.chat.child``: one model with its adapter, answering over a pipe.

The card's lock is taken without waiting and held while this process lives. It leaves at once when its pipe closes,
also while the model is still loading, and within a second or two when a run waits for the card.

Everything heavy lies in ``speaker`` and is imported when the card is ours: a busy card is answered at once.
"""

from __future__ import annotations

import json
import queue
import sys
from typing import Any

from pydantic import ValidationError

from core.chat.messages import Ask, Fault, Piece, Setup
from core.contract.errors import MachineError, StudioError
from core.machine.imports import importing
from core.machine.locations import Locations
from core.runs.control.gpu_lease import LineWriter, end_with_the_pipe, fault_words, leave_when_wanted, take_card

__all__ = ["main"]


class Ear:
    """Reads the client's lines on a thread of its own: questions into a queue, cancelled ones into a set."""

    def __init__(self, mouth: LineWriter) -> None:
        self.asked: queue.Queue[Ask] = queue.Queue()
        self.cancelled: set[str] = set()
        self._mouth = mouth

    def start(self) -> None:
        """Begins to listen; ends the process when the pipe closes, also in the middle of a word."""
        end_with_the_pipe(self._hear)

    def _hear(self, line: str) -> None:
        try:
            word = json.loads(line)
            if "cancel" in word:
                self.cancelled.add(str(word["cancel"]))
            else:
                self.asked.put(Ask.model_validate(word))
        except (ValueError, TypeError, ValidationError):
            self._mouth.say(_said(MachineError("talk.word", "Expected a question, found a line that is none.")))


def main() -> int:
    """Reads Setup, then questions, until stdin closes."""
    mouth = LineWriter.take_stdout()
    ear = Ear(mouth)
    try:
        setup = Setup.model_validate_json(sys.stdin.readline())
        ear.start()
        locations = Locations.find(setup.home)
        card = take_card(locations, setup.lock_name, "Try")
        leave_when_wanted(locations, setup.lock_name, mouth, "the model")
        with importing():
            from core.chat.generator import load_chat_model
        speaker = load_chat_model(setup)
    except StudioError as error:
        mouth.say(_said(error))
        return 1
    mouth.say({"ready": True})
    while card.fileno() >= 0:  # held until the process ends
        _answer(speaker, ear.asked.get(), ear.cancelled, mouth)
    return 0


def _answer(speaker: Any, ask: Ask, cancelled: set[str], mouth: LineWriter) -> None:
    from core.chat.generator import Cancelled

    try:
        for side in (side for side in speaker.sides if side in ask.sides):
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
    return Fault(id=question, **fault_words(error)).model_dump()


if __name__ == "__main__":
    sys.exit(main())
