"""A GGUF file loaded by llama.cpp in this process: token ids, logits, greedy answers and losses.

Rows go through one context in parts of ``PART`` tokens, so that logits of a part are all that is held: ``[PART, V]``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.contract.errors import ModelError
from core.export.llama.library import LOG, Batch, opened
from core.machine.textfile import one_line

PART = 128
"""Tokens of one pass."""
_ERROR = 4
"""``GGML_LOG_LEVEL_ERROR``."""
Logits = NDArray[np.float32]
_INTEGERS = ctypes.POINTER(ctypes.c_int32)


@dataclass(frozen=True)
class _Token:
    """A token's number in the vocabulary, its place in its row, and the row."""

    number: int
    place: int
    row: int


@dataclass(frozen=True)
class Room:
    """``context``: tokens that are remembered at once, of all rows; ``rows``: that are; ``threads``: to compute on."""

    context: int = 1024
    rows: int = 1
    threads: int = 1


class LoadedModel:
    """A model of a file, with an adapter where one is given."""

    def __init__(self, file: Path, adapter: Path | None, room: Room) -> None:
        """Raises ModelError where llama.cpp refuses a file."""
        self._library = opened()
        self._said: list[str] = []
        self._log = LOG(self._listen)
        self._library.llama_log_set(self._log, None)
        self._library.llama_backend_init()
        params = self._library.llama_model_default_params()
        params.n_gpu_layers = 0
        self._model = self._found(self._library.llama_model_load_from_file(str(file).encode(), params), "the model")
        self._vocabulary = self._library.llama_model_get_vocab(self._model)
        self.tokens_known = int(self._library.llama_vocab_n_tokens(self._vocabulary))
        settings = self._library.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch = max(room.context, PART), PART, PART
        settings.n_seq_max, settings.kv_unified = room.rows, True
        settings.n_outputs_max = settings.n_outputs_max_per_seq = 0
        settings.n_threads = settings.n_threads_batch = room.threads
        self._context = self._found(self._library.llama_init_from_model(self._model, settings), "a context")
        if adapter:
            held = self._found(self._library.llama_adapter_lora_init(self._model, str(adapter).encode()), "the adapter")
            one, scale = (ctypes.c_void_p * 1)(held), (ctypes.c_float * 1)(1.0)
            if self._library.llama_set_adapters_lora(self._context, one, 1, scale):
                raise ModelError("export.llama", reason="it refuses the adapter")

    def _listen(self, level: int, text: bytes, _data: Any) -> None:
        if level == _ERROR and text.strip():
            self._said.append(one_line(text.decode(errors="replace"), 300))

    @property
    def _words(self) -> str:
        """The first error since the beginning: what follows says that something failed."""
        return next(iter(self._said), "")

    def _found(self, pointer: int | None, what: str) -> int:
        if not pointer:
            raise ModelError("export.llama", reason=self._words or f"it cannot load {what}")
        return pointer

    def tokens(self, text: str, special: bool) -> list[int]:
        """Its token ids; ``special``: with what llama.cpp adds at the ends. Special tokens' names are read as such."""
        raw = text.encode()
        room = len(raw) + 16
        ids = (ctypes.c_int32 * room)()
        count = self._library.llama_tokenize(self._vocabulary, raw, len(raw), ids, room, special, True)
        if count < 0:
            raise ModelError("export.llama", reason=f"it makes {-count} tokens of {len(raw)} bytes")
        return list(ids[:count])

    def answers(self, prompts: Sequence[Sequence[int]], most: int, last: int) -> tuple[list[list[int]], Logits]:
        """For each prompt the ``most`` tokens that follow, the likeliest each time, and the logits behind its ``last``
        tokens, ``[prompts · last, V]``. All prompts go on together, so that weights are read once for a token of each;
        ends are no ends here."""
        self._clear()
        behind, answers = [], [[] for _ in prompts]  # type: tuple[list[Logits], list[list[int]]]
        for number, prompt in enumerate(prompts):
            for start in range(0, len(prompt), PART):
                part = prompt[start : start + PART]
                outputs = [start + place >= len(prompt) - last for place in range(len(part))]
                tokens = [_Token(token, start + place, number) for place, token in enumerate(part)]
                behind.append(self._decoded(tokens, outputs).copy())
            answers[number].append(int(behind[-1][-1].argmax()))
        for step in range(most - 1):
            tokens = [
                _Token(answer[-1], len(prompt) + step, number)
                for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
            ]
            logits = self._decoded(tokens, [True] * len(tokens))
            for answer, token in zip(answers, logits.argmax(1).tolist(), strict=True):
                answer.append(token)
        return answers, np.concatenate(behind)

    def loss(self, ids: Sequence[int], trained: Sequence[Sequence[int]]) -> tuple[float, int]:
        """The sum of the trained tokens' losses, in nats, and their count. ``trained``: ranges [start, stop)."""
        wanted = {place for start, stop in trained for place in range(max(start, 1), stop)}
        self._clear()
        summed = 0.0
        for start in range(0, len(ids), PART):
            part = ids[start : start + PART]
            outputs = [start + place + 1 in wanted for place in range(len(part))]
            logits = self._decoded([_Token(token, start + place, 0) for place, token in enumerate(part)], outputs)
            targets = [ids[start + place + 1] for place, output in enumerate(outputs) if output]
            for row, target in zip(logits, targets, strict=True):
                values = row.astype(np.float64)
                most = values.max()
                summed += float(most + np.log(np.exp(values - most).sum()) - values[target])
        return summed, len(wanted)

    def _clear(self) -> None:
        self._library.llama_memory_clear(self._library.llama_get_memory(self._context), True)

    def _decoded(self, tokens: Sequence[_Token], outputs: Sequence[bool]) -> Logits:
        """Computes tokens; the logits behind those that are asked for, ``[outputs, V]``, until the next call."""
        count = len(tokens)
        rows = [(ctypes.c_int32 * 1)(token.row) for token in tokens]
        batch = Batch(
            count,
            (ctypes.c_int32 * count)(*[token.number for token in tokens]),
            None,
            (ctypes.c_int32 * count)(*[token.place for token in tokens]),
            (ctypes.c_int32 * count)(*[1] * count),
            (ctypes.POINTER(ctypes.c_int32) * count)(*[ctypes.cast(row, _INTEGERS) for row in rows]),
            (ctypes.c_int8 * count)(*outputs),
        )
        if failed := self._library.llama_decode(self._context, batch):
            raise ModelError("export.llama", reason=f"llama_decode returned {failed} {self._words}".strip())
        if not any(outputs):
            return np.zeros((0, self.tokens_known), np.float32)
        held = self._library.llama_get_logits(self._context)
        return np.ctypeslib.as_array(held, (sum(outputs), self.tokens_known))
