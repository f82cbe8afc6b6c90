"""Nested state (an optimiser's, a scheduler's) as safetensors and JSON, without pickle, bit for bit.

Tensors go to ``NAME.safetensors``, the tree around them to ``NAME.json``, with ``{"$...": ...}`` for tensors by name,
tuples and mappings whose keys are not all text. A tensor in several places (bitsandbytes shares its quantisation maps)
is stored once and shared again after reading.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file


def flatten(tree: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """The tree with names in place of tensors, and the tensors by name.

    Raises:
        TypeError: something is neither tensor, container nor plain value.
    """
    tensors: dict[str, torch.Tensor] = {}
    names: dict[int, str] = {}

    def visit(node: Any) -> Any:
        if isinstance(node, torch.Tensor):
            if id(node) not in names:
                names[id(node)] = f"t{len(names)}"
                tensors[names[id(node)]] = node
            return {"$tensor": names[id(node)]}
        if isinstance(node, dict):
            if all(isinstance(key, str) and not key.startswith("$") for key in node):
                return {key: visit(value) for key, value in node.items()}
            return {"$map": [[visit(key), visit(value)] for key, value in node.items()]}
        if isinstance(node, tuple):
            return {"$tuple": [visit(value) for value in node]}
        if isinstance(node, list):
            return [visit(value) for value in node]
        if node is None or isinstance(node, (bool, int, float, str)):
            return node
        raise TypeError(f"cannot keep a {type(node).__name__} without pickle")

    return visit(tree), tensors


def unflatten(tree: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """The inverse of ``flatten``."""
    if isinstance(tree, list):
        return [unflatten(value, tensors) for value in tree]
    if not isinstance(tree, dict):
        return tree
    if "$tensor" in tree:
        return tensors[tree["$tensor"]]
    if "$tuple" in tree:
        return tuple(unflatten(value, tensors) for value in tree["$tuple"])
    if "$map" in tree:
        return {unflatten(key, tensors): unflatten(value, tensors) for key, value in tree["$map"]}
    return {key: unflatten(value, tensors) for key, value in tree.items()}


def save_state(folder: Path, name: str, tree: Any) -> None:
    """Writes ``NAME.json`` and, where there are tensors, ``NAME.safetensors`` into ``folder``."""
    plain, tensors = flatten(tree)
    (folder / f"{name}.json").write_text(json.dumps(plain), encoding="utf-8")
    if tensors:
        # clone(): safetensors refuses two tensors that are views of one storage
        save_file(
            {key: value.detach().cpu().clone().contiguous() for key, value in tensors.items()}, _file(folder, name)
        )


def load_state(folder: Path, name: str) -> Any:
    """Reads what ``save_state`` wrote, tensors on the CPU; None where nothing was written under this name."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return None
    tensors = load_file(_file(folder, name)) if _file(folder, name).is_file() else {}
    return unflatten(json.loads(path.read_text(encoding="utf-8")), tensors)


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.safetensors"
