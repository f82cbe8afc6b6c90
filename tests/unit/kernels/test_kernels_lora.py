"""The hand-written backward passes of a layer's two halves and of a projection, by gradcheck in float64."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
import torch

from core.estimate.inputs import layer
from core.estimate.inputs.layer import rounded_rank
from core.kernels import lora, reference
from core.kernels import lora_mlp as mlp_of
from core.kernels.lora import Projection, Stack, lora_linears
from core.kernels.lora_mlp import Mlp, lora_mlp
from core.kernels.lora_qkv import Heads, Norm, lora_qkv

DOUBLE = torch.float64
SEEDS, LARGE = (0, 2, 3, 4, 5, 6, 7, 8, 9), (1, 10, 11)
"""Of drawn stacks; the large ones have nothing that those of a quarter of their numbers do not have."""


def draw(*shape: int, gradient: bool = False) -> torch.Tensor:
    return torch.randn(*shape, dtype=DOUBLE, requires_grad=gradient)


def in_pairs(*choices: list[Any]) -> list[Any]:
    """Every combination; by default those of an even number of second choices, among which any two choices meet."""
    return [
        pytest.param(*chosen, marks=() if sum(map(list.index, choices, chosen)) % 2 == 0 else pytest.mark.slow)
        for chosen in product(*choices)
    ]


def projection(
    outputs: int, inputs: int, rank: int, scale: float = 0.5, bias: bool = False, dora: bool = False
) -> Projection:
    weight = draw(outputs, inputs) / inputs**0.5
    a = draw(rank, inputs, gradient=True) if rank else None
    b = draw(outputs, rank, gradient=True) if rank else None
    m = (0.5 + torch.rand(outputs, dtype=DOUBLE)).requires_grad_() if rank and dora else None
    return Projection(lambda: weight, draw(outputs) if bias else None, a, b, scale, (outputs, inputs), magnitude=m)


def norm(width: int, offset: float = 0.0) -> Norm:
    return Norm(1 + 0.1 * draw(width), 1e-6, offset)


def plain(x: torch.Tensor, p: Projection) -> torch.Tensor:
    if p.a is not None and p.b is not None and p.magnitude is not None:
        return reference.dora_linear(x, p.weight(), (p.a, p.b), p.scale, p.magnitude, p.bias)
    y = x @ p.weight().T
    if p.bias is not None:
        y = y + p.bias
    return y if p.a is None or p.b is None else y + p.scale * ((x @ p.a.T) @ p.b.T)


def check(function: object, inputs: list[torch.Tensor]) -> None:
    assert torch.autograd.gradcheck(function, inputs, fast_mode=False, atol=1e-7, rtol=1e-5)


@pytest.fixture
def norms_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """DoRA's norms as they were at first: gradcheck would see them change, the backward pass takes them as constant."""
    inner, held = Stack.factors, dict[int, torch.Tensor]()

    def factors(stack: Stack, m: torch.Tensor) -> torch.Tensor:
        ones = torch.ones(stack.rows, dtype=DOUBLE)
        own = [ones[: p.shape[0]] if p.magnitude is None else p.magnitude.detach() for p in stack.parts]
        now = torch.cat(own)
        return now / held.setdefault(id(stack.parts[0].held), now / inner(stack, m))

    monkeypatch.setattr(Stack, "factors", factors)


def agree(actual: object, wanted: object) -> None:
    torch.testing.assert_close(actual, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("norms_held")
@pytest.mark.parametrize("seed", [*SEEDS, *(pytest.param(seed, marks=pytest.mark.slow) for seed in LARGE)])
def test_stacked_projections_are_those_side_by_side(seed: int) -> None:
    torch.manual_seed(seed)
    pick = random.Random(seed)
    width = pick.choice([3, 8, 17])
    parts = []
    for _ in range(pick.choice([1, 2, 3])):
        outputs, rank, scale = pick.choice([2, 5, 9]), pick.choice([0, 1, 3, 8]), pick.choice([0.5, 1.0, 2.0])
        parts.append(projection(outputs, width, rank, scale, bias=pick.random() < 0.5, dora=pick.random() < 0.5))
    x = draw(pick.choice([1, 2, 4]), width, gradient=True)
    y, wanted = lora_linears(x, parts), torch.cat([plain(x, p) for p in parts], dim=-1)
    agree(y, wanted)
    inputs, seed_of = [x, *Stack(tuple(parts)).adapters], torch.randn_like(y)
    agree(torch.autograd.grad(y, inputs, seed_of), torch.autograd.grad(wanted, inputs, seed_of))
    check(lambda first, *_: lora_linears(first, parts), inputs)


@pytest.mark.parametrize(("ranks", "thin", "border"), [((5,), 8, 64), ((60, 0, 9), 72, 128), ((0,), 0, 0)])
def test_wide_projections_have_borders_of_whole_tiles(ranks: tuple[int, ...], thin: int, border: int) -> None:
    torch.manual_seed(0)
    parts = [projection(6, lora.NARROW, rank) for rank in ranks]
    stack = Stack(tuple(parts))
    assert (stack.thin, stack.rank) == (thin, border)
    assert (stack.thin, stack.rank) == (rounded_rank(sum(ranks)), layer.border(sum(ranks), stack.width))
    assert (layer.TILE, layer.NARROW) == (lora.TILE, lora.NARROW)
    x = draw(3, lora.NARROW, gradient=True)
    y, wanted = lora_linears(x, parts), torch.cat([plain(x, p) for p in parts], dim=-1)
    agree(y, wanted)
    leaves, seed = [x, *stack.adapters], torch.randn_like(wanted)
    agree(torch.autograd.grad(y, leaves, seed), torch.autograd.grad(wanted, leaves, seed))


def test_a_stack_s_gradients_lie_in_one_block_and_each_whole() -> None:
    """Small ones alone would lie where torch's allocator lets no activation in; what is whole is not copied again."""
    torch.manual_seed(0)
    parts = [projection(6, 8, 3), projection(4, 8, 0), projection(5, 8, 2, scale=1.0)]
    x = draw(7, 8, gradient=True)
    lora_linears(x, parts).square().sum().backward()
    gradients = [adapter.grad for adapter in Stack(tuple(parts)).adapters]
    assert len(gradients) == 4
    assert all(gradient is not None and gradient.is_contiguous() for gradient in gradients)
    assert len({gradient.untyped_storage().data_ptr() for gradient in gradients}) == 1


def test_a_row_of_zeros_stays_one_with_dora() -> None:
    torch.manual_seed(0)
    one = projection(4, 6, 2, dora=True)
    with torch.no_grad():
        for tensor in (one.weight(), one.b, one.magnitude):
            assert tensor is not None
            tensor[1] = 0.0
    y = lora_linears(draw(3, 6, gradient=True), [one])
    assert not y[:, 1].any()
    y.square().sum().backward()
    assert all(tensor.grad is not None and tensor.grad.isfinite().all() for tensor in one.adapters)


@pytest.mark.usefixtures("norms_held")
@pytest.mark.parametrize(("head_norms", "rotated", "dora"), in_pairs([False, True], [4, 2], [False, True]))
def test_lora_qkv(head_norms: bool, rotated: int, dora: bool) -> None:
    torch.manual_seed(0)
    tokens, width, size = 2, 5, 4
    heads = Heads(2, 1, size, norm(size, 1.0) if head_norms else None, norm(size, 1.0) if head_norms else None)
    parts = tuple(projection(n * size, width, 2, bias=not head_norms, dora=dora) for n in (2, 1, 1))
    stack, before = Stack(parts), norm(width, 1.0)
    angle = draw(1, tokens, rotated // 2).repeat(1, 1, 2)
    angles = 1.2 * angle.cos(), 1.2 * angle.sin()  # as YaRN stretches them
    x = draw(tokens, width, gradient=True)

    def textbook(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n = reference.rms_norm(x, before.weight, before.eps, before.offset)
        q, k, v = (plain(n, p).view(tokens, -1, size) for p in parts)
        if heads.query_norm and heads.key_norm:
            q = reference.rms_norm(q, heads.query_norm.weight, heads.query_norm.eps, 1.0)
            k = reference.rms_norm(k, heads.key_norm.weight, heads.key_norm.eps, 1.0)
        q, k = reference.rope(q.transpose(0, 1)[None], k.transpose(0, 1)[None], *angles)
        return q[0].transpose(0, 1), k[0].transpose(0, 1), v, x

    found, wanted, leaves = lora_qkv(x, before, stack, heads, angles), textbook(x), [x, *stack.adapters]
    agree(found, wanted)
    seeds = [torch.randn_like(one) for one in wanted]
    agree(torch.autograd.grad(found, leaves, seeds), torch.autograd.grad(wanted, leaves, seeds))
    check(lambda first, *_: lora_qkv(first, before, stack, heads, angles), [x, *stack.adapters])


@pytest.mark.parametrize(
    ("activation", "norms", "rank", "dora"), in_pairs(["silu", "gelu_tanh"], [2, 4], [2, 0], [False, True])
)
@pytest.mark.usefixtures("norms_held")
def test_lora_mlp(activation: str, norms: int, rank: int, dora: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    tokens, width, inner, joined = 3, 4, 3, 5
    monkeypatch.setattr(mlp_of, "PIECE_VALUES", 12)  # two tokens
    o, gate = projection(width, joined, rank, dora=dora), projection(inner, width, 1, dora=dora)
    up, down = projection(inner, width, rank, dora=dora), projection(width, inner, rank, scale=1.0, dora=dora)
    after = (norm(width, 1.0), norm(width, 1.0)) if norms == 4 else (None, None)
    mlp = Mlp(Stack((o,)), Stack((gate, up)), Stack((down,)), norm(width), activation, *after)
    a, x = draw(tokens, joined, gradient=True), draw(tokens, width, gradient=True)

    def again(values: torch.Tensor, which: Norm | None) -> torch.Tensor:
        return values if which is None else reference.rms_norm(values, which.weight, which.eps, which.offset)

    def textbook() -> torch.Tensor:
        h = x + again(plain(a, o), mlp.after_attention)
        n = again(h, mlp.norm)
        function = reference.swiglu if activation == "silu" else reference.geglu
        return h + again(plain(function(plain(n, gate), plain(n, up)), down), mlp.after_mlp)

    agree(lora_mlp(a, x, mlp), textbook())
    check(lambda first, second, *_: lora_mlp(first, second, mlp), [a, x, *mlp.adapters])
    wanted = torch.autograd.grad(lora_mlp(a, x, mlp).pow(2).sum() / 2, [a, x, *mlp.adapters])
    agree(wanted, torch.autograd.grad(textbook().pow(2).sum() / 2, [a, x, *mlp.adapters]))
    unasked = lora_mlp(a, x, mlp, wanted=False)
    assert unasked.shape == x.shape
    actual = torch.autograd.grad(unasked, [a, x, *mlp.adapters], textbook().detach())
    agree(actual, wanted)
