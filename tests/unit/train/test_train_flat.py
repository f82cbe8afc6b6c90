"""Flat parameters: the optimiser's steps are those of each tensor by itself, bit for bit."""

from typing import Any

import pytest
import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from core.contract.optimisers import EIGHT_BIT_FROM, OPTIMISERS
from core.train.step.optimizer import BLOCK, ApartParameters, FlatParameters, total_norm

SHAPES = [
    (16, 64), (64, 16), (1,), (255,), (256,), (257,), (3, 5, 7), (4095,), (4096,), (4097,), (16, 1000), (777, 16),
    (3841,), (2, 2047), (16, 4096), (130, 33), (4000,), (100,),
]  # fmt: skip


def drawn(seed: int = 0) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator) * 0.1) for shape in SHAPES]


FLAT = [name for name, row in OPTIMISERS.items() if row.flat]


def optimizer(name: str, groups: list[Any]) -> torch.optim.Optimizer:
    """As transformers makes it."""
    args = TrainingArguments(optim=name, learning_rate=1e-2, use_cpu=True, report_to="none")
    made, options = Trainer.get_optimizer_cls_and_kwargs(args)
    optimiser: torch.optim.Optimizer = made(groups, **options)
    return optimiser


def in_8_bits(name: str) -> bool:
    return OPTIMISERS[name].state_bytes((EIGHT_BIT_FROM,), 4) < 4 * EIGHT_BIT_FROM


def settings(groups: Any) -> list[dict[str, Any]]:
    return [{"params": group, "weight_decay": decay} for group, decay in zip(groups, (0.1, 0.0), strict=True)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "paged_adamw_8bit" else ()) for name in FLAT]
)  # paged memory is a card's: here it is AdamW in 8 bits once more
def test_forty_steps_are_those_of_each_tensor_by_itself(name: str, one_thread: None) -> None:
    plain, ours = drawn(), drawn()
    flat = FlatParameters([ours[::2], ours[1::2]], eight_bit=in_8_bits(name))
    one, other = optimizer(name, settings([plain[::2], plain[1::2]])), optimizer(name, settings(flat.groups))
    generator = torch.Generator().manual_seed(1)
    for step in range(40):
        for a, b in zip(plain, ours, strict=True):
            a.grad = torch.randn(a.shape, generator=generator) * 10.0 ** (step % 5 - 4)
            if 20 <= step < 35:  # moments fade: what lies between places must not become a block's largest
                a.grad.zero_()
            b.grad = a.grad.clone()
        flat.gather()
        one.step()
        other.step()
        flat.drop()
        for a, b in zip(plain, ours, strict=True):
            assert torch.equal(a, b), (step, a.shape)
    assert not torch.equal(plain[0], drawn()[0]), "something was learned, so this says something"


@pytest.mark.parametrize("name", FLAT)
def test_what_lies_between_places_has_no_gradient_and_no_say(name: str, one_thread: None) -> None:
    ours = drawn()
    flat = FlatParameters([ours, []], eight_bit=in_8_bits(name))
    steps = optimizer(name, settings(flat.groups))
    for _ in range(5):
        for parameter in ours:
            parameter.grad = torch.ones_like(parameter)
        flat.gather()
        steps.step()
    for tensor in flat.tensors:
        taken = torch.zeros(len(tensor), dtype=torch.bool)
        for parameter in ours:
            if parameter.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
                taken[parameter.storage_offset() : parameter.storage_offset() + parameter.numel()] = True
        assert taken.any()
        # bitsandbytes on the CPU rounds a moment of zero to the code beside zero: small, and smaller than any real one.
        # Lion steps by its sign.
        most = {"adamw_torch": 0, "lion_8bit": 0.05}.get(name, 0.01)
        assert tensor[~taken].abs().sum() <= most * (~taken).sum()
        assert tensor.grad is not None
        assert not tensor.grad[~taken].any()


def test_small_tensors_keep_32_bit_moments_and_large_ones_8() -> None:
    ours = drawn()
    flat = FlatParameters([ours], eight_bit=True)
    whole = {tensor.untyped_storage().data_ptr(): tensor for tensor in flat.tensors}
    for parameter in ours:
        home = whole[parameter.untyped_storage().data_ptr()]
        assert (len(home) < EIGHT_BIT_FROM) == (parameter.numel() < EIGHT_BIT_FROM), parameter.shape
        assert parameter.storage_offset() % BLOCK == 0
    assert sum(len(tensor) >= EIGHT_BIT_FROM for tensor in flat.tensors) == 1


def test_parameters_stay_themselves_and_one_that_was_moved_away_is_a_view_again_with_its_value() -> None:
    ours, same = drawn(), drawn()
    flat = FlatParameters([ours])
    assert list(map(id, flat.parameters)) == list(map(id, ours))
    assert all(torch.equal(a, b) and a.is_leaf and a.requires_grad for a, b in zip(ours, same, strict=True))
    ours[3].data = torch.full_like(ours[3], 7.0)
    for parameter in ours:
        parameter.grad = torch.ones_like(parameter)
    flat.gather()
    torch.optim.SGD(flat.tensors, lr=1.0).step()
    assert torch.equal(ours[3], torch.full_like(ours[3], 6.0))
    assert torch.equal(ours[4], same[4] - 1), "a view: what the optimiser writes is what the model reads"


def test_gradients_of_16_bit_parameters_come_in_small_pieces() -> None:
    """A flat tensor's gradient is there as soon as one parameter has its own, while others' activations are still."""
    shapes = [(151_936, 896), *(3 * [(4864, 896), (896, 896), (896, 4864)])]
    for dtype, count in ((torch.bfloat16, 3), (torch.float32, 1)):
        weights = [nn.Parameter(torch.empty(shape, dtype=dtype, device="meta")) for shape in shapes]
        flat = FlatParameters([weights], eight_bit=True)
        assert len(flat.tensors) == count
        assert dtype is torch.float32 or max(tensor.numel() for tensor in flat.tensors[1:]) <= 2**24
        assert flat.parameters == weights


def test_dtypes_and_groups_are_never_mixed() -> None:
    ours = [nn.Parameter(torch.ones(3, dtype=dtype)) for dtype in (torch.float32, torch.bfloat16, torch.float32)]
    flat = FlatParameters([ours[:2], ours[2:], []])
    assert [[tensor.dtype for tensor in group] for group in flat.groups] == [
        [torch.float32, torch.float32], [torch.float32], [],
    ]  # fmt: skip
    assert {p: held.dtype for p, held in flat.exact.items()} == dict.fromkeys(ours, torch.float32)
    assert [p.dtype for p in ours] == [torch.float32, torch.bfloat16, torch.float32]


@pytest.mark.parametrize("kind", [FlatParameters, ApartParameters])
def test_parameters_of_16_bits_follow_float32_numbers_that_sum_every_micro_batch(kind: Any, one_thread: None) -> None:
    """A thousandth of a bfloat16 digit a step, and gradients of which the second is lost in 16 bits."""
    ours, exact = nn.Parameter(torch.ones(8, 16, dtype=torch.bfloat16)), nn.Parameter(torch.ones(8, 16))
    other = nn.Parameter(torch.zeros(3))
    held = kind([[ours, other]])
    steps, plain = (torch.optim.SGD(params, lr=1e-3) for params in (held.tensors, [exact]))
    for _ in range(400):
        for gradient in (1.0, 2**-9):  # micro-batches
            (ours * gradient).sum().backward()
            assert ours.grad is None
        exact.grad = torch.full_like(exact, 1.0 + 2**-9)
        held.gather()
        steps.step()
        plain.step()
        held.settle()
        held.drop()
    assert torch.equal(held.exact[ours], exact)
    assert torch.equal(ours, exact.bfloat16())
    assert exact.min() < 0.7
    assert not other.any()


def test_gradients_of_any_layout_are_joined_once_and_a_missing_one_is_zero() -> None:
    ours = [nn.Parameter(torch.zeros(4, 6)), nn.Parameter(torch.zeros(5)), nn.Parameter(torch.zeros(2, 3))]
    flat = FlatParameters([ours])
    across = torch.arange(24.0).view(6, 4).t()
    ours[0].grad, ours[2].grad = across, torch.ones(9, 3)[3:5]
    (joined,) = flat.gather()
    assert joined.grad is not None
    places = [joined.grad[p.storage_offset() : p.storage_offset() + p.numel()].view(p.shape) for p in ours]
    assert torch.equal(places[0], across)
    assert not places[1].any()
    assert torch.equal(places[2], torch.ones(2, 3))
    assert all(parameter.grad is None for parameter in ours)
    flat.drop()
    assert joined.grad is None


@pytest.mark.parametrize("count", [1, 255, 256, 5_120_000])
def test_the_norm_is_that_of_the_single_tensors(count: int, one_thread: None) -> None:
    gradients = torch.randn(count, generator=torch.Generator().manual_seed(count)) * 1e-3
    exact = float(gradients.double().norm())
    assert float(total_norm([gradients])) == pytest.approx(exact, rel=1e-6)
    pieces = torch.split(gradients, 65_536)
    assert float(total_norm([gradients])) == pytest.approx(float(torch.nn.utils.get_total_norm(pieces)), rel=1e-6)
    assert float(total_norm([*pieces, gradients])) == pytest.approx(exact * 2**0.5, rel=1e-6)


def test_a_norm_of_bad_numbers_is_no_number_and_of_nothing_zero() -> None:
    assert total_norm([torch.tensor([1.0, float("nan")])]).isnan()
    assert total_norm([torch.cat([torch.zeros(511), torch.tensor([float("inf")])])]).isinf()
    assert total_norm([]) == 0
