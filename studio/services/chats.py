"""Questions to a run's model: one child process keeps the run and checkpoint that were asked last loaded.

It ends when another one is asked, after ten minutes without a question, or with the studio.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from core.chat.client import ChatClient, checkpoint_folder
from core.chat.messages import Side
from core.contract.data import Message
from core.contract.errors import RunError
from core.runs.folder.job_folder import JobFolder

IDLE_SECONDS = 600.0
BOTH: tuple[Side, ...] = ("base", "tuned")


class Question(BaseModel):
    """What is asked of a run's checkpoint, and how it is to answer. Temperature 0 always takes the likeliest token."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    run: str
    checkpoint: Annotated[str, StringConstraints(pattern=r"^(best|last|step-[0-9]{6,})$")] = "best"
    messages: tuple[Message, ...] = Field(min_length=1)
    second: str = Field("", max_length=1_000_000)
    """The second text, where scores are of two."""
    max_new_tokens: int = Field(128, ge=1, le=4096)
    temperature: float = Field(0.0, ge=0.0, le=5.0)
    seed: int = Field(0, ge=0, le=2**31 - 1)
    sides: tuple[Side, ...] = Field(BOTH, min_length=1, max_length=2)

    def after(self, system_prompt: str) -> Question:
        """The question behind the run's system prompt, where it has none of its own."""
        if not system_prompt or self.messages[0].role == "system":
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

    def ask(self, folder: JobFolder, question: Question) -> Iterator[dict[str, Any]]:
        """Both sides' answers as they grow: ``{"side", "text", "done", "scores"}``; ``text`` is all of it so far,
        scores are names and values.

        Raises:
            RunError: another question is being answered.
        """
        if not self._lock.acquire(blocking=False):
            raise RunError("talk.busy")
        try:
            chat = self._warm(folder, question.checkpoint)
            messages = [message.model_dump(exclude_defaults=True) for message in question.messages]
            how = (question.max_new_tokens, question.temperature, question.seed)
            answers: Any = chat.ask(messages, *how, sides=question.sides, second=question.second)
            with contextlib.closing(answers):  # a page that goes away cancels the question
                for answer in answers:
                    told = {"side": answer.side, "text": answer.text, "done": answer.done}
                    yield told | ({"scores": answer.scores} if answer.scores else {})
        except Exception:
            self._close()
            raise
        finally:
            if self._chat is not None:
                self._timer = threading.Timer(self._idle_seconds, self.leave)
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
