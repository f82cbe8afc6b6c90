"""The asking end of ``child``: a GGUF file in llama.cpp, in a process that may be killed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from core.contract.errors import ModelError
from core.export.llama.model import Logits, Room
from core.machine.children.line_child import EndedError, LineChild
from core.machine.imports import without_card

_LOOK_SECONDS = 0.1
ONE_ROW = Room()
_SMALL_BYTES = 64 << 20
"""Of a file that one thread computes as fast as several."""
_TEXTS = 64
"""Texts of one request."""
Ranges = Sequence[Sequence[int]]


class Llama:
    """A loaded GGUF file. Each call raises ModelError where llama.cpp cannot do it, and whatever ``check`` raises."""

    def __init__(self, child: LineChild, check: Callable[[], None]) -> None:
        self._child, self._check = child, check

    def ask(self, request: dict[str, Any]) -> Any:
        """One request of ``child``, answered."""
        try:
            self._child.send(request)
            while (answer := self._child.hear(_LOOK_SECONDS)) is None:
                self._check()
        except EndedError as end:
            raise ModelError("export.llama", reason=f"it ended: {end}") from end
        if "error" in answer:
            raise ModelError.told_by(answer["error"])
        return answer.get("ok")

    def tokens(self, texts: Sequence[str], special: bool = False) -> list[list[int]]:
        """The token ids of texts; ``special``: with what llama.cpp adds at their ends."""
        groups = (list(texts[first : first + _TEXTS]) for first in range(0, len(texts), _TEXTS))
        return [ids for group in groups for ids in self.ask({"do": "tokens", "texts": group, "special": special})]

    def answers(self, prompts: Sequence[Sequence[int]], most: int, last: int = 1) -> tuple[list[list[int]], Logits]:
        """The ``most`` likeliest tokens that follow each prompt, each chosen alone, and the logits behind its ``last``
        tokens, ``[prompts · last, V]``."""
        with tempfile.NamedTemporaryFile() as file:
            rows = [list(prompt) for prompt in prompts]
            told = self.ask({"do": "answers", "prompts": rows, "most": most, "last": last, "to": file.name})
            return told["answers"], np.fromfile(file.name, np.float32).reshape(told["shape"])

    def loss(self, ids: Sequence[int], trained: Ranges) -> tuple[float, int]:
        """The sum of a row's losses over its trained ranges [start, stop), in nats, and how many tokens these are."""
        summed, count = self.ask({"do": "loss", "ids": list(ids), "trained": [list(one) for one in trained]})
        return float(summed), int(count)


@contextmanager
def llama(
    file: Path, adapter: Path | None = None, room: Room = ONE_ROW, check: Callable[[], None] = lambda: None
) -> Iterator[Llama]:
    """A child with this file loaded, and an adapter in GGUF beside it where one is given; ``room``: for the rows that
    are asked about, its threads chosen here; ``check`` is called while it works, and may raise.

    Raises:
        ModelError: llama.cpp cannot load it (``export.llama``), or is not installed (``export.package``).
    """
    environment = {**without_card(os.environ), "CUDA_VISIBLE_DEVICES": ""}
    child = LineChild("core.export.llama.child", environment)
    try:
        asking = Llama(child, check)
        try:
            while child.hear(_LOOK_SECONDS) is None:  # its first line says that it is ready
                check()
        except EndedError as end:
            raise ModelError("export.llama", reason=f"it did not start: {end}") from end
        threads = max(1, len(os.sched_getaffinity(0))) if file.stat().st_size > _SMALL_BYTES else 1
        held, given = str(adapter) if adapter else "", asdict(replace(room, threads=threads))
        asking.ask({"do": "load", "file": str(file), "adapter": held, "room": given})
        yield asking
    finally:
        child.kill()
        child.close()
