"""Reads single weights of a folder as they lie there, while the model holds them quantised."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import AutoConfig

from core.contract.errors import ModelError
from core.model.loading.tensor_stream import NotStreamableError, TensorStream
from core.model.loading.weights import Progress, streamable
from core.model.loftq import Original


@contextmanager
def original_weights(folder: Path, device: torch.device, on_progress: Progress | None = None) -> Iterator[Original]:
    """A reader by the names of layers, onto the device; the folder has been checked.

    ``on_progress`` is called with (bytes read, total bytes) before each; what it raises ends the reading.

    Raises:
        ModelError: they lie there quantised, in another way than safetensors, or under other names.
    """
    try:
        config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
        stream = TensorStream(streamable(folder, config), device)
    except NotStreamableError as reason:
        raise ModelError("model.original", reason=f"{reason} in {folder}") from reason

    def read(name: str) -> torch.Tensor:
        entry = stream.entries.get(f"{name}.weight") or stream.entries.get(f"{name.partition('.')[2]}.weight")
        if entry is None:
            raise ModelError("model.original", reason=f"no weight {name} in {folder}")
        if on_progress is not None:
            on_progress(stream.done_bytes, stream.total_bytes)
        return stream.read(entry)

    with stream:
        yield read
