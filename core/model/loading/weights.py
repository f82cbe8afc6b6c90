"""Reads a folder's weights: from the cache of quantised weights, streamed, or by transformers alone.

Streamed: transformers builds the model (``assemble``) and we read each tensor on request (``tensor_stream``). What
cannot be streamed is left to transformers, and the model's line says why. All three give the same bits.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from core.contract.errors import ModelError
from core.model.faults import is_card_fault
from core.model.generation import read_generation
from core.model.loading import weight_cache
from core.model.loading.assemble import Target, assemble, auto_class, classes_of
from core.model.loading.streamed import assemble_streamed, streamed_line
from core.model.loading.tensor_stream import NotStreamableError, TensorStream
from core.model.loading.together import ALONE, Together
from core.models.checks.weights import INDEX_NAME, weight_files

Progress = Callable[[int, int], None]


def read_weights(
    folder: Path,
    config: Any,
    target: Target,
    on_progress: Progress | None,
    cache: Path | None,
    *,
    together: Together = ALONE,
) -> tuple[Any, str]:
    """The model of a folder, and a line for people on how its weights were read.

    Args:
        on_progress: called with (bytes read, total bytes).
        cache: root of the cache of quantised weights; None uses none.
        together: of several processes the first alone fills the cache.

    Raises:
        ModelError: a weight is missing, or a file is truncated.
    """
    begun, tell = time.perf_counter(), on_progress or (lambda _done, _total: None)
    try:
        files = streamable(folder, config)
        key = weight_cache.key(folder, files, target) if cache and target.form.cached else None
        parts = config, target, together
        cached = _from_cache((cache, key), folder, parts, tell) if cache and key else None
        model, report, read_bytes = cached or _stream(files, parts, str(folder), tell)
    except NotStreamableError as reason:
        if target.streamed:
            raise ModelError("model.unstreamable", name=folder.name, reason=reason) from reason
        size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        with quiet_bars(lambda done, total: tell(size * done // max(1, total), size)):
            model, report = auto_class().from_pretrained(str(folder), config=config, **target.options())
        check_complete(folder, (report if isinstance(report, dict) else report.to_dict())["missing_keys"])
        return model, f"weights: read by transformers, since {reason}"
    check_complete(folder, report["missing_keys"])
    read_generation(model, folder)
    seconds = time.perf_counter() - begun
    line = f"weights: {read_bytes / 1e9:.1f} GB {'already quantised ' if cached else ''}read in {seconds:.1f} s"
    line += streamed_line(model, together)
    if cache and key and not cached and together.first:
        line += weight_cache.store(cache, key, model, read_bytes)
    return model, line


def streamable(folder: Path, config: Any) -> list[Path]:
    """The files to stream.

    Raises:
        NotStreamableError: only transformers' own reading understands them.
    """
    if [getattr(kind, "config_class", None) for kind in classes_of(config)] != [type(config)]:
        raise NotStreamableError("transformers chooses the class of this config in a way of its own")
    if getattr(config, "quantization_config", None) is not None:
        raise NotStreamableError("they lie there quantised")
    named = getattr(config, "transformers_weights", None) or getattr(type(config), "extra_files", None)
    if named or (folder / "adapter_config.json").is_file():
        raise NotStreamableError("the folder holds more than one model's weights")
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    if (folder / INDEX_NAME).is_file():
        return weight_files(folder)
    raise NotStreamableError(f"there is neither model.safetensors nor {INDEX_NAME}")


def _from_cache(
    entry: tuple[Path, str], folder: Path, parts: tuple[Any, Target, Together], tell: Progress
) -> tuple[Any, dict[str, Any], int] | None:
    """The cached model; None where there is none. An unusable entry is removed."""
    place = weight_cache.find(*entry)
    if place is None:
        return None
    config, target = copy.deepcopy(parts[0]), parts[1]
    # A quantisation named in the config means that weights are quantised already; asking for it again warns.
    config.quantization_config = target.quantization_config().to_dict()
    if not target.streamed:
        target = replace(target, quantization="none")
    try:
        model, report, read_bytes = _stream([place], (config, target, parts[2]), str(folder), tell)
        if not report["missing_keys"] and not report["unexpected_keys"]:
            return model, report, read_bytes
    except (ModelError, NotStreamableError, OSError, ValueError, KeyError, RuntimeError) as error:
        if isinstance(error, torch.OutOfMemoryError) or is_card_fault(error):
            raise
    weight_cache.drop(*entry)
    return None


def _stream(
    files: list[Path], parts: tuple[Any, Target, Together], name: str, tell: Progress
) -> tuple[Any, dict[str, Any], int]:
    config, target, together = parts
    with TensorStream(files, target.device) as stream:
        with quiet_bars(lambda _done, _total: tell(stream.done_bytes, stream.total_bytes)):
            if target.streamed:
                told = partial(_tell_of, stream, tell)
                model, report = assemble_streamed(config, stream.entries, target, name, told, together=together)
            else:
                model, report = assemble(config, stream.entries, target, name)
        tell(stream.total_bytes, stream.total_bytes)  # unused tensors were not counted
        return model, report, stream.total_bytes


def _tell_of(stream: TensorStream, tell: Progress) -> None:
    tell(stream.done_bytes, stream.total_bytes)


def check_complete(folder: Path, missing: Iterable[str] | None) -> None:
    """Refuses weights that transformers would initialise at random. Raises ModelError."""
    if missing := sorted(missing or ()):
        raise ModelError("model.incomplete", folder=folder, count=len(missing), missing=missing[0])


@contextmanager
def quiet_bars(on_progress: Progress) -> Iterator[None]:
    """Replaces transformers' loading bars by calls of ``on_progress``, through its tqdm hook."""
    set_hook = getattr(transformers_logging, "set_tqdm_hook", None)
    if set_hook is None:
        yield
        return
    previous = set_hook(lambda _factory, args, kwargs: _Counter(on_progress, *args, **kwargs))
    try:
        yield
    finally:
        set_hook(previous)


class _Counter:
    """Takes the place of a tqdm bar: iterates and reports."""

    def __init__(self, on_progress: Progress, iterable: Any = None, total: int | None = None, **_options: Any) -> None:
        self._report = on_progress
        self._iterable = iterable
        self._total = int(total if total is not None else len(iterable) if hasattr(iterable, "__len__") else 0)
        self._done = 0

    def __iter__(self) -> Iterator[Any]:
        for item in self._iterable:
            yield item
            self.update(1)

    def update(self, n: int = 1) -> None:
        """Counts ``n`` more."""
        self._done += int(n)
        self._report(self._done, self._total)

    def __enter__(self) -> _Counter:
        return self

    def __exit__(self, *_error: object) -> None:
        return None

    def __getattr__(self, _name: str) -> Callable[..., None]:
        # Other methods of a bar (set_postfix, close, refresh) do nothing.
        return lambda *_args, **_kwargs: None
