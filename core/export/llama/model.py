"""A GGUF file loaded by llama.cpp in this process: token ids, logits, greedy answers and losses.

Rows go through one context in parts of ``PART`` tokens, so that logits of a part are all that is held: ``[PART, V]``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
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


class LoadedModel:
    """A model of a file, with an adapter where one is given. ``context``: the longest row, in tokens."""

    def __init__(self, file: Path, adapter: Path | None, context: int, threads: int) -> None:
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
        settings.n_ctx, settings.n_batch, settings.n_ubatch = max(context, PART), PART, PART
        settings.n_outputs_max = settings.n_outputs_max_per_seq = 0
        settings.n_threads = settings.n_threads_batch = threads
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

    def parts(self, ids: Sequence[int], first: int = 0) -> Iterator[Logits]:
        """Logits ``[tokens, V]`` behind each token of a row, part by part, overwritten by the next; ``first``: where
        the row goes on, 0 for a new one."""
        if not first:
            self._library.llama_memory_clear(self._library.llama_get_memory(self._context), True)
        for start in range(0, len(ids), PART):
            part = ids[start : start + PART]
            count = len(part)
            own = (ctypes.c_int32 * 1)(0)
            pointer = ctypes.cast(own, ctypes.POINTER(ctypes.c_int32))
            batch = Batch(
                count,
                (ctypes.c_int32 * count)(*part),
                None,
                (ctypes.c_int32 * count)(*range(first + start, first + start + count)),
                (ctypes.c_int32 * count)(*[1] * count),
                (ctypes.POINTER(ctypes.c_int32) * count)(*[pointer] * count),
                (ctypes.c_int8 * count)(*[1] * count),
            )
            if failed := self._library.llama_decode(self._context, batch):
                raise ModelError("export.llama", reason=f"llama_decode returned {failed} {self._words}".strip())
            held = self._library.llama_get_logits(self._context)
            yield np.ctypeslib.as_array(held, (count, self.tokens_known))

    def greedy(self, ids: Sequence[int], most: int) -> list[int]:
        """The ``most`` tokens that follow, the likeliest each time; ends are no ends here."""
        answer: list[int] = []
        asked = list(ids)
        while len(answer) < most:
            first = len(ids) + len(answer) - 1 if answer else 0
            for logits in self.parts(asked, first):
                last = int(logits[-1].argmax())
            answer.append(last)
            asked = [last]
        return answer

    def loss(self, ids: Sequence[int], trained: Sequence[Sequence[int]]) -> tuple[float, int]:
        """The sum of the trained tokens' losses, in nats, and their count. ``trained``: ranges [start, stop)."""
        wanted = np.zeros(len(ids), bool)
        for start, stop in trained:
            wanted[max(start, 1) : stop] = True
        summed, place = 0.0, 0
        for logits in self.parts(ids):
            here = [int(one) for one in np.flatnonzero(wanted[place + 1 : place + 1 + len(logits)])]
            if here:
                picked = logits[here].astype(np.float64)
                target = np.array([picked[number, ids[place + 1 + one]] for number, one in enumerate(here)])
                most = picked.max(1)
                summed += float((most + np.log(np.exp(picked - most[:, None]).sum(1)) - target).sum())
            place += len(logits)
        return summed, int(wanted.sum())
