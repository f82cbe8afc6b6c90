"""The light end of Try: starts the child, asks, and yields both answers as they grow.

Where a run holds the card, the page asks through the run instead. A child that died is started again at the next
question.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from core.chat.messages import Ask, Piece, Setup, Side
from core.contract.config import RunConfig
from core.contract.errors import Fault, ModelError, RunError
from core.contract.tasks import STARTS
from core.machine.cards import CardSet
from core.machine.children.line_child import EndedError, LineChild
from core.machine.hardware import read_machine
from core.machine.locations import Locations
from core.models.catalog import find_model
from core.runs.control.gpu_lease import Patience, left_the_card, spare_first
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
    """Questions to one model and one adapter at a time, one after another; safe between threads."""

    def __init__(
        self, locations: Locations, config: RunConfig, run_folder: Path | None, checkpoint: str = "best"
    ) -> None:
        self._locations, self._config = locations, config
        self._checkpoint = checkpoint_folder(JobFolder(run_folder), checkpoint) if run_folder else None
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def turn_to(self, config: RunConfig, run_folder: Path, checkpoint: str = "best") -> bool:
        """Whether this checkpoint can answer from now on, over the base model that is loaded; if so, it does.

        Raises:
            RunError: there is no such checkpoint.
        """
        folder = checkpoint_folder(JobFolder(run_folder), checkpoint)
        with self._lock:
            if self._checkpoint is None or _over(config) is None or _over(config) != _over(self._config):
                return False
            self._config, self._checkpoint = config, folder
            return True

    def load(self) -> Iterator[float]:
        """Loads the model, where it is not loaded; yields the seconds that this took so far, several times a second.

        Closing the iterator before its end gives up.

        Raises:
            Fault: ``card.busy`` where a run holds the card; else as the child said.
        """
        with self._lock:
            yield from self._loading()

    def ask(
        self,
        messages: list[dict[str, str]],
        sides: tuple[Side, ...] = ("base", "tuned"),
        second: str = "",
        plain: bool = False,
        **sampling: Any,
    ) -> Iterator[Answer]:
        """The answers of these sides, base first, each growing until its ``done``; the base's without a checkpoint, the
        tuned one's scores where scores were trained: the base has no head for them. While the model is silent its last
        words come again, so that whoever listens can leave.

        ``second``: the second text, where the scores are of a pair of sentences. ``plain``: without the run's system
        prompt. ``sampling``: the fields of ``core.chat.messages.Sampling``.

        Closing the iterator cancels the question.

        Raises:
            Fault: ``card.busy`` where a run holds the card; else as the child said.
        """
        there: tuple[Side, ...] = sides if self._checkpoint else ("base",)
        data = self._config.data
        question = _question(
            **sampling, messages=messages, second=second, trained=self._trained,
            data=data.model_copy(update={"system_prompt": ""}) if plain else data,
            sides=("tuned",) if self._config.learning.task.scores else there,
        )  # fmt: skip
        with self._lock:
            for _ in self._loading():
                pass
            assert self._child
            child = self._child
            child.send(question.model_dump(mode="json"))
            finished = False
            try:
                yield from _answers(child, question)
                finished = True
            finally:
                if not finished and child.alive():
                    with contextlib.suppress(Fault):  # it died just now: the next question finds out
                        child.send({"cancel": question.id})

    def _loading(self) -> Iterator[float]:
        if self._child and self._child.alive():
            return
        self.close()
        begun, setup = time.monotonic(), self._setup()
        child = _Child(setup.cards, self._locations)
        try:
            child.send(setup.model_dump(mode="json"))
            for line in child.listen(LOADING_SECONDS):
                if line is None:
                    yield time.monotonic() - begun
                else:
                    _raise_fault(line)
        except BaseException:
            child.close()
            raise
        self._child = child

    def close(self) -> None:
        """Ends the child; a later question starts a new one."""
        child, self._child = self._child, None
        if child:
            child.close()

    @property
    def _trained(self) -> str:
        return str(self._checkpoint / self._config.learns.folder) if self._checkpoint else ""

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
            trained=self._trained,
            home=str(self._locations.home),
            cards=spare_first(read_machine(self._locations.home), self._locations).cards,
            method=self._config.trained_method,
            max_length=self._config.train.max_length,
        )


def _over(config: RunConfig) -> tuple[Any, ...] | None:
    """What checkpoints share that can answer over one loaded model; None where one has it to itself: every weight or a
    head was trained, or the adapter corrects quantised weights."""
    start = STARTS.get(config.lora.init_lora_weights)
    alone = not config.learns.adapter or config.learning.task.scores or (start and start.of_quantised)
    return None if alone else (config.model, config.train.learns)


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
    left = [side for side in texts if side in question.sides]
    while left:
        for line in child.listen():
            if line is None:
                yield Answer(left[0], texts[left[0]], False, scores)
            elif line.get("id", question.id) == question.id:  # else of a cancelled question
                _raise_fault(line)
                piece = Piece.model_validate(line)
                texts[piece.side] += piece.text
                scores = piece.scores or scores
                if piece.done:
                    left.remove(piece.side)
                yield Answer(piece.side, texts[piece.side], piece.done, scores)


def _raise_fault(line: dict[str, Any]) -> None:
    if "code" in line:
        raise Fault.told_by(line)


class _Child(LineChild):
    """The process that answers; killed where it hangs or stays on a card that a run waits for."""

    def __init__(self, cards: CardSet, locations: Locations) -> None:
        self._locations, self._cards = locations, cards
        quiet = {"HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUTF8": "1"}
        machine = replace(read_machine(), chosen=cards)
        super().__init__("core.chat.child", quiet | card_environment(os.environ, machine, plain=False))

    def send(self, line: dict[str, Any]) -> None:
        """Writes one line.

        Raises:
            RunError: it ended.
        """
        with _told():
            super().send(line)

    def listen(self, seconds: float = ANSWER_SECONDS) -> Iterator[dict[str, Any] | None]:
        """Its next line, behind a None for every moment without one.

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
                yield None
        yield line


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except EndedError as end:
        raise RunError("talk.died", reason=end.reason, last=end.last) from end
