"""Two optimisers as one: Muon for the matrices of the layers, AdamW for all else.

Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon) makes a step's matrix orthogonal, so it has no step for
vectors, and its authors leave embedding and head to AdamW. Both are torch's. Its steps are scaled to AdamW's size (Liu
et al. 2025, arXiv:2502.16982), so learning rate and weight decay mean the same for both.
"""

from collections.abc import Sequence
from typing import Any

import torch

Groups = list[dict[str, Any]]


class Joint(torch.optim.Optimizer):
    """Steps each of ``parts`` over its own groups; state and groups are shared with them."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts = tuple(parts)
        self._share()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """After a state was loaded."""
        super().__setstate__(state)
        self._share()

    def _share(self) -> None:
        start = 0
        for part in self.parts:
            end = start + len(part.param_groups)
            part.state, part.param_groups, start = self.state, self.param_groups[start:end], end

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step of each."""
        assert closure is None
        for part in self.parts:
            part.step()


class MuonWithAdamW(Joint):
    """Muon for groups with ``"matrices": True``, AdamW with ``options`` for the others."""

    def __init__(self, groups: Groups, lr: float, **options: Any) -> None:
        muon = torch.optim.Muon([group for group in groups if group["matrices"]], lr=lr, adjust_lr_fn="match_rms_adamw")
        adamw = torch.optim.AdamW([group for group in groups if not group["matrices"]], lr=lr, **options)
        super().__init__([muon, adamw])
