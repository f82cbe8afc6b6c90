"""Questions to a model in the middle of a run: those that a person asks, and held-out ones at every measurement.

Answers are greedy. A question that cannot be answered never ends the run.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch

from core.contract.commands import Command
from core.contract.config import DataChoice, RunConfig
from core.contract.data import Message
from core.contract.errors import first_line
from core.contract.events import Sample
from core.contract.methods import DEFAULT_METHOD, METHODS, LearningMethod
from core.data.render.chat_tokens import ScoredText, question_ids, scored_ids
from core.model.adapters import Trained
from core.model.faults import is_card_fault, is_named
from core.model.generation import Generator, context_of
from core.model.scores import products_dtype, score
from core.train.channel.channel import Channel
from core.train.channel.command_queue import CommandQueue
from core.train.step.rows import Rows

NEW_TOKENS = 64
"""Of an answer to a held-out question."""
LOOK_ROWS = 50
"""Held-out rows in which a question is looked for; raw text has none."""
SHARE = 0.05
"""Largest part of an attempt's time for answers between its first and its last measurement."""
_HEADERS = frozenset({"assistant", "model", "bot", "gpt"})


@dataclass(frozen=True)
class Laid:
    """How a run's rows are laid out, and the tokens of its longest: memory and time are planned for that much."""

    data: DataChoice = field(default_factory=DataChoice)
    longest: int = 2048
    learning: LearningMethod = METHODS[DEFAULT_METHOD]
    dtype: torch.dtype | None = None
    """What an encoder's products are computed in."""

    @staticmethod
    def of(config: RunConfig, trained: Trained) -> "Laid":
        """As a run's config says."""
        dtype = products_dtype(config.model.dtype, trained.parameters[0].device)
        return Laid(config.data, config.train.max_length, config.learning, dtype)


@dataclass(frozen=True)
class Question:
    """A prompt's tokens, those of the answer that the row has, and its label."""

    prompt: list[int]
    right: list[int]
    label: str = ""


def answer(trained: Trained, tokenizer: Any, laid: Laid, channel: Channel, command: Command) -> None:
    """Writes one ``Sample`` without and one with the adapter, empty where there is no answer, as from a head of scores
    that is not trained. The model's mode is kept.

    Raises:
        RuntimeError: the card faulted, and this process cannot go on.
    """
    model = trained.model
    training, failed = model.training, False
    model.eval()
    turns = (Message(role="user", content=command.prompt),)
    try:
        for side in ("base", "tuned"):
            text = ""
            try:
                if trained.outputs and side == "tuned":
                    ids = scored_ids(tokenizer, ScoredText(turns), laid.learning, laid.data, laid.longest)
                    text = score(model, ids, trained.outputs, laid.dtype).text
                elif not (failed or trained.outputs):
                    most = min(context_of(model), laid.longest)
                    asked = (list(question_ids(tokenizer, turns, laid.data, most)), command.max_new_tokens)
                    text = continued(trained, tokenizer, asked, channel.commands, laid.data, side)
            except Exception as error:  # whatever it is, a question must not end a run
                if is_card_fault(error):
                    raise
                failed = True
                said = f"The question could not be answered: {fault_line(error)}."
                channel.reporter.note("sample.failed", said, "Ask another one.")
            channel.reporter.say(Sample(command_id=command.id, side=side, prompt=command.prompt, text=text, done=True))
    finally:
        model.train(training)


class Timeline:
    """The same held-out questions at every measurement: the base answers before the first step, later what is trained.
    Where the model gives scores it gives them of the row's text and answer, and the base none: its head is drawn.

    A question is a row's prompt, token for token as in training; the row's own answer is sent along. ``command_id`` of
    a ``Sample`` numbers the question. The first and the last measurement always ask; one in between only while answers
    took less than ``SHARE`` of the time.
    """

    def __init__(self, config: RunConfig, rows: Rows, trained: Trained, tokenizer: Any, channel: Channel) -> None:
        self._laid, self._trained, self._tokenizer = Laid.of(config, trained), trained, tokenizer
        self._reporter, self._commands = channel.reporter, channel.commands
        # Rows that only fit in tiles are too long for a prompt: the first pass of an answer computes it whole.
        self._questions = list(questions(rows, config.train.sample_rows, max(0, config.train.tile_tokens)))
        self._begun = time.perf_counter()
        self._asked_seconds: list[float] = []

    def ask(self, step: int, last: bool = False) -> None:
        """Has every question answered, by the base at step 0. The model's mode is kept.

        Raises:
            RuntimeError: the card faulted, and this process cannot go on.
        """
        expected = self._asked_seconds[-1] if self._asked_seconds else 0.0  # taken to last as long as the last time
        affordable = sum(self._asked_seconds) + expected <= SHARE * (time.perf_counter() - self._begun)
        if not self._questions or not (step == 0 or last or affordable) or (self._trained.outputs and not step):
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
        begun, trained, laid = time.perf_counter(), self._trained, self._laid
        if trained.outputs:
            text = score(trained.model, [*question.prompt, *question.right], trained.outputs, laid.dtype).text
        else:
            asked = (question.prompt, NEW_TOKENS)
            text = continued(trained, self._tokenizer, asked, self._commands, laid.data, side)
        if self._commands.leaving:
            return  # cut short: no answer of the model's
        seconds = time.perf_counter() - begun
        prompt, right = (readable(self._tokenizer, part) for part in (question.prompt, question.right))
        named = {"command_id": f"way-{number}", "side": side, "prompt": prompt, "right": question.label or right}
        self._reporter.say(Sample(**named, text=text, seconds=seconds))


def questions(rows: Rows, wanted: int, most: int = 0) -> Iterator[Question]:
    """The first rows that have a prompt and an answer; the chosen answer of a pair. Of an answer marked bad the right
    one is not known: it is asked where no other is there. ``most``: tokens of a prompt; 0: any."""
    looked = range(min(len(rows), LOOK_ROWS))
    for row in sorted(looked, key=lambda row: not rows.good(row)):
        if wanted <= 0:
            return
        prompt, right = rows.question(row)
        if len(prompt) > 1 and not 0 < most < len(prompt):  # a lone first token is no question
            wanted -= 1
            yield Question(prompt, right, rows.label(row))


def continued(
    trained: Trained, tokenizer: Any, asked: tuple[list[int], int], commands: CommandQueue, data: DataChoice, side: str
) -> str:
    """The greedy answer to ``asked`` (tokens, at most so many new ones); cut short when the run is to leave."""
    model = trained.model
    ids = torch.tensor([asked[0]], dtype=torch.long, device=next(model.parameters()).device)
    generator = Generator(model, tokenizer, data)
    with torch.no_grad(), trained.base() if side == "base" else contextlib.nullcontext():
        grown = generator.generate(ids, asked[1], lambda: commands.leaving)
    text: str = tokenizer.decode(grown[0, ids.shape[1] :], skip_special_tokens=True)
    return text


def readable(tokenizer: Any, ids: list[int]) -> str:
    """Tokens of a conversation as text: a blank line in place of special tokens, without the last answer's header."""
    special = set(tokenizer.all_special_ids) | {
        number for number, token in tokenizer.added_tokens_decoder.items() if token.special
    }
    parts = [tokenizer.decode(list(run)).strip() for said, run in groupby(ids, lambda one: one not in special) if said]
    parts = [part for part in parts if part]
    if len(parts) > 1 and parts[-1] in _HEADERS:
        parts.pop()
    return "\n\n".join(parts)


def fault_line(error: Exception) -> str:
    """A fault in one line."""
    if is_named(error, "OutOfMemoryError"):
        return "the card's memory ran out"
    return first_line(error).rstrip(".")
