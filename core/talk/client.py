"""The light end of Try: starts the child, asks, and yields both answers as they grow.

The child takes the card's lock without waiting; where a run holds it the client says so, and the page asks through
the run instead. A child that died is said in one line and started again at the next question.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.catalog import find_model
from core.contract.config import RunConfig
from core.contract.errors import ModelError, RunError, StudioError
from core.hardware import read_machine
from core.locations import REPOSITORY, Locations
from core.runs.folder import JobFolder
from core.runs.log import EventTail
from core.runs.record import fold
from core.talk.words import Ask, Piece, Setup, Side

__all__ = ["Answer", "Talk", "adapter_folder"]


@dataclass(frozen=True)
class Answer:
    """One side's answer so far (all of it, not the newest piece)."""

    side: Side
    text: str
    done: bool


class Talk:
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
    ) -> Iterator[Answer]:
        """Both answers, base first where there is an adapter, each growing until its ``done``.

        Closing the iterator cancels the question.

        Raises:
            StudioError: ``card.busy`` where a run holds the card; else what the child said.
        """
        question = Ask(
            id=uuid.uuid4().hex,
            messages=tuple(messages),
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_p=top_p,
            seed=seed,
        )
        with self._lock:
            child = self._living_child()
            child.send(question.model_dump())
            finished = False
            try:
                yield from _answers(child, question.id, sides=2 if self._adapter else 1)
                finished = True
            finally:
                if not finished and child.alive():
                    child.send({"cancel": question.id})

    def close(self) -> None:
        """Ends the child; a later question starts a new one."""
        child, self._child = self._child, None
        if child:
            child.close()

    def _living_child(self) -> _Child:
        if self._child is None or not self._child.alive():
            self.close()
            self._child = _Child(self._setup())
        return self._child

    def _setup(self) -> Setup:
        model = self._config.model
        spec = find_model(model.source, model.name, model.revision)
        if not spec.folder:
            raise ModelError(
                "model.not_here", f"Expected {spec.title} on this machine, found it gone.", "Download it again."
            )
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
    standing = {path.parent.name: path.parent for path in run.checkpoints.glob("step-*/MANIFEST.json")}
    wanted = checkpoint
    if checkpoint in ("best", "last"):
        newest = run.newest_checkpoint()
        wanted = newest.name if newest else ""
    if checkpoint == "best":
        best = [
            said.name for said in fold(EventTail(run.events).read()).checkpoints if said.best and said.name in standing
        ]
        wanted = best[-1] if best else wanted
    if wanted not in standing:
        raise RunError(
            "run.no_checkpoint", f"Expected a checkpoint ({checkpoint}) in {run.name}, found none.", "Save first."
        )
    return standing[wanted]


def _answers(child: _Child, question: str, sides: int) -> Iterator[Answer]:
    texts: dict[Side, str] = {"base": "", "tuned": ""}
    while sides:
        word = child.receive()
        if word.get("id", question) != question:
            continue  # the rest of a question that was cancelled
        if "code" in word:
            raise StudioError(word["code"], word["message"], word.get("hint", ""))
        piece = Piece.model_validate(word)
        texts[piece.side] += piece.text
        sides -= piece.done
        yield Answer(piece.side, texts[piece.side], piece.done)


class _Child:
    """The child process and its pipes. What it prints on stderr is kept for the one line when it dies."""

    def __init__(self, setup: Setup) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "core.talk.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        self._last_words: deque[str] = deque(maxlen=20)
        threading.Thread(target=self._listen, daemon=True).start()
        self.send(setup.model_dump(mode="json"))
        ready = self.receive()
        if "code" in ready:
            self.close()
            raise StudioError(ready["code"], ready["message"], ready.get("hint", ""))

    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, word: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(word) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise self._died() from error

    def receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._died()
        word: dict[str, Any] = json.loads(line)
        return word

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                try:
                    pipe.close()
                except OSError:
                    continue  # it died with our words in the pipe
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _died(self) -> StudioError:
        self._process.wait()
        code = self._process.returncode
        why = "killed, most likely because memory ran out" if code == -9 else f"exit code {code}"
        last = next((line.strip() for line in reversed(self._last_words) if line.strip()), "")
        return RunError(
            "talk.died", f"The model that answers ended ({why}). {last}".strip()[:300], "Ask again: it is started anew."
        )

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._last_words.append(line)
