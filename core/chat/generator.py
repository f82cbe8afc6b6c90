"""A loaded model that answers as it was trained, or as it came; or that gives scores. Heavy: torch, transformers.

A question is laid out as the rows were for training: same template, same system prompt; raw text after raw text.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from transformers import TextIteratorStreamer

from core.chat.messages import Ask, Piece, Setup, Side
from core.chat.stops import UntilStop
from core.contract.config import DataChoice
from core.contract.errors import Fault, MachineError, first_line
from core.data.render.chat_tokens import ScoredText, question_ids, scored_ids
from core.model.adapters import Trained, load_beside
from core.model.generation import Generator, context_of
from core.model.learners import Onto, opened
from core.model.loading.load import load_base
from core.model.scores import ScoreHead, load_model, products_dtype, score
from core.models.checks.folder import check_folder
from core.models.outputs import read_outputs

_NAMES = ("default", "beside1", "beside2", "beside3", "beside4")
"""Adapters over one base, by their names in peft."""


class Cancelled(Exception):  # noqa: N818 - it is no error
    """The question was cancelled."""


def load_chat_model(setup: Setup) -> ChatModel | ScoringModel:
    """Loads base and adapter onto the card, or onto the CPU where there is none.

    Raises:
        Fault: the model or its adapter cannot be loaded.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    check_folder(Path(setup.folder))
    if setup.learning.task.scores:
        outputs = read_outputs(Path(setup.trained))
        loaded = load_model(Path(setup.folder), setup.model, device, head=ScoreHead(outputs))
        scored = opened(setup.learns, Onto(loaded.model, lambda: None, Path(setup.trained), outputs=outputs))
        return ScoringModel(scored, loaded.tokenizer, setup, products_dtype(setup.model.dtype, device))
    loaded = load_base(Path(setup.folder), setup.model, device)
    if not setup.trained:
        return ChatModel(loaded.model.eval(), loaded.tokenizer, setup)
    same = setup.model.model_copy(update={"dtype": str(loaded.dtype).removeprefix("torch.")})

    @cache
    def untrained() -> Any:
        return load_base(Path(setup.folder), same, torch.device("cpu")).model

    trained = opened(setup.learns, Onto(loaded.model, untrained, Path(setup.trained)))
    return ChatModel(trained.model.eval(), loaded.tokenizer, setup, trained)


class ScoringModel:
    """Gives the scores of texts, or of a conversation's last answer, one at a time.

    ``sides`` is the tuned one alone: the base has no trained head, and scores of one that was drawn would be noise.
    """

    sides: tuple[Side, ...] = ("tuned",)

    def __init__(self, trained: Trained, tokenizer: Any, setup: Setup, dtype: torch.dtype | None) -> None:
        self._trained, self._tokenizer, self._setup, self._dtype = trained, tokenizer, setup, dtype
        trained.model.eval()

    def pieces(self, ask: Ask, side: Side, _is_cancelled: Callable[[], bool]) -> Iterator[Piece]:
        """The scores, in one piece.

        Raises:
            Fault: the template refuses the conversation, or the model cannot answer it.
        """
        setup, outputs = self._setup, self._trained.outputs
        assert outputs is not None
        text = ScoredText(ask.messages, ask.second)
        try:
            ids = scored_ids(self._tokenizer, text, setup.learning, setup.data, setup.max_length)
            scored = score(self._trained.model, ids, outputs, self._dtype)
            if not all(isfinite(value) for _, value in scored.scores):
                raise ValueError("its scores are no numbers")
        except Exception as error:
            raise _told(error) from error
        yield Piece(id=ask.id, side=side, text=scored.text, scores=scored.scores)


class ChatModel:
    """Answers questions, one at a time. ``sides`` are base and tuned, or base alone where nothing was trained.

    Where every weight was trained, the base is loaded into host memory at its first question, two bytes a weight, and
    changes places with the trained weights for its answers.
    """

    def __init__(self, model: Any, tokenizer: Any, setup: Setup, trained: Trained | None = None) -> None:
        self._model, self._tokenizer, self._trained = model, tokenizer, trained
        self._setup = setup
        self._adapters, self._answering = {setup.trained: _NAMES[0]}, setup.trained
        self.sides: tuple[Side, ...] = ("base", "tuned") if trained else ("base",)

    def pieces(self, ask: Ask, side: Side, is_cancelled: Callable[[], bool]) -> Iterator[Piece]:
        """What ``stream`` gives, as lines for the client."""
        for text in self.stream(ask, side, is_cancelled):
            yield Piece(id=ask.id, side=side, text=text)

    def stream(self, ask: Ask, side: Side, is_cancelled: Callable[[], bool]) -> Iterator[str]:
        """The answer in pieces of text, as they become whole characters.

        Raises:
            Cancelled: the question was cancelled meanwhile.
            Fault: the template refuses the question, or the model cannot answer it.
        """
        ids, shown = self._prompt(ask).to(self._model.device), UntilStop(ask.stop)
        streamer = TextIteratorStreamer(self._tokenizer, skip_prompt=True, skip_special_tokens=True)
        faults: list[BaseException] = []

        def work() -> None:
            try:
                self._generate(ids, ask, side, streamer, lambda: shown.ended or is_cancelled())
            except BaseException as error:  # noqa: BLE001 - raised by the other thread after the stream's end
                faults.append(error)
                streamer.end()

        thread = threading.Thread(target=work)
        thread.start()
        for text in streamer:
            if piece := shown.take(text):
                yield piece
        thread.join()
        if is_cancelled():
            raise Cancelled
        if faults:
            raise _told(faults[0])
        if rest := shown.rest():
            yield rest

    def _prompt(self, ask: Ask) -> torch.Tensor:
        """``[1, T]``: the conversation, up to where the answer begins."""
        most = context_of(self._model)
        return torch.tensor([question_ids(self._tokenizer, ask.messages, self._data(ask), most)], dtype=torch.long)

    def _data(self, ask: Ask) -> DataChoice:
        return ask.data or self._setup.data

    def _generate(
        self, ids: torch.Tensor, ask: Ask, side: Side, streamer: Any, is_cancelled: Callable[[], bool]
    ) -> None:
        untrained: Any = contextlib.nullcontext()
        if self._trained and side == "base":
            untrained = self._trained.base()
        elif self._trained:
            self._turn_to(ask.trained or self._setup.trained)
        # What a model's own generation config would cut beside top-p is not asked for here.
        drawn = {"temperature": ask.temperature, "top_p": ask.top_p, "top_k": 0, "min_p": None}
        generator = Generator(self._model, self._tokenizer, self._data(ask))
        torch.manual_seed(ask.seed)
        with untrained, torch.inference_mode():
            generator.generate(ids, ask.max_new_tokens, is_cancelled, streamer, **(drawn if ask.temperature else {}))

    def _turn_to(self, folder: str) -> None:
        """Makes the adapter of ``folder`` the one that answers; the last few stay loaded."""
        if folder == self._answering:
            return
        if folder not in self._adapters:
            if len(self._adapters) == len(_NAMES):  # the one that was loaded first goes
                first = next(other for other in self._adapters if other not in (self._answering, self._setup.trained))
                self._model.delete_adapter(self._adapters.pop(first))
            name = next(name for name in _NAMES if name not in self._adapters.values())
            load_beside(self._model, Path(folder), name)
            self._adapters[folder] = name
        self._model.set_adapter(self._adapters[folder])
        self._answering = folder


def _told(error: BaseException) -> Fault:
    """What went wrong with an answer, for people."""
    if isinstance(error, Fault):
        return error
    if isinstance(error, torch.OutOfMemoryError):
        return MachineError("memory.gpu")
    return MachineError("talk.fault", words=first_line(error))
