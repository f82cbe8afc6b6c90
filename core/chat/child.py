"""``python -m core.chat.child``: one model with its adapter, answering over a pipe.

It holds the card's lock while it lives, and ends when its pipe closes or a run waits for the card. ``generator`` is
imported once the lock is taken, so that a busy card is reported at once.
"""

import json
import queue
import sys
from typing import Any

from pydantic import ValidationError

from core.chat.messages import Ask, Piece, Setup
from core.contract.errors import Fault, MachineError
from core.machine.children.serve import LineWriter
from core.machine.imports import importing
from core.machine.locations import Locations
from core.runs.control.gpu_lease import TRY, end_with_the_pipe, leave_when_wanted, take_card


class Questions:
    """Questions and cancellations, received on a thread of their own."""

    def __init__(self, writer: LineWriter) -> None:
        self.asked: queue.Queue[Ask] = queue.Queue()
        self.cancelled: set[str] = set()
        self._writer = writer

    def hear(self, line: str) -> None:
        """Takes one line from the client."""
        try:
            message = json.loads(line)
            if "cancel" in message:
                self.cancelled.add(str(message["cancel"]))
            else:
                self.asked.put(Ask.model_validate(message))
        except (ValueError, TypeError, ValidationError):
            self._writer.say(MachineError("talk.word").told())


def main() -> int:
    """Reads Setup, loads, and answers questions until stdin closes."""
    writer = LineWriter.take_stdout()
    questions = Questions(writer)
    try:
        setup = Setup.model_validate_json(sys.stdin.readline())
        end_with_the_pipe(questions.hear)
        locations = Locations.find(setup.home)
        take_card(locations, setup.cards, TRY)
        leave_when_wanted(locations, setup.cards, writer, "the model")
        with importing():
            from core.chat.generator import load_chat_model
        chat_model = load_chat_model(setup)
    except Fault as error:
        writer.say(error.told())
        return 1
    writer.say({"ready": True})
    while True:  # the cards are held until the process ends
        answer(chat_model, questions, writer)


def answer(chat_model: Any, questions: Questions, writer: LineWriter) -> None:
    """Waits for a question and streams the answers of its sides, base first."""
    from core.chat.generator import Cancelled

    ask = questions.asked.get()
    try:
        for side in (side for side in chat_model.sides if side in ask.sides):
            for piece in chat_model.pieces(ask, side, lambda: ask.id in questions.cancelled):
                writer.say(piece.model_dump())
            writer.say(Piece(id=ask.id, side=side, done=True).model_dump())
    except Cancelled:
        pass
    except Fault as error:
        writer.say({"id": ask.id, **error.told()})
    finally:
        questions.cancelled.discard(ask.id)


if __name__ == "__main__":
    sys.exit(main())
