"""Embeddings in host memory: rows are looked up there, and only they go to the card."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class HostRows:
    """A table ``[V, D]`` on the host, and a pinned buffer for rows on their way."""

    def __init__(self, table: torch.Tensor) -> None:
        self.table = table
        self._leaving = table.new_empty(0)

    def look_up(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows ``[..., D]`` of ``ids [...]``, on their device."""
        if ids.device == self.table.device:
            return F.embedding(ids, self.table)
        numbers, width = ids.flatten().cpu(), self.table.shape[1]  # waits for all before, so the buffer is free again
        if self._leaving.numel() < numbers.numel() * width:
            self._leaving = torch.empty(numbers.numel() * width, dtype=self.table.dtype, pin_memory=True)
        rows = self._leaving[: numbers.numel() * width].view(-1, width)
        torch.index_select(self.table, 0, numbers, out=rows)
        return rows.to(ids.device, non_blocking=True).view(*ids.shape, width)


def on_host(embedding: nn.Embedding, table: torch.Tensor, device: torch.device) -> nn.Embedding:
    """An embedding that shares all attributes of ``embedding`` and looks rows up in ``table``.

    What stands for its weight on the card has the same shape and no numbers; a copy of it, which is to be trained, is a
    usual one again. One that does more with its rows than look them up does so still.
    """
    embedding.weight.data = stand_in(table, device)
    kind = type(embedding)
    new: nn.Embedding = object.__new__(
        _HostEmbedding if kind is nn.Embedding else type(f"Host{kind.__name__}", (kind, _HostEmbedding), {})
    )
    new.__dict__ = embedding.__dict__
    new.__dict__["host_rows"] = HostRows(table)
    return new


def stand_in(table: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Of the table's shape, without numbers or memory."""
    return torch.full((1, table.shape[1]), float("nan"), dtype=table.dtype, device=device).expand(table.shape)


def table_of(embedding: nn.Module) -> torch.Tensor | None:
    """The weight of an embedding or a head, wherever it lies; None where it has none."""
    held = _held(embedding)
    weight: torch.Tensor | None = held.table if held is not None else getattr(embedding, "weight", None)
    return weight


def _held(module: nn.Module) -> Any:
    """What holds a module's table on the host; None where it lies on the card."""
    return module.__dict__.get("host_rows") or module.__dict__.get("host_head")


def tables_in(model: nn.Module) -> dict[str, torch.Tensor]:
    """The tables of a model that lie on the host, by the names of their weights."""
    return {f"{name}.weight": held.table for name, one in model.named_modules() if (held := _held(one)) is not None}


class _HostEmbedding(nn.Embedding):
    host_rows: HostRows

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """``[...]`` to ``[..., D]``."""
        return self.host_rows.look_up(ids)

    def __deepcopy__(self, _known: Any) -> nn.Embedding:
        table = self.host_rows.table.to(self.weight.device, copy=True)
        copied = nn.Embedding.from_pretrained(table, freeze=True, padding_idx=self.padding_idx)
        return copied.train(self.training)
