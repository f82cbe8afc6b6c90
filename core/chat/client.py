"""The light end of Try: starts the child, asks, and yields both answers as they grow.

The child takes the card's lock without waiting; where a run holds it the client says so, and the page asks through
the run instead. A child that died is said in one line and started again at the next question.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from core.chat.messages import Ask, Piece, Setup, Side
from core.contract.config import RunConfig
from core.contract.errors import Fault, ModelError, RunError
from core.machine.hardware import read_machine
from core.machine.locations import Locations
from core.models.catalog import find_model
from core.runs.control.gpu_lease import Patience, ending_of, left_the_card, spawn_leased
from core.runs.folder.job_folder import JobFolder
from core.runs.record.outcome import by_merit, standing
from core.runs.supervise.worker_process import card_environment

LOADING_SECONDS = 900.0
"""A large model comes slowly from a slow disk; what takes longer hangs."""
ANSWER_SECONDS = 600.0
"""From one piece of an answer to the next."""
LOOK_SECONDS, ENDING_SECONDS = 0.25, 5.0


@dataclass(frozen=True)
class Answer:
    """One side's answer so far (all of it, not the newest piece)."""

    side: Side
    text: str
    done: bool


class ChatClient:
    """Questions to one model and one adapter. Safe to share: questions queue up behind each other."""

    def __init__(
        self, locations: Locations, config: RunConfig, run_folder: Path | None, checkpoint: str = "best"
    ) -> None:
        self._locations, self._config = locations, config
        self._adapter = adapter_folder(JobFolder(run_folder), checkpoint) if run_folder else None
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def ask(
        self,
        messages: list[dict[str, str]],
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        seed: int = 0,
        top_p: float = 1.0,
        sides: tuple[Side, ...] = ("base", "tuned"),
    ) -> Iterator[Answer]:
        """The answers of these sides, base first, each growing until its ``done``; without an adapter the base's.

        Closing the iterator cancels the question.

        Raises:
            Fault: ``card.busy`` where a run holds the card; else what the child said.
        """
        question = _question(
            messages=messages, max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p, seed=seed,
            sides=sides if self._adapter else ("base",),
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
            adapter=str(self._adapter / "adapter") if self._adapter else "",
            home=str(self._locations.home),
            lock_name=read_machine(self._locations.home).lock_name,
        )


def adapter_folder(run: JobFolder, checkpoint: str) -> Path:
    """The checkpoint folder that ``best``, ``last`` or a step's name means.

    Raises:
        RunError: no such checkpoint stands.
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
    sides = len(set(question.sides))
    while sides:
        line = child.receive()
        if line.get("id", question.id) != question.id:
            continue  # the rest of a question that was cancelled
        _raise_fault(line)
        piece = Piece.model_validate(line)
        texts[piece.side] += piece.text
        sides -= piece.done
        yield Answer(piece.side, texts[piece.side], piece.done)


def _raise_fault(line: dict[str, Any]) -> None:
    if "code" in line:
        raise Fault.told_by(line)


class _Child:
    """The child process and its pipes. What it prints on stderr is kept for the one line when it dies."""

    def __init__(self, setup: Setup, locations: Locations) -> None:
        self._locations, self._card = locations, setup.lock_name
        quiet = {"HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUTF8": "1"}
        card = card_environment(os.environ, read_machine(), plain=False)
        self._process = spawn_leased("core.chat.child", {**os.environ, **quiet, **card})
        self._printed: deque[str] = deque(maxlen=20)
        self._lines: queue.Queue[str] = queue.Queue()
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._printing = _reading(self._process.stderr, self._printed.append)
        self._answering = _reading(self._process.stdout, self._lines.put, end=lambda: self._lines.put(""))
        try:
            self.send(setup.model_dump(mode="json"))
            _raise_fault(self.receive(LOADING_SECONDS))
        except BaseException:
            self.close()
            raise

    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, line: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(line) + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise self._died() from error

    def receive(self, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """Its next line. A child that says nothing for so long, or stays on a card that a run waits for, is killed."""
        patience = Patience(self._locations, self._card, seconds)
        while True:
            with contextlib.suppress(queue.Empty):
                line = self._lines.get(timeout=LOOK_SECONDS)
                break
            why = patience.is_over()
            if not why:
                continue
            self._process.kill()
            if why == "card":
                raise left_the_card("the model")
            raise RunError("talk.slow", minutes=seconds / 60)
        if not line:
            self._lines.put("")  # whoever asks once more hears the same
            raise self._died()
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """Closing its stdin ends the child; one that does not hear that is killed."""
        self._shut(self._process.stdin)
        self._wait()
        for thread, pipe in ((self._answering, self._process.stdout), (self._printing, self._process.stderr)):
            thread.join(timeout=1)
            if not thread.is_alive():
                self._shut(pipe)

    @staticmethod
    def _shut(pipe: IO[str] | None) -> None:
        if pipe is not None:
            with contextlib.suppress(OSError):  # it died with our words in the pipe
                pipe.close()

    def _wait(self) -> None:
        try:
            self._process.wait(timeout=ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _died(self) -> Fault:
        self._wait()
        self._printing.join(timeout=1)  # its last lines may still be on their way
        why, last = ending_of(self._process.returncode, tuple(self._printed))
        return RunError("talk.died", reason=why, last=last)


def _reading(pipe: IO[str], take: Callable[[str], None], end: Callable[[], None] = lambda: None) -> threading.Thread:
    """A thread that hands a pipe's lines on, each as it comes, and then says that it ended."""

    def read() -> None:
        with contextlib.suppress(ValueError):  # closed by close()
            for line in pipe:
                take(line)
        end()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread
