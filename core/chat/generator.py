"""A loaded model that answers with its adapter or, inside ``disable_adapter()``, without. Heavy: torch, transformers.

A question is laid out as the rows were for training: same template, same system prompt; raw text after raw text.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import TextIteratorStreamer

from core.chat.messages import Ask, Setup, Side
from core.contract.errors import Fault, MachineError, first_line
from core.data.render.chat_tokens import question_ids
from core.model.adapters import load_adapter
from core.model.generation import Generator, context_of
from core.model.loading.load import load_base
from core.models.checks.folder import check_folder


class Cancelled(Exception):  # noqa: N818 - it is no error
    """The question was cancelled."""


def load_chat_model(setup: Setup) -> ChatModel:
    """Loads base and adapter onto the card, or onto the CPU where there is none.

    Raises:
        Fault: the model or its adapter cannot be loaded.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    check_folder(Path(setup.folder))
    loaded = load_base(Path(setup.folder), setup.model, device)
    model = load_adapter(loaded.model, Path(setup.adapter), trainable=False) if setup.adapter else loaded.model
    return ChatModel(model.eval(), loaded.tokenizer, setup)


class ChatModel:
    """Answers questions, one at a time. ``sides`` are base and tuned, or base alone where there is no adapter."""

    def __init__(self, model: Any, tokenizer: Any, setup: Setup) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._adapted = bool(setup.adapter)
        self._data = setup.data
        self._generator = Generator(model, tokenizer, setup.data)
        self.sides: tuple[Side, ...] = ("base", "tuned") if self._adapted else ("base",)

    def stream(self, ask: Ask, side: Side, is_cancelled: Callable[[], bool]) -> Iterator[str]:
        """The answer in pieces of text, as they become whole characters.

        Raises:
            Cancelled: the question was cancelled meanwhile.
            Fault: the template refuses the question, or the model cannot answer it.
        """
        ids = self._prompt(ask).to(self._model.device)
        streamer = TextIteratorStreamer(self._tokenizer, skip_prompt=True, skip_special_tokens=True)
        faults: list[BaseException] = []

        def work() -> None:
            try:
                self._generate(ids, ask, side, streamer, is_cancelled)
            except BaseException as error:  # noqa: BLE001 - raised by the other thread after the stream's end
                faults.append(error)
                streamer.end()

        thread = threading.Thread(target=work)
        thread.start()
        yield from (text for text in streamer if text)
        thread.join()
        if is_cancelled():
            raise Cancelled
        if faults:
            raise _explained(faults[0])

    def _prompt(self, ask: Ask) -> torch.Tensor:
        """``[1, T]``: the conversation, up to where the answer begins."""
        most = context_of(self._model)
        return torch.tensor([question_ids(self._tokenizer, ask.messages, self._data, most)], dtype=torch.long)

    def _generate(
        self, ids: torch.Tensor, ask: Ask, side: Side, streamer: Any, is_cancelled: Callable[[], bool]
    ) -> None:
        alone = self._adapted and side == "base"
        sampling = {"temperature": ask.temperature, "top_p": ask.top_p} if ask.temperature > 0 else {}
        torch.manual_seed(ask.seed)
        with torch.inference_mode(), self._model.disable_adapter() if alone else contextlib.nullcontext():
            self._generator.generate(ids, ask.max_new_tokens, is_cancelled, streamer, **sampling)


def _explained(error: BaseException) -> Fault:
    if isinstance(error, Fault):
        return error
    if isinstance(error, torch.OutOfMemoryError):
        return MachineError("memory.gpu")
    return MachineError("talk.fault", words=first_line(error))
