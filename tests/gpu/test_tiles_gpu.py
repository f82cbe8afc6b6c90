"""On a card: a layer computed in tiles gives the whole one's loss and gradients, and takes what is counted."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from core.contract.config import LoraChoice
from core.model.adapters import Trained, add_adapter
from core.model.layers import recompute, surgery
from core.model.layers.checkpointing import checkpointing_layers, fast_layer_sizes, set_checkpointing
from core.model.layers.loss import LossModel
from core.model.loading.random_weights import random_model

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card here")]
LAYERS, LENGTHS = 2, (4096, 2500, 1)
Seen = tuple[list[torch.Tensor], dict[str, torch.Tensor]]


def batch_of(lengths: tuple[int, ...]) -> dict[str, Any]:
    drawn = torch.Generator().manual_seed(sum(lengths))
    ids = torch.randint(3, 30_000, (1, sum(lengths)), generator=drawn).cuda()
    bounds = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32).cuda()
    positions = torch.cat([torch.arange(length) for length in lengths])[None].cuda()
    seen = {
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds,
        "max_length_q": max(lengths),
        "max_length_k": max(lengths),
    }
    return {"input_ids": ids, "labels": ids.clone(), "position_ids": positions, **seen}


def tuned(arithmetic: str = "16-bit", **lora: Any) -> Any:
    loaded = random_model("mistral-7b", torch.device("cuda", 0), layers=LAYERS, quantization="nf4")
    model = add_adapter(loaded.model, LoraChoice(r=16, **lora), 3407)
    drawn = torch.Generator("cuda").manual_seed(7)
    for name, parameter in Trained(model).named:
        if "lora_B" in name:
            parameter.data.normal_(0.0, 0.02, generator=drawn)
    model.train()
    surgery.apply(model, surgery.plan(model, arithmetic=arithmetic))  # type: ignore[arg-type]
    return model


def passes(model: Any, policy: str, tile: int) -> Seen:
    """Losses with and without a backward pass, twice, and the gradients of both together."""
    set_checkpointing(model, policy, tile_tokens=tile)  # type: ignore[arg-type]
    loss_model, losses = LossModel(model), []
    for lengths in (LENGTHS, LENGTHS[:2]):
        with torch.no_grad():
            losses.append(loss_model(**batch_of(lengths)).sum())
        loss = loss_model(**batch_of(lengths)).sum()
        loss.backward()
        losses.append(loss.detach())
    torch.cuda.synchronize()
    found = {name: parameter.grad.clone() for name, parameter in Trained(model).named}
    model.zero_grad()
    return losses, found


def off(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max(float((one[name] - other[name]).norm() / other[name].norm()) for name in other)


@pytest.mark.parametrize("way", ["16-bit", "int8", "dora"])
def test_loss_and_gradients_are_those_of_the_whole(way: str) -> None:
    """Each row is computed as before; sums over tokens, and of attention's atomic additions, in another order.

    In 8 bits what differs in the last bit of 16 may be rounded to another of 255 steps: gradients are then as near to
    those of 16 bits as the whole's are.
    """
    model = tuned(use_dora=True) if way == "dora" else tuned(way)
    wanted, again = passes(model, "recompute", 0), passes(model, "recompute", 0)
    assert all(float(gradient.norm()) > 0 for gradient in wanted[1].values())
    true = passes(tuned(), "recompute", 0) if way == "int8" else wanted
    rounding = off(wanted[1], true[1])
    for policy, tile in (("recompute", 2048), ("offload", 2048), ("offload", 999)):
        found = passes(model, policy, tile)
        for ours, theirs in zip(found[0], wanted[0], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=0)
        apart, of_true = off(found[1], wanted[1]), off(found[1], true[1])
        print(f"{way} {policy} {tile}: {apart:.4f} of the whole, {of_true:.4f} beside {rounding:.4f} of 16 bits")
        assert of_true <= max(2e-2, 3 * off(again[1], wanted[1]), 1.1 * rounding), (policy, tile)


def test_tiles_come_back_from_pages_that_are_not_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tuned()
    wanted = passes(model, "offload", 1024)
    monkeypatch.setattr(recompute, "_page", lambda size: torch.zeros(size, dtype=torch.uint8))
    found = passes(model, "offload", 1024)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found[0], wanted[0], strict=True))
    assert off(found[1], wanted[1]) <= 1e-2


@pytest.mark.parametrize(("tokens", "tile"), [(32_768, 2048), (32_768, 8192), (65_536, 4096)])
def test_a_layer_takes_what_is_counted(tokens: int, tile: int) -> None:
    model = tuned()
    set_checkpointing(model, "offload", tile_tokens=tile)
    layers = [layer for layer in checkpointing_layers(model) if hasattr(layer, "replaced")]
    inner, positions = model.get_base_model().model, torch.arange(tokens, device="cuda")[None]
    peaks = []
    for _ in range(2):  # kernels and pages are there the second time
        x = torch.randn(1, tokens, 4096, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        angles = inner.rotary_emb(x, positions)
        y = layers[0](x, position_ids=positions, position_embeddings=angles)
        dy = torch.randn_like(y)
        torch.cuda.synchronize()
        gc.collect()
        there = torch.cuda.memory_allocated() - dy.nbytes
        torch.cuda.reset_peak_memory_stats()
        y.backward(dy)
        torch.cuda.synchronize()
        peaks.append(torch.cuda.max_memory_allocated() - there)
        model.zero_grad()
    counted = fast_layer_sizes(layers[0]).tiled(tokens, tile)
    print(f"{tokens} in {tile}: {peaks[1] / 2**30:.3f} GiB, counted {counted / 2**30:.3f}")
    assert peaks[1] == pytest.approx(counted, rel=0.05)
