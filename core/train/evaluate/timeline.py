"""The same held-out questions on the way: how the answers change while the model learns.

Before the first step the base answers, and after that what was trained so far, always greedily: what changes was
learned. A question is a row's own prompt, token for token as training lays it out; the row's answer is sent along. So
many rows cost one short answer each at a measurement, whose seconds stand in the event. The first and the last
measurement always ask; one in between only while answers have taken no more than a twentieth of the time, so that a
short run is not mostly answers. Nothing random is drawn, and a question that cannot be answered never ends the run.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from core.contract.config import RunConfig
from core.contract.events import Sample
from core.model.adapters import Trained
from core.model.faults import is_card_fault
from core.train.channel.channel import Channel
from core.train.evaluate.sample import continued, fault_line, readable
from core.train.step.rows import Rows

NEW_TOKENS = 64
LOOK_ROWS = 50
"""So many rows are looked at for one that begins with a question; raw text has none."""
SHARE = 0.05
"""Of an attempt's time, at most so much goes to answers between its first and its last measurement."""


@dataclass(frozen=True)
class Question:
    """A prompt's tokens, and those of the answer that the row has."""

    prompt: list[int]
    right: list[int]


def questions(rows: Rows, wanted: int) -> Iterator[Question]:
    """The first rows that have a prompt and an answer; of a pair that is the chosen one."""
    for row in range(min(len(rows), LOOK_ROWS)):
        if wanted <= 0:
            return
        prompt, answer = rows.question(row)
        if len(prompt) > 1:  # a lone first token is no question
            wanted -= 1
            yield Question(prompt, answer)


class Timeline:
    """Asks at measurements; says one ``Sample`` an answer, its ``command_id`` naming the question."""

    def __init__(self, config: RunConfig, rows: Rows, trained: Trained, tokenizer: Any, channel: Channel) -> None:
        self._data, self._trained, self._tokenizer = config.data, trained, tokenizer
        self._reporter, self._commands = channel.reporter, channel.commands
        self._questions = list(questions(rows, config.train.sample_rows))
        self._begun = time.perf_counter()
        self._asked_seconds: list[float] = []

    def ask(self, step: int, last: bool = False) -> None:
        """Has every question answered, by the base before the first step. The model's mode is left as it was.

        Raises:
            RuntimeError: the card faulted, and this process cannot go on.
        """
        expected = self._asked_seconds[-1] if self._asked_seconds else 0.0  # taken to last as long as the last time
        affordable = sum(self._asked_seconds) + expected <= SHARE * (time.perf_counter() - self._begun)
        if not self._questions or not (step == 0 or last or affordable):
            return
        begun, model = time.perf_counter(), self._trained.model
        training = model.training
        model.eval()
        try:
            for number, question in enumerate(self._questions):
                if self._commands.leaving:
                    return
                self._reporter.stage("evaluating", "Questions on the way", number, len(self._questions), "questions")
                self._answer(number, question, "tuned" if step else "base")
        except Exception as error:  # whatever it is, a question must not end a run
            if is_card_fault(error):
                raise
            self._questions = []
            self._reporter.note("sample.failed", f"No questions on the way: {fault_line(error)}.", "The run goes on.")
        finally:
            model.train(training)
            self._asked_seconds.append(time.perf_counter() - begun)

    def _answer(self, number: int, question: Question, side: Any) -> None:
        begun, asked = time.perf_counter(), (question.prompt, NEW_TOKENS)
        text = continued(self._trained, self._tokenizer, asked, self._commands, self._data, side)
        if self._commands.leaving:
            return  # cut short: no answer of the model's
        seconds = time.perf_counter() - begun
        prompt, right = (readable(self._tokenizer, part) for part in (question.prompt, question.right))
        named = {"command_id": f"way-{number}", "side": side, "prompt": prompt, "right": right}
        self._reporter.say(Sample(**named, text=text, seconds=seconds))
