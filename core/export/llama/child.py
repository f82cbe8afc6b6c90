"""``python -m core.export.llama.child``: one GGUF file in llama.cpp, asked by ``client``. ggml ends its process where
something is not as it expects."""

from pathlib import Path
from typing import Any

import numpy as np

from core.export.llama.model import LoadedModel
from core.machine.children.serve import serve

_loaded: dict[str, LoadedModel] = {}


def load(request: dict[str, Any]) -> dict[str, int]:
    """``{file, adapter, context, threads}`` → how many tokens it knows."""
    adapter = Path(request["adapter"]) if request["adapter"] else None
    made = LoadedModel(Path(request["file"]), adapter, request["context"], request["threads"])
    _loaded["model"] = made
    return {"tokens": made.tokens_known}


def tokens(request: dict[str, Any]) -> list[list[int]]:
    """``{texts, special}`` → token ids."""
    return [_loaded["model"].tokens(text, request["special"]) for text in request["texts"]]


def greedy(request: dict[str, Any]) -> list[int]:
    """``{ids, most}`` → the likeliest tokens that follow."""
    return _loaded["model"].greedy(request["ids"], request["most"])


def loss(request: dict[str, Any]) -> tuple[float, int]:
    """``{ids, trained}`` → the sum of the trained tokens' losses and their count."""
    return _loaded["model"].loss(request["ids"], request["trained"])


def logits(request: dict[str, Any]) -> list[int]:
    """``{ids, last, to}`` → the shape of the logits behind the ``last`` tokens, written to a file in float32."""
    parts = [part.copy() for part in _loaded["model"].parts(request["ids"])]
    kept = np.concatenate(parts)[-request["last"] :]
    kept.tofile(request["to"])
    return list(kept.shape)


if __name__ == "__main__":
    serve({"load": load, "tokens": tokens, "greedy": greedy, "loss": loss, "logits": logits})
