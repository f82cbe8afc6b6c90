"""A head that comes in tiles from host memory gives what the resident one does, whoever asks it."""

from __future__ import annotations

import copy
import mmap
from pathlib import Path
from typing import Any

import pytest
import torch
from alive import Alive
from model_tiny import adapt, assert_close, gradients, packed_batch, save_tiny

from core.contract.config import ModelChoice
from core.contract.errors import MachineError
from core.estimate.inputs import layer as reckoned
from core.kernels import linear_cross_entropy
from core.machine.children.shared_memory import SharedMemory
from core.machine.host import Host
from core.model.layers import surgery
from core.model.layers.checkpointing import set_checkpointing
from core.model.layers.loss import LossModel
from core.model.layers.peft_bnb import updates_of
from core.model.loading import streamed as streamed_loading
from core.model.loading import weight_cache
from core.model.loading.load import load_base
from core.model.loading.streamed import KEPT_FREE_BYTES
from core.model.loading.together import Together
from core.model.streaming import head
from core.model.streaming.head import host_head_of
from core.models.families import FAMILIES

CPU, LAYERS, GIB = torch.device("cpu"), 2, 2**30
HEAD = LAYERS + 1
ROWS = 20
"""Of a tile: the last of the 97 rows come in a shorter one."""
TIED = {"tie_word_embeddings": True}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "TILE_BYTES", ROWS * 64 * 4)
    monkeypatch.setattr(linear_cross_entropy, "TILED_SUMS", 8 * 64)
    monkeypatch.setattr(linear_cross_entropy, "TILED_LOGITS", 3 * 64)


def loaded(folder: Path, streamed: int, **options: Any) -> Any:
    choice = ModelChoice(quantization="none", dtype="float32", streamed_layers=streamed)
    return load_base(folder, choice, CPU, **options).model


def test_what_is_loaded_says_that_the_head_streams_too(tmp_path: Path) -> None:
    choice = ModelChoice(quantization="none", dtype="float32", streamed_layers=HEAD)
    assert "2 of 2 layers and the head stream from" in load_base(save_tiny(tmp_path), choice, CPU).line


def learned(model: Any, fast: bool = True, plain: bool = False) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Losses of two passes, the second forward alone, and the gradients."""
    model.train()
    if fast:
        surgery.apply(model, surgery.plan(model, force=True))
    set_checkpointing(model, "recompute")
    loss_model = LossModel(model, plain=plain)
    losses = loss_model(**packed_batch([7, 12]))
    losses.sum().backward()
    with torch.no_grad():
        alone = loss_model(**packed_batch([4, 6]))
    return torch.cat([losses.detach().flatten(), alone.flatten()]), gradients(model)


@pytest.mark.parametrize(
    ("family", "tied"), [("llama", False), ("granite", True), ("cohere", True), ("gemma2", True), ("gemma3_text", True)]
)
def test_losses_and_gradients_are_those_of_a_resident_head(family: str, tied: bool, tmp_path: Path) -> None:
    folder, fast = save_tiny(tmp_path, family, tie_word_embeddings=tied), FAMILIES[family].fast
    wanted, model = learned(adapt(loaded(folder, 0)), fast), loaded(folder, HEAD)
    found = learned(adapt(model), fast)
    torch.testing.assert_close(found[0], wanted[0], atol=1e-5, rtol=1e-5)
    assert_close(found[1], wanted[1])
    top, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    assert host_head_of(top) is not None
    assert top.weight.isnan().all(), "who reads it otherwise is told"
    assert (top.weight is embedding.weight) == tied
    assert (host_head_of(top).table is embedding.host_rows.table) == tied, "one table"  # type: ignore[union-attr]
    assert embedding.weight.untyped_storage().nbytes() < 1000


def test_whoever_wants_logits_gets_them_and_their_gradient(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path)
    models = [adapt(loaded(folder, streamed)).eval() for streamed in (0, HEAD)]
    said = [model.generate(torch.tensor([[3, 4, 5]]), max_new_tokens=6, do_sample=False) for model in models]
    assert torch.equal(*said)
    with models[0].disable_adapter(), models[1].disable_adapter(), torch.no_grad():
        resident, streamed = (model(torch.tensor([[3, 4, 5]])).logits for model in models)
    torch.testing.assert_close(streamed, resident, atol=1e-5, rtol=1e-5)
    wanted, found = (learned(model, plain=True) for model in models)
    torch.testing.assert_close(found[0], wanted[0], atol=1e-5, rtol=1e-5)
    assert_close(found[1], wanted[1])


def test_what_an_embeddings_adapter_changed_is_told_of_the_table_on_the_host(tmp_path: Path) -> None:
    folder, found = save_tiny(tmp_path, **TIED), []
    for streamed in (0, HEAD):
        model = adapt(loaded(folder, streamed), target_modules=["q_proj", "embed_tokens"])
        found.append({update.name: update.before() for update in updates_of(model)})
    assert len(found[0]) == LAYERS + 1
    torch.testing.assert_close(found[1], found[0], atol=0, rtol=0)


def test_it_is_read_once_for_each_block_of_tokens_and_never_backward(tmp_path: Path) -> None:
    model = adapt(loaded(save_tiny(tmp_path), HEAD)).train()
    on_host = host_head_of(model.get_output_embeddings())
    assert on_host is not None
    size = 97 * 64 * 4
    assert [span.size for span in on_host.ring.spans] == [*[ROWS * 64 * 4] * 4, 17 * 64 * 4]
    assert len(on_host.ring.slots) == 2
    losses = LossModel(model)(**packed_batch([7, 12]))  # 15 targets, in blocks of eight
    first = on_host.ring.copied_bytes
    losses.sum().backward()
    assert on_host.ring.copied_bytes == first <= 2 * size


def test_a_copy_that_is_trained_is_a_usual_head_and_the_cache_keeps_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_tiny(tmp_path / "model")
    model, resident = loaded(folder, HEAD), loaded(folder, 0)
    copied = copy.deepcopy(model.get_output_embeddings())
    assert type(copied) is torch.nn.Linear
    assert torch.equal(copied.weight, resident.get_output_embeddings().weight)
    monkeypatch.setattr(weight_cache, "LEAST_BYTES", 0)
    monkeypatch.setattr(weight_cache, "SPARED_BYTES", 0)
    for name, more in (("own", {}), ("tied", TIED)):
        folder, files = save_tiny(tmp_path / name, **more), []
        for streamed in (0, HEAD):
            cache = tmp_path / f"cache {name} {streamed}"
            choice = ModelChoice(quantization="nf4", dtype="float32", streamed_layers=streamed)
            load_base(folder, choice, CPU, cache=cache)
            [entry] = (cache / "nf4").iterdir()
            files.append((entry / weight_cache.WEIGHTS).read_bytes())
        assert files[0] == files[1]


@pytest.mark.parametrize("more", [{}, TIED])
def test_processes_share_it_and_room_for_it_is_asked_for(
    more: dict[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_tiny(tmp_path, **more)
    shared = SharedMemory.made()
    assert shared
    both = (Together(2, True, shared), Together(2, False, SharedMemory.inherited(shared.words, writes=False)))
    keep_ends, peaks = streamed_loading._keep_ends, []

    def watched(*given: Any) -> None:
        alive = Alive()
        with alive:
            keep_ends(*given)
        peaks.append(alive.peak)

    monkeypatch.setattr(streamed_loading, "_keep_ends", watched)
    models = [loaded(folder, HEAD, together=one) for one in both]
    table, tiles = 97 * 64 * 4, 2 * ROWS * 64 * 4
    pages = (1 if more else 2) * -(-table // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
    assert peaks[0] <= pages + table + 1000, "of its own, one table at a time"
    assert peaks[1] <= pages + tiles + 1000, "it has no table of its own"
    found, wanted = learned(adapt(models[1])), learned(adapt(loaded(folder, 0)))
    torch.testing.assert_close(found[0], wanted[0], atol=1e-5, rtol=1e-5)
    ours, theirs = (host_head_of(model.get_output_embeddings()).table for model in models)  # type: ignore[union-attr]
    ours[0, :8].fill_(7)
    assert bool((theirs[0, :8] == 7).all()), "one copy"
    shared.close()
    ends, matrices = (1 if more else 2) * 97 * 64 * 4, LAYERS * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128) * 4
    free = KEPT_FREE_BYTES + matrices + ends
    monkeypatch.setattr(Host, "memory", lambda _self: (64 * GIB, free))
    loaded(folder, HEAD)
    free -= 1
    with pytest.raises(MachineError) as refused:
        loaded(folder, HEAD)
    assert refused.value.values["fit"] == LAYERS, "the head stays on the card then"
    loaded(folder, LAYERS)


def test_what_the_estimate_counts_is_what_the_end_of_the_model_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tensors at once, in 16 bits: a part of a block, and several, sums and logits in their true proportion."""
    assert (reckoned.TILED_LOGITS, reckoned.TILED_SUMS, reckoned.TILE_BYTES) == (2**23, 2**25, 32 * 2**20)
    for module in (reckoned, linear_cross_entropy):
        monkeypatch.setattr(module, "TILED_LOGITS", 2**13)
        monkeypatch.setattr(module, "TILED_SUMS", 2**15)
    monkeypatch.setattr(reckoned, "TILE_BYTES", 256 * 64 * 2)
    end = reckoned.ModelEnd(64, 2000, 2, tiled=True)
    tiles = [(first, torch.randn(min(256, 2000 - first), 64).bfloat16()) for first in range(0, 2000, 256)]
    for tokens in (100, 1100):
        hidden = torch.randn(tokens, 64).bfloat16().requires_grad_()
        labels, alive = torch.randint(0, 2000, (tokens,)), Alive()
        with alive:
            linear_cross_entropy.cross_entropy_in_tiles(hidden, lambda: tiles, labels, 1.0, 3.0).sum().backward()
        there = hidden.nbytes + sum(tile.nbytes for _, tile in tiles)  # seen as views are made of them
        counted = end.work(tokens) - 2 * hidden.nbytes  # the norm's input and the hidden states are there already
        sums = 28 * tokens  # four numbers a token in 32 bits, labels and gradients of losses
        assert 0.88 * counted <= alive.peak - there - sums <= counted
    assert end.longest(1000, 10**8) == pytest.approx(10**8 / (1000 + end.rows), rel=0.05)
