"""On a card: streamed layers compute what resident ones do, and no slot is overwritten while it is read."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from core.contract.config import LoraChoice
from core.kernels import linear_cross_entropy
from core.machine.children.shared_memory import SharedMemory
from core.model.adapters import Trained, add_adapter
from core.model.layers import surgery
from core.model.layers.checkpointing import let_go_of_inputs, set_checkpointing
from core.model.layers.loss import LossModel
from core.model.loading.random_weights import random_model
from core.model.loading.together import ALONE, Together
from core.model.streaming import head, host_pages
from core.model.streaming.host_pages import HostPages
from core.model.streaming.layers import ring_of
from core.model.streaming.ring import Ring

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card here")]
LAYERS, PASSES = 4, ((1800, 700), (64,), (1500, 1100, 300))
GIB = 2**30
Seen = tuple[list[torch.Tensor], dict[str, torch.Tensor]]


def batch_of(lengths: tuple[int, ...]) -> dict[str, Any]:
    drawn = torch.Generator().manual_seed(sum(lengths))
    ids = torch.randint(3, 30_000, (1, sum(lengths)), generator=drawn)
    bounds = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
    positions = torch.cat([torch.arange(length) for length in lengths])[None]
    on_card = {"input_ids": ids, "labels": ids.clone(), "position_ids": positions, "cu_seq_lens_q": bounds,
               "cu_seq_lens_k": bounds}  # fmt: skip
    longest = {"max_length_q": max(lengths), "max_length_k": max(lengths)}
    return {name: tensor.cuda() for name, tensor in on_card.items()} | longest


def trained(
    streamed: int, policy: str, kernels: str = "auto", quantization: str = "nf4", together: Together = ALONE
) -> Seen:
    """Losses of some passes, forward alone too, and the gradients of all of them together."""
    device = torch.device("cuda", 0)
    loaded = random_model(
        "mistral-7b", device, layers=LAYERS, streamed=streamed, quantization=quantization, together=together
    )
    assert (ring_of(loaded.model) is not None) == bool(streamed)
    model = add_adapter(loaded.model, LoraChoice(r=16), 3407)
    drawn = torch.Generator("cuda").manual_seed(7)
    for name, parameter in Trained(model).named:
        if "lora_B" in name:
            parameter.data.normal_(0.0, 0.02, generator=drawn)
    model.train()
    surgery.apply(model, surgery.plan(model, kernels))  # type: ignore[arg-type]
    allowed = torch.cuda.memory_allocated() + 3 * GIB
    set_checkpointing(model, policy, allowed)  # type: ignore[arg-type]
    loss_model, losses = LossModel(model), []
    for lengths in PASSES:
        loss = loss_model(**batch_of(lengths)).sum()
        loss.backward()
        losses.append(loss.detach())
        with torch.no_grad():
            losses.append(loss_model(**batch_of(lengths)).sum())
    abandoned = loss_model(**batch_of((900,))).sum()
    del abandoned
    let_go_of_inputs(model)
    loss_model(**batch_of(PASSES[0])).sum().backward()
    torch.cuda.synchronize()
    return losses, {name: parameter.grad.clone() for name, parameter in Trained(model).named}


def off(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max(float((one[name] - other[name]).norm() / other[name].norm()) for name in other)


@pytest.fixture(scope="module")
def resident() -> dict[tuple[str, ...], tuple[Seen, float]]:
    return {}


def beside(known: Any, *how: str) -> tuple[Seen, float]:
    """The resident model's, and how far two of its own runs are apart (attention's sums are atomic)."""
    if how not in known:
        first, again = trained(0, *how), trained(0, *how)
        known[how] = first, off(again[1], first[1])
    seen: tuple[Seen, float] = known[how]
    return seen


@pytest.mark.parametrize("streamed", [LAYERS, 3])
@pytest.mark.parametrize("policy", ["none", "recompute", "offload", "auto"])
def test_streamed_layers_give_the_resident_ones_losses_and_gradients(resident: Any, policy: str, streamed: int) -> None:
    same(trained(streamed, policy), *beside(resident, policy))


@pytest.mark.parametrize("kernels", ["auto", "plain"])
@pytest.mark.parametrize("quantization", ["nf4", "none"])
def test_so_do_plain_layers_and_16_bits(resident: Any, kernels: str, quantization: str) -> None:
    how = ("recompute", kernels, quantization)
    same(trained(LAYERS, *how), *beside(resident, *how))


def test_so_do_weights_that_could_not_be_pinned(resident: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(size: int, pinned: bool) -> torch.Tensor:
        if pinned:
            raise RuntimeError("CUDA error: out of memory")
        return torch.zeros(size, dtype=torch.uint8)

    monkeypatch.setattr(host_pages, "memory", refused)
    same(trained(LAYERS, "recompute"), *beside(resident, "recompute"))


@pytest.mark.parametrize("pinned", [True, False])
def test_a_head_in_tiles_gives_nearly_those_of_the_resident_one(
    resident: Any, pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums over tiles round to 16 bits in another order. Three blocks of tokens, and a last tile of fewer rows."""
    monkeypatch.setattr(head, "TILE_BYTES", 4500 * 2 * 4096)
    monkeypatch.setattr(linear_cross_entropy, "TILED_SUMS", 1024 * 4096)
    if not pinned:
        monkeypatch.setattr(head, "pin_part", refuse)
    found, (wanted, spread) = trained(LAYERS + 1, "recompute"), beside(resident, "recompute")
    for ours, theirs in zip(found[0], wanted[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=0)
    assert off(found[1], wanted[1]) <= 0.02 + 3 * spread


def refuse(*_: object) -> None:
    raise RuntimeError("cudaHostRegister says 2")


def same(found: Seen, wanted: Seen, spread: float) -> None:
    for ours, theirs in zip(found[0], wanted[0], strict=True):
        assert torch.equal(ours, theirs)
    assert found[1].keys() == wanted[1].keys()
    assert all(float(gradient.norm()) > 0 for gradient in wanted[1].values())
    assert off(found[1], wanted[1]) <= 3 * spread + 1e-6


def test_generation_reads_the_right_layers() -> None:
    answers = []
    for streamed in (0, LAYERS, 2):
        loaded = random_model("mistral-7b", torch.device("cuda", 0), layers=LAYERS, streamed=streamed)
        ids = torch.tensor([[5, 99, 1234, 17]], device="cuda")
        options = {"max_new_tokens": 12, "do_sample": False, "use_cache": True, "pad_token_id": 0}
        answers.append(loaded.model.eval().generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options))
    assert torch.equal(answers[1], answers[0])
    assert torch.equal(answers[2], answers[0])


@pytest.mark.parametrize("kind", ["pinned", "plain", "shared"])
def test_a_slot_is_never_overwritten_while_slow_work_reads_it(kind: str) -> None:
    """Work that sleeps on the card before it reads, and a host that is far ahead of it."""
    count, size = 7, 8 * 2**20
    pages = HostPages(pin=True, refused=kind == "plain", shared=SharedMemory.made() if kind == "shared" else None)
    spans = [pages.span(size) for _ in range(count)]
    assert {span.pinned for span in spans} == {kind != "plain"}
    for number, span in enumerate(spans):
        span.write(0, torch.full((size,), number + 1, dtype=torch.uint8))
    ring, draw, seen, wanted = Ring(spans, torch.device("cuda", 0)), random.Random(1), [], []
    for _ in range(12):
        last = draw.randint(1, count - 1)
        for number, back in [*((n, False) for n in range(last + 1)), *((n, True) for n in range(last, -1, -1))]:
            ring.need(number, back)
            if draw.random() < 0.5:
                torch.cuda._sleep(3_000_000)
            slot = ring.slots[number % len(ring.slots)][:size]
            seen.append(torch.stack((slot.min(), slot.max())))
            wanted.append(number + 1)
    found = torch.stack(seen).cpu()
    assert found[:, 0].tolist() == wanted
    assert found[:, 1].tolist() == wanted


@pytest.mark.parametrize("quantization", ["nf4", "none"])
def test_what_another_process_read_computes_the_same(resident: Any, quantization: str) -> None:
    """Both mappings of the shared memory in one process: each is pinned for itself."""
    shared = SharedMemory.made()
    assert shared
    other = Together(2, False, SharedMemory.inherited(shared.words, writes=False))
    how = ("recompute", "auto", quantization)
    for together in (Together(2, True, shared), other):
        same(trained(3, *how, together=together), *beside(resident, *how))


def test_a_refused_pin_of_shared_memory_leaves_no_error_behind() -> None:
    """What is pinned already is refused: the part stays plain memory, and the next kernel runs."""
    shared = SharedMemory.made()
    assert shared
    part = memoryview(shared.part(0, 1 << 20))
    page = torch.frombuffer(part, dtype=torch.uint8)
    host_pages.pin_part(page, part, part.obj)
    assert page.is_pinned()
    with pytest.raises(RuntimeError, match="cudaHostRegister"):
        host_pages.pin_part(page, part, part.obj)
    assert int(torch.ones(8, device="cuda").sum()) == 8
