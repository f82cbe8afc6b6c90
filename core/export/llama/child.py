"""``python -m core.export.llama.child``: one GGUF file in llama.cpp, asked by ``client``. ggml ends its process where
something is not as it expects."""

from pathlib import Path
from typing import Any

from core.export.llama.model import LoadedModel, Room
from core.machine.children.serve import serve

_loaded: dict[str, LoadedModel] = {}


def load(request: dict[str, Any]) -> dict[str, int]:
    """``{file, adapter, room}`` → how many tokens it knows."""
    adapter = Path(request["adapter"]) if request["adapter"] else None
    made = LoadedModel(Path(request["file"]), adapter, Room(**request["room"]))
    _loaded["model"] = made
    return {"tokens": made.tokens_known}


def tokens(request: dict[str, Any]) -> list[list[int]]:
    """``{texts, special}`` → token ids."""
    return [_loaded["model"].tokens(text, request["special"]) for text in request["texts"]]


def answers(request: dict[str, Any]) -> dict[str, Any]:
    """``{prompts, most, last, to}`` → the likeliest tokens that follow each, and the shape of the logits behind its
    last tokens, written to a file in float32."""
    made, logits = _loaded["model"].answers(request["prompts"], request["most"], request["last"])
    logits.tofile(request["to"])
    return {"answers": made, "shape": list(logits.shape)}


def loss(request: dict[str, Any]) -> tuple[float, int]:
    """``{ids, trained}`` → the sum of the trained tokens' losses and their count."""
    return _loaded["model"].loss(request["ids"], request["trained"])


if __name__ == "__main__":
    serve({"load": load, "tokens": tokens, "answers": answers, "loss": loss})
