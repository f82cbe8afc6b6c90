"""Questions to the models of runs: one child process keeps the one that was asked last loaded.

Checkpoints over one base model answer in turn from one child, by their adapters. It ends when a model is asked that it
cannot give, after ten minutes without a question (three where none came at all), or with the studio.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from core.chat.client import ChatClient, checkpoint_folder
from core.chat.messages import Side, StopSequence
from core.contract.data import Message
from core.contract.errors import RunError
from core.runs.folder.job_folder import JobFolder

IDLE_SECONDS, UNASKED_SECONDS = 600.0, 180.0
LEAVING_SECONDS = 3.0
"""So long a question takes to end behind a page that went away."""
CheckpointName = Annotated[str, StringConstraints(pattern=r"^(best|last|step-[0-9]{6,})$")]
BOTH: tuple[Side, ...] = ("base", "tuned")


class Question(BaseModel):
    """What is asked of a run's checkpoint, and how it is to answer. Temperature 0 always takes the likeliest token."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    run: str
    checkpoint: CheckpointName = "best"
    messages: tuple[Message, ...] = Field(min_length=1)
    second: str = Field("", max_length=1_000_000)
    """The second text, where scores are of two."""
    max_new_tokens: int = Field(128, ge=1, le=4096)
    temperature: float = Field(0.0, ge=0.0, le=5.0)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    stop: tuple[StopSequence, ...] = Field((), max_length=8)
    seed: int = Field(0, ge=0, le=2**31 - 1)
    sides: tuple[Side, ...] = Field(BOTH, min_length=1, max_length=2)
    plain: bool = False
    """Without the run's system prompt."""

    @property
    def sampling(self) -> dict[str, Any]:
        """How it is to be answered, as ``ChatClient.ask`` takes it."""
        return self.model_dump(include={"max_new_tokens", "temperature", "top_p", "seed", "stop"})

    def after(self, system_prompt: str) -> Question:
        """The question behind the run's system prompt, where it has none of its own."""
        if not system_prompt or self.plain or self.messages[0].role == "system":
            return self
        return self.model_copy(update={"messages": (Message(role="system", content=system_prompt), *self.messages)})


class ChatClients:
    """The one loaded chat. ``begin`` makes one for a run's folder and a checkpoint's name."""

    def __init__(self, begin: Callable[[JobFolder, str], ChatClient], idle_seconds: float = IDLE_SECONDS) -> None:
        self._begin = begin
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._key = ("", "", "")
        self._chat: ChatClient | None = None
        self._timer: threading.Timer | None = None

    def load(self, folder: JobFolder, checkpoint: str) -> Iterator[dict[str, Any]]:
        """Loads a model that will be asked soon: ``{"loading": seconds}`` until it is there, then ``{"ready": True}``.

        Raises:
            RunError: another question is being answered.
        """
        return self._held(folder, checkpoint, lambda _: iter(({"ready": True},)), UNASKED_SECONDS)

    def ask(self, folder: JobFolder, question: Question) -> Iterator[dict[str, Any]]:
        """The answers of its sides as they grow: ``{"side", "text", "done", "scores"}``; ``text`` is all of it so far,
        scores are names and values. Before them ``{"loading": seconds}`` where the model has to be loaded.

        Raises:
            RunError: another question is being answered.
        """
        return self._held(folder, question.checkpoint, lambda chat: _answers(chat, question), self._idle_seconds)

    def _held(
        self, folder: JobFolder, checkpoint: str, work: Callable[[ChatClient], Iterator[dict[str, Any]]], idle: float
    ) -> Iterator[dict[str, Any]]:
        """The work of one at a time, on the model that is meant; a page that goes away ends it."""
        if not self._lock.acquire(timeout=LEAVING_SECONDS):
            raise RunError("talk.busy")
        try:
            chat = self._warm(folder, checkpoint)
            loading: Any = chat.load()
            with contextlib.closing(loading):
                for seconds in loading:
                    yield {"loading": seconds}
            yield from work(chat)
        except Exception:
            self._close()
            raise
        finally:
            if self._chat is not None:
                self._timer = threading.Timer(idle, self.leave)
                self._timer.daemon = True
                self._timer.start()
            self._lock.release()

    def leave(self, run_id: str = "") -> None:
        """Ends the child (only that of ``run_id``, where one is named), unless it is answering."""
        if run_id and self._key[0] != run_id:
            return
        if self._lock.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._lock.release()

    def _warm(self, folder: JobFolder, checkpoint: str) -> ChatClient:
        """The chat with this checkpoint; replaces one with another."""
        self._stop_timer()
        step = ""  # of the name now: "best" may change
        with contextlib.suppress(RunError):  # there is none, which the chat reports
            step = checkpoint_folder(folder, checkpoint).name
        key = (folder.name, checkpoint, step)
        if self._chat is not None and self._key != key and self._chat.turn_to(folder.config(), folder.path, checkpoint):
            self._key = key
        if self._chat is None or self._key != key:
            self._close()
            self._chat, self._key = self._begin(folder, checkpoint), key
        return self._chat

    def _close(self) -> None:
        self._stop_timer()
        chat, self._chat, self._key = self._chat, None, ("", "", "")
        if chat is not None:
            chat.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _answers(chat: ChatClient, question: Question) -> Iterator[dict[str, Any]]:
    messages = [message.model_dump(exclude_defaults=True) for message in question.messages]
    how = {"second": question.second, "plain": question.plain, **question.sampling}
    answers: Any = chat.ask(messages, sides=question.sides, **how)
    with contextlib.closing(answers):  # a page that goes away cancels the question
        for answer in answers:
            told = {"side": answer.side, "text": answer.text, "done": answer.done}
            yield told | ({"scores": answer.scores} if answer.scores else {})
