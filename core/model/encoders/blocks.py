"""Attention with embeddings of distances (DeBERTa) over packed rows: in blocks of rows of like length.

Its logits have two terms more, looked up by the distance of query and key (He et al. 2021, arXiv:2006.03654), which no
flash kernel computes. So rows are sorted by length and padded a block at a time, each block to its own longest row, and
for attention alone: everything else of a layer runs on real tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F

SPREAD = 1.5
"""The longest row of a block has at most so many times the tokens of its shortest."""
SHORTEST = 16
"""Rows up to here share a block: at such lengths padding costs less than another block."""


@dataclass(frozen=True)
class Block:
    """Rows that are computed as one padded batch.

    Attributes:
        places: int64 ``[rows · L]``, each slot's token; padding names the token after the last.
        mask: ``[rows, 1, L, L]``, 1 where both are tokens.
        distances: ``[1, L, L]``, as the model buckets them.
        shape: rows and L.
    """

    places: torch.Tensor
    mask: torch.Tensor
    distances: torch.Tensor
    shape: tuple[int, int]


@dataclass(frozen=True)
class Blocks:
    """The blocks of one batch, for all layers, and the embeddings of distances that all layers share.

    Attributes:
        back: int64 ``[T]``, where in the blocks' slots, one block after another, each token lies.
    """

    blocks: tuple[Block, ...]
    back: torch.Tensor
    embeddings: torch.Tensor

    @staticmethod
    def of(edges: Sequence[int], encoder: Any, device: torch.device) -> "Blocks":
        """The blocks of rows that begin and end at ``edges``, with the distances of ``encoder``."""
        starts, lengths = list(edges[:-1]), [end - start for start, end in pairwise(edges)]
        slot, blocks, back = 0, [], torch.empty(edges[-1], dtype=torch.long)
        for rows in groups(lengths):
            longest = max(lengths[row] for row in rows)
            steps = torch.arange(longest)[None]
            ends = torch.tensor([lengths[row] for row in rows])[:, None]
            places = torch.tensor([starts[row] for row in rows])[:, None] + steps
            tokens = steps < ends
            back[places[tokens]] = (slot + torch.arange(tokens.numel())).view_as(tokens)[tokens]
            slot += tokens.numel()
            mask = tokens[:, None, :, None] & tokens[:, None, None, :]
            like = torch.empty(1, longest, 1, device=device)
            blocks.append(
                Block(
                    torch.where(tokens, places, edges[-1]).flatten().to(device), mask.to(device),
                    encoder.get_rel_pos(like), (len(rows), longest),
                )
            )  # fmt: skip
        return Blocks(tuple(blocks), back.to(device), encoder.get_rel_embedding())

    def attend(self, attention: Any, x: torch.Tensor) -> torch.Tensor:
        """The attention module's output for packed ``x [1, T, D]``, projections included."""
        # Padding reads one row of zeros behind the last token: no real token gets a gradient from it.
        source, outputs = F.pad(x[0], (0, 0, 0, 1)), []
        for block in self.blocks:
            inputs = source.index_select(0, block.places).unflatten(0, block.shape)
            done = attention(inputs, block.mask, relative_pos=block.distances, rel_embeddings=self.embeddings)[0]
            outputs.append(done.flatten(0, 1))
        return torch.cat(outputs).index_select(0, self.back)[None]


def groups(lengths: Sequence[int]) -> list[list[int]]:
    """Rows of like length together, shortest first."""
    found: list[list[int]] = []
    reach = 0.0
    for row in sorted(range(len(lengths)), key=lambda row: (lengths[row], row)):
        if not found or lengths[row] > reach:
            found.append([])
            reach = max(SHORTEST, SPREAD * lengths[row])
        found[-1].append(row)
    return found
