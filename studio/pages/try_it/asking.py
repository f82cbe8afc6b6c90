"""Questions to a model: to a child of ours where the card is free, else to the run that holds it.

One child is kept warm for the run and checkpoint asked last, so that a second question needs no loading; it is let go
when another one is asked, when nobody asked for ten minutes, or when the studio closes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from core.chat.client import adapter_folder
from core.chat.messages import Side
from core.contract.data import Message
from core.contract.errors import RunError
from core.data.render.question import check_characters
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import JobFolder
from studio.words.text import say

__all__ = ["ChatClients", "Question", "sampled"]

IDLE_SECONDS = 600.0
SAMPLE_SECONDS = 180.0
BOTH: tuple[Side, ...] = ("base", "tuned")
_ENDED = frozenset({"finished", "stopped", "failed", "lost", "paused"})


class Question(BaseModel):
    """What is asked of a run's checkpoint, and how it is to answer. Temperature 0 always takes the likeliest token."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    run: str
    checkpoint: Annotated[str, StringConstraints(pattern=r"^(best|last|step-[0-9]{6,})$")] = "best"
    messages: tuple[Message, ...] = Field(min_length=1)
    max_new_tokens: int = Field(128, ge=1, le=4096)
    temperature: float = Field(0.0, ge=0.0, le=5.0)
    seed: int = Field(0, ge=0, le=2**31 - 1)
    sides: tuple[Side, ...] = Field(BOTH, min_length=1, max_length=2)

    def after(self, system_prompt: str) -> Question:
        """The question as the run's rows were trained: behind its system prompt, where it brings none."""
        if not system_prompt or self.messages[0].role == "system":
            return self
        return self.model_copy(update={"messages": (Message(role="system", content=system_prompt), *self.messages)})


class Conversation(Protocol):
    """``core.chat.client.ChatClient``, as far as it is used here."""

    def ask(
        self,
        messages: list[dict[str, str]],
        max_new_tokens: int,
        temperature: float,
        seed: int,
        *,
        sides: tuple[Side, ...] = BOTH,
    ) -> Any:
        """A generator of the sides' answers as they grow; closing it cancels the question."""

    def close(self) -> None:
        """Ends the child."""


class ChatClients:
    """The one conversation that is kept warm. ``begin`` makes one for a run's folder and a checkpoint's name."""

    def __init__(self, begin: Callable[[JobFolder, str], Conversation], idle_seconds: float = IDLE_SECONDS) -> None:
        self._begin = begin
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._key = ("", "", "")
        self._talk: Conversation | None = None
        self._timer: threading.Timer | None = None

    def ask(self, folder: JobFolder, question: Question) -> Iterator[dict[str, Any]]:
        """Both sides' answers as they grow: ``{"side", "text", "done"}``, ``text`` being all of it so far.

        Raises:
            RunError: another question is being answered.
        """
        if not self._lock.acquire(blocking=False):
            raise RunError("talk.busy", say("try.busy"), say("try.busy.hint"))
        try:
            self._stop_timer()
            talk = self._for(folder, question.checkpoint)
            messages = [message.model_dump(exclude_defaults=True) for message in question.messages]
            only: dict[str, Any] = {} if question.sides == BOTH else {"sides": question.sides}
            answers = talk.ask(messages, question.max_new_tokens, question.temperature, question.seed, **only)
            with contextlib.closing(answers):  # the page may go away in mid-answer: that cancels the question
                for answer in answers:
                    yield {"side": answer.side, "text": answer.text, "done": answer.done}
        except Exception:
            self._close()
            raise
        finally:
            self._start_timer()
            self._lock.release()

    def leave(self, run_id: str = "") -> None:
        """Lets the child go (that of ``run_id`` only, where one is named), unless it is answering."""
        if run_id and self._key[0] != run_id:
            return
        if self._lock.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._lock.release()

    def _for(self, folder: JobFolder, checkpoint: str) -> Conversation:
        key = (folder.name, checkpoint, _standing(folder, checkpoint))  # "best" may be another one by now
        if self._talk is None or self._key != key:
            self._close()
            self._talk, self._key = self._begin(folder, checkpoint), key
        return self._talk

    def _close(self) -> None:
        self._stop_timer()
        talk, self._talk, self._key = self._talk, None, ("", "", "")
        if talk is not None:
            talk.close()

    def _start_timer(self) -> None:
        if self._talk is not None:
            self._timer = threading.Timer(self._idle_seconds, self.leave)
            self._timer.daemon = True
            self._timer.start()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _standing(folder: JobFolder, checkpoint: str) -> str:
    """The step that a checkpoint's name means now; empty where there is none, which the conversation says itself."""
    with contextlib.suppress(RunError):
        return adapter_folder(folder, checkpoint).name
    return ""


def sampled(store: RunStore, question: Question) -> Iterator[dict[str, Any]]:
    """Asks the run that trains right now: it answers between two steps. Ends when both sides are done.

    Raises:
        DataError: the question is longer than any row that the run trains on.
        RunError: it was not answered.
    """
    check_characters(question.messages[-1:], store.open(question.run).config().train.max_length)
    prompt = question.messages[-1].content
    command = store.sample(question.run, prompt, question.max_new_tokens)
    yield {"note": say("try.sampling")}
    told: dict[str, tuple[str, bool]] = {}
    deadline = time.monotonic() + SAMPLE_SECONDS
    while time.monotonic() < deadline:
        record = store.record(question.run)
        mine = (item for item in record.samples if item.command_id == command)
        answers: dict[str, tuple[str, bool]] = {item.side: (item.text, item.done) for item in mine}
        for side, (text, done) in answers.items():
            if side in question.sides and told.get(side) != (text, done):
                yield {"side": side, "text": text, "done": done}
        told = answers
        if len(told) == 2 and all(done for _, done in told.values()):
            return
        if record.state in _ENDED:
            break
        time.sleep(0.3)
    raise RunError("talk.unanswered", say("try.unanswered"), say("try.unanswered.hint"))
