"""Attention over packed rows against textbook arithmetic, one row at a time; shared by CPU and GPU tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from core.model.attention.backends import attend
from core.model.attention.choice import AttentionKind, Bounds, Keys

LENGTHS = (37, 1, 300, 5, 129, 1, 64, 90)


@dataclass(frozen=True)
class Case:
    """``slack`` widens the row buffer, as a border of low-rank columns does; ``shared`` tokens of the row before stand
    before a row's own."""

    name: str
    lengths: tuple[int, ...] = LENGTHS
    heads: int = 8
    groups: int = 2
    head_dim: int = 64
    window: int | None = None
    softcap: float | None = None
    slack: int = 0
    causal: bool = True
    shared: tuple[int, ...] = ()

    @property
    def rows(self) -> list[list[int]]:
        """The tokens that each row has, its own last."""
        rows: list[list[int]] = []
        start = 0
        for length, shared in zip(self.lengths, self.shared or (0,) * len(self.lengths), strict=True):
            rows.append([*(rows[-1][:shared] if shared else []), *range(start, start + length)])
            start += length
        return rows

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    @property
    def alone(self) -> bool:
        """Whether every token sees itself alone: then no logit matters, and the gradients of q and k are zero."""
        return self.window == 1 or max(map(len, self.rows)) == 1

    @property
    def kind(self) -> AttentionKind:
        return AttentionKind(0.11, self.window, self.softcap, self.causal)

    def bounds(self, device: torch.device | str = "cpu") -> Bounds:
        def of(lengths: list[int], keys: Keys | None = None) -> Bounds:
            cu = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device=device)
            return Bounds(cu, max(lengths), len(lengths), sum(lengths), keys)

        if not self.shared:
            return of(list(self.lengths))
        flat = [token for row in self.rows for token in row]
        places = [[at for at, token in enumerate(flat) if token == wanted] for wanted in range(self.tokens)]
        tokens, keys = (
            torch.tensor(part, dtype=torch.int32, device=device)
            for part in (flat, [[of_token[0] for of_token in places], [of_token[-1] for of_token in places]])
        )
        return of(list(self.lengths), Keys(tokens, keys, of(list(map(len, self.rows)))))

    def draw(self, dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
        """The row buffer ``[T, (heads + 2 groups) head_dim + slack]``; its values fit the dtype."""
        width = (self.heads + 2 * self.groups) * self.head_dim + self.slack
        generator = torch.Generator().manual_seed(seed)
        return (torch.randn(self.tokens, width, generator=generator) * 1.5).to(dtype)

    def seed(self, dtype: torch.dtype) -> torch.Tensor:
        shape = (self.tokens, self.heads, self.head_dim)
        return torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(dtype)

    def views(self, buffer: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q, k and v as strided views of the row buffer."""
        inner = buffer[:, : (self.heads + 2 * self.groups) * self.head_dim]
        heads = inner.unflatten(1, (-1, self.head_dim))
        q, k, v = heads.split((self.heads, self.groups, self.groups), dim=1)
        return q, k, v


CASES = [
    Case("rows"),
    Case("one row", (200,)),
    Case("one token", (1,), heads=2, groups=2),
    Case("equal rows", (256, 256, 256)),
    Case("equal odd rows", (77, 77)),
    Case("no groups", heads=3, groups=3, head_dim=128),
    Case("one group", heads=6, groups=1, head_dim=96),
    Case("bordered buffer", slack=16),
    Case("buffer of odd width", slack=3),
    Case("odd heads", head_dim=20),
    Case("window", window=7),
    Case("window of one", window=1),
    Case("window past all rows", window=4096),
    Case("window of equal rows", (256, 256), window=100),
    Case("cap", softcap=2.0),
    Case("cap and window", softcap=2.0, window=33),
    Case("wide heads", heads=4, groups=2, head_dim=256),
    Case("wide heads, cap and window", heads=4, groups=2, head_dim=256, softcap=3.0, window=50),
    Case("one prompt's answers", shared=(0, 30, 0, 4, 0, 0, 0, 63)),
    Case("one prompt's answers in a window", shared=(0, 30, 0, 4, 0, 0, 0, 63), window=7),
    Case("one prompt's answers, cap", shared=(0, 30, 0, 4, 0, 0, 0, 63), softcap=2.0),
    Case("both ways", groups=8, causal=False),
    Case("both ways in a window", groups=8, window=7, causal=False),
    Case("both ways in equal rows", (256, 256, 256), groups=8, causal=False),
]
BY_NAME = {case.name: case for case in CASES}


def textbook(case: Case, buffer: torch.Tensor) -> torch.Tensor:
    """Row by row in the buffer's own dtype, softmax in float32 at least: what plain torch makes of the formula."""
    q, k, v = case.views(buffer)
    groups = case.heads // case.groups
    outputs = []
    for own, row in zip(case.lengths, case.rows, strict=True):
        length = len(row)
        row_q, row_k, row_v = (part[row].transpose(0, 1) for part in (q, k, v))
        row_k, row_v = row_k.repeat_interleave(groups, dim=0), row_v.repeat_interleave(groups, dim=0)
        logits = row_q @ row_k.transpose(1, 2) * case.kind.scale
        if case.softcap is not None:
            logits = case.softcap * torch.tanh(logits / case.softcap)
        i = torch.arange(length, device=buffer.device)
        distance = i[:, None] - i[None, :]
        reach = case.window or length + 1
        seen = (distance >= 0 if case.causal else distance > -reach) & (distance < reach)
        logits = logits.masked_fill(~seen, -torch.inf)
        weights = torch.softmax(logits, -1, dtype=torch.promote_types(buffer.dtype, torch.float32)).to(buffer.dtype)
        outputs.append((weights @ row_v).transpose(0, 1)[length - own :])
    return torch.cat(outputs)


def both(function: Any, case: Case, buffer: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and gradient of the row buffer, by the textbook or by a function that takes what ``attend`` takes."""
    leaf = buffer.detach().clone().requires_grad_()
    if function is textbook:
        output = textbook(case, leaf)
    else:
        output = function(*case.views(leaf), case.bounds(buffer.device), case.kind)
        assert output.is_contiguous()
    (gradient,) = torch.autograd.grad(output, leaf, case.seed(buffer.dtype).to(buffer.device))
    return output.detach(), gradient


def parts(case: Case, pair: tuple[torch.Tensor, torch.Tensor]) -> list[torch.Tensor]:
    """Output and the gradients of q, k and v, apart: each has a size of its own."""
    return [pair[0], *case.views(pair[1])]


def assert_rule(
    case: Case, dtype: torch.dtype, device: torch.device | str, usual: Callable[..., torch.Tensor] | None = None
) -> None:
    """Error against float64 at most 1.5 times the textbook's in this dtype, and half a unit in the last place.

    ``usual`` stands in for the textbook where torch itself computes otherwise.
    """
    buffer = case.draw(dtype)
    truth = parts(case, both(textbook, case, buffer.double()))
    plain = parts(case, both(usual or textbook, case, buffer.to(device)))
    actual = parts(case, both(attend, case, buffer.to(device)))
    for name, exact, theirs, ours in zip(("output", "dq", "dk", "dv"), truth, plain, actual, strict=True):
        largest = exact.abs().max()
        if case.alone and name in ("dq", "dk"):
            # Zero in exact arithmetic: what is left is the rounding of dv's size, through the scale.
            rounding = 16 * torch.finfo(dtype).eps * case.kind.scale * truth[3].abs().max()
            most = float(rounding) if usual is None else max(float(rounding), 1.5 * float(theirs.abs().max()))
            assert ours.abs().max() <= most, case.name
            continue
        assert largest > 0, (case.name, name)
        half_unit = 0.5 * torch.finfo(dtype).eps * 2.0 ** torch.log2(largest).floor()
        for measure in (lambda e: e.square().mean().sqrt(), lambda e: e.abs().max()):
            allowed = 1.5 * measure(theirs.double().cpu() - exact) + half_unit
            error = measure(ours.double().cpu() - exact)
            assert error <= allowed, (case.name, name, float(error), float(allowed))


def assert_rows_apart(case: Case, dtype: torch.dtype, device: torch.device | str) -> None:
    """Other values in one row leave every other row's output and gradient as they are, bit for bit."""
    buffer = case.draw(dtype).to(device)
    other = buffer.clone()
    end = sum(case.lengths[:3])
    start = end - case.lengths[2]
    other[start:end] = case.draw(dtype, seed=9)[start:end].to(device)
    before, after = both(attend, case, buffer), both(attend, case, other)
    for first, second in zip(before, after, strict=True):
        assert torch.equal(first[:start], second[:start])
        assert torch.equal(first[end:], second[end:])
        assert not torch.equal(first[start:end], second[start:end])


def assert_dropout(case: Case, dtype: torch.dtype, device: torch.device | str, rel: float) -> None:
    """A mask is drawn by the seed, on both ways the same, and the mean over masks is what comes without."""
    kind, bounds = replace(case.kind, dropout=0.3), case.bounds(device)
    q, k, v = (part.detach().clone().requires_grad_() for part in case.views(case.draw(dtype).to(device)))
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(attend(q, k, v, bounds, kind))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    weight = case.seed(dtype).to(device)
    (slope,) = torch.autograd.grad(drawn[0], v, weight)
    parts, back = drawn[0].detach().double() * weight.double(), (slope.double() * v.detach().double()).sum()
    assert (parts.sum() - back).abs() <= rel * parts.abs().sum()
    with torch.no_grad():
        plain = attend(q, k, v, bounds, case.kind).double()
        mean = torch.stack([attend(q, k, v, bounds, kind).double() for _ in range(60)]).mean(0)
    assert (mean - plain).norm() <= 0.2 * plain.norm()
