"""The light end of Try: starts the child, asks, and yields both answers as they grow.

Where a run holds the card, the page asks through the run instead. A child that died is started again at the next
question.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from core.chat.messages import Ask, Piece, Setup, Side
from core.contract.config import RunConfig
from core.contract.errors import Fault, ModelError, RunError
from core.machine.children.line_child import EndedError, LineChild
from core.machine.hardware import read_machine
from core.machine.locations import Locations
from core.models.catalog import find_model
from core.runs.control.gpu_lease import Patience, left_the_card
from core.runs.folder.job_folder import JobFolder
from core.runs.record.outcome import by_merit, standing
from core.runs.supervise.worker_process import card_environment

LOADING_SECONDS = 900.0
"""Longest time that a large model takes from a slow disk."""
ANSWER_SECONDS = 600.0
"""Longest time from one piece of an answer to the next."""
LOOK_SECONDS = 0.25


@dataclass(frozen=True)
class Answer:
    """One side's whole answer so far."""

    side: Side
    text: str
    done: bool
    scores: tuple[tuple[str, float], ...] = ()
    """Of a model with a head of scores: their names and values, in their order."""


class ChatClient:
    """Questions to one model and one adapter, one at a time; safe between threads."""

    def __init__(
        self, locations: Locations, config: RunConfig, run_folder: Path | None, checkpoint: str = "best"
    ) -> None:
        self._locations, self._config = locations, config
        self._checkpoint = checkpoint_folder(JobFolder(run_folder), checkpoint) if run_folder else None
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def ask(
        self,
        messages: list[dict[str, str]],
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        seed: int = 0,
        sides: tuple[Side, ...] = ("base", "tuned"),
        second: str = "",
    ) -> Iterator[Answer]:
        """The answers of these sides, base first, each growing until its ``done``; the base's without a checkpoint, the
        tuned one's scores where scores were trained: the base has no head for them.

        ``second``: the second text, where the scores are of a pair of sentences.

        Closing the iterator cancels the question.

        Raises:
            Fault: ``card.busy`` where a run holds the card; else as the child said.
        """
        there: tuple[Side, ...] = sides if self._checkpoint else ("base",)
        question = _question(
            messages=messages, max_new_tokens=max_new_tokens, temperature=temperature, seed=seed, second=second,
            sides=("tuned",) if self._config.learning.task.scores else there,
        )  # fmt: skip
        with self._lock:
            if self._child is None or not self._child.alive():
                self.close()
                self._child = _Child(self._setup(), self._locations)
            child = self._child
            child.send(question.model_dump())
            finished = False
            try:
                yield from _answers(child, question)
                finished = True
            finally:
                if not finished and child.alive():
                    with contextlib.suppress(Fault):  # it died just now: the next question finds out
                        child.send({"cancel": question.id})

    def close(self) -> None:
        """Ends the child; a later question starts a new one."""
        child, self._child = self._child, None
        if child:
            child.close()

    def _setup(self) -> Setup:
        model = self._config.model
        spec = find_model(model.source, model.name, model.revision)
        if not spec.folder:
            raise ModelError("model.not_here/chat", title=spec.title)
        return Setup(
            folder=spec.folder,
            model=model,
            data=self._config.data,
            learns=self._config.train.learns,
            trained=str(self._checkpoint / self._config.learns.folder) if self._checkpoint else "",
            home=str(self._locations.home),
            cards=read_machine(self._locations.home).cards,
            method=self._config.trained_method,
            max_length=self._config.train.max_length,
        )


def checkpoint_folder(run: JobFolder, checkpoint: str) -> Path:
    """The checkpoint folder that ``best``, ``last`` or a step's name means.

    Raises:
        RunError: there is no such checkpoint.
    """
    newest_or_best_first = by_merit(run) if checkpoint == "best" else list(standing(run))[::-1]
    chosen = [path for path in newest_or_best_first if checkpoint in ("best", "last", path.name)]
    if not chosen:
        raise RunError("run.no_checkpoint", checkpoint=checkpoint, name=run.name)
    return chosen[0]


def _question(**values: Any) -> Ask:
    try:
        return Ask(id=uuid.uuid4().hex, **values)
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise RunError("talk.question", place=place, problem=fault["msg"], value=fault["input"]) from error


def _answers(child: _Child, question: Ask) -> Iterator[Answer]:
    texts: dict[Side, str] = {"base": "", "tuned": ""}
    scores: tuple[tuple[str, float], ...] = ()
    sides = len(set(question.sides))
    while sides:
        line = child.receive()
        if line.get("id", question.id) != question.id:
            continue  # of a cancelled question
        _raise_fault(line)
        piece = Piece.model_validate(line)
        texts[piece.side] += piece.text
        scores = piece.scores or scores
        sides -= piece.done
        yield Answer(piece.side, texts[piece.side], piece.done, scores)


def _raise_fault(line: dict[str, Any]) -> None:
    if "code" in line:
        raise Fault.told_by(line)


class _Child(LineChild):
    """The process that answers; killed where it hangs or stays on a card that a run waits for."""

    def __init__(self, setup: Setup, locations: Locations) -> None:
        self._locations, self._cards = locations, setup.cards
        quiet = {"HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUTF8": "1"}
        super().__init__("core.chat.child", quiet | card_environment(os.environ, read_machine(), plain=False))
        try:
            self.send(setup.model_dump(mode="json"))
            _raise_fault(self.receive(LOADING_SECONDS))
        except BaseException:
            self.close()
            raise

    def send(self, line: dict[str, Any]) -> None:
        """Writes one line.

        Raises:
            RunError: it ended.
        """
        with _told():
            super().send(line)

    def receive(self, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """Its next line.

        Raises:
            RunError: it ended, or was silent for so long.
            MachineError: a run waits for the card.
        """
        patience = Patience(self._locations, self._cards, seconds)
        with _told():
            while (line := self.hear(LOOK_SECONDS)) is None:
                if why := patience.is_over():
                    self.kill()
                    raise left_the_card("the model") if why == "card" else RunError("talk.slow", minutes=seconds / 60)
        return line


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except EndedError as end:
        raise RunError("talk.died", reason=end.reason, last=end.last) from end
