"""Long rows: a layer computed tile by tile gives the loss and the gradients of one computed whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from alive import Alive
from model_tiny import adapt, assert_close, build, gradients, packed_batch, save_tiny

from core.contract.config import ModelChoice, RunConfig, TrainChoice
from core.estimate import terms
from core.estimate.inputs import layer as reckoned
from core.estimate.inputs.layer import TILES_COMING
from core.kernels import lora, lora_mlp, lora_qkv
from core.kernels.lora_qkv import Heads
from core.model.adapters import trainable
from core.model.layers import recompute, surgery, tiles
from core.model.layers.checkpointing import fast_layer_sizes, set_checkpointing
from core.model.layers.loss import LossModel
from core.model.loading.load import load_base
from core.model.streaming import host_pages
from core.models.families import FAMILIES
from core.train.safety import oom_recovery

FAST = sorted(name for name, family in FAMILIES.items() if family.fast)
ALIKE = ("gemma", "llama", "mistral")
"""Families whose tiles are those of another one: Gemma 2's without two norms, Qwen 2's without biases."""
NORMS = ("normalize", "normalize_backward")
IDS = torch.tensor([[3, 14, 15, 9, 26, 5, 35, 8], [9, 7, 9, 3, 23, 8, 46, 2]])


def swapped(model: Any, **options: Any) -> Any:
    model.train()
    plan = surgery.plan(model, force=True, **options)
    assert plan.fast
    surgery.apply(model, plan)
    return model


def learned(model: Any, tile: int, batches: list[dict[str, Any]], policy: str = "recompute") -> Any:
    """Losses with and without a backward pass, and the gradients."""
    set_checkpointing(model, policy, tile_tokens=tile)  # type: ignore[arg-type]
    loss_model, losses = LossModel(model), []
    for batch in batches:
        with torch.no_grad():
            losses.append(loss_model(**batch))
        loss = loss_model(**batch)
        (loss * torch.linspace(0.5, 1.5, loss.shape[1])).sum().backward()
        losses.append(loss.detach())
    return losses, gradients(model)


def assert_same(found: Any, wanted: Any, bound: float = 1e-10) -> None:
    for ours, theirs in zip(found[0], wanted[0], strict=True):
        assert theirs.norm() > 0
        torch.testing.assert_close(ours, theirs, rtol=bound, atol=bound)
    assert_close(found[1], wanted[1], bound)


@pytest.fixture
def widest(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of each call of a layer's second half."""
    seen: list[int] = []
    inner = tiles.lora_mlp
    monkeypatch.setattr(tiles, "lora_mlp", lambda a, *rest: seen.append(len(a)) or inner(a, *rest))
    return seen


@pytest.mark.parametrize(
    ("family", "dora"),
    [
        *(pytest.param(family, False, marks=pytest.mark.slow if family in ALIKE else ()) for family in FAST),
        ("qwen2", True),
        ("gemma2", True),
    ],
)
def test_loss_and_gradients_are_those_of_the_whole(family: str, dora: bool, widest: list[int]) -> None:
    model = swapped(adapt(build(family).double(), use_dora=dora))
    batches = [packed_batch([7, 1, 12, 3]), packed_batch([5])]
    wanted = learned(model, 0, batches)
    assert widest == []
    tile, parts = (22, [22, 1]) if dora else (7, [7, 7, 7, 2])
    assert_same(learned(model, tile, batches), wanted)
    # 2 layers, 3 passes over 23 tokens; those of 5 are computed whole.
    assert widest == 2 * 3 * parts


@pytest.mark.parametrize(
    "targets",
    [
        {"target_modules": ["q_proj", "v_proj"]},
        {"target_modules": ["up_proj", "o_proj"]},
        {"target_modules": ["up_proj"], "layers_to_transform": [0]},
        {"target_modules": ["k_proj", "down_proj"], "layers_to_transform": [1]},
    ],
    ids=str,
)
def test_whatever_is_adapted(targets: dict[str, Any]) -> None:
    model = swapped(adapt(build("qwen3").double(), **targets))
    batches = [packed_batch([9, 4])]
    assert_same(learned(model, 6, batches), learned(model, 0, batches))


@pytest.mark.parametrize("attention", ["luthier_packed", "sdpa"])
def test_equal_rows_of_a_batch_and_every_kind_of_attention(attention: str) -> None:
    model = build("llama").double()
    model.set_attn_implementation(attention)
    model = swapped(adapt(model))
    batches = [{"input_ids": IDS, "labels": IDS}]
    assert_same(learned(model, 5, batches), learned(model, 0, batches))


@pytest.mark.parametrize("arithmetic", ["int8", "16-bit"])
def test_in_four_bits_streamed_or_not_and_in_eight_bits_of_arithmetic(arithmetic: str, tmp_path: Path) -> None:
    """Rows are quantised each for itself, so tiles round as the whole does; sums of float32 differ in their order."""
    found, folder = [], save_tiny(tmp_path, num_hidden_layers=3)
    for streamed, tile in ((0, 0), (0, 8), (2, 8)):
        choice = ModelChoice(quantization="nf4", dtype="float32", streamed_layers=streamed)
        model = swapped(adapt(load_base(folder, choice, torch.device("cpu")).model), arithmetic=arithmetic)
        found.append(learned(model, tile, [packed_batch([7, 12])]))
    assert_same(found[1], found[0], 1e-5)
    assert_same(found[2], found[1], 0)


def test_the_same_tiles_give_the_same_bits_and_matrices_are_made_once_a_half(monkeypatch: pytest.MonkeyPatch) -> None:
    model, made, write = swapped(adapt(build("llama"))), [], lora.Stack.write_by_parts
    monkeypatch.setattr(lora.Stack, "write_by_parts", lambda *given: (made.append(1), write(*given)))
    first = learned(model, 4, [packed_batch([7, 12])])
    # forward 4 stacks, twice; backward the first half's once more for its gradients.
    assert len(made) == 2 * (4 + 4 + 5)
    assert_same(learned(model, 4, [packed_batch([7, 12])]), first, 0)


def test_kept_layers_stay_whole_and_a_layer_with_a_graph_outside_of_training_too(widest: list[int]) -> None:
    model, batch = swapped(adapt(build("llama"))), packed_batch([7, 12])
    wanted = learned(model, 0, [batch])
    widest.clear()
    found = learned(model, 4, [batch], "none")
    assert len(widest) == 2 * 5, "the pass without gradients alone"
    assert_same(found, wanted, 1e-5)
    widest.clear()
    model.eval()
    LossModel(model)(**batch).sum().backward()
    assert widest == []


def test_pages_of_the_host_hold_rows_of_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompute, "PAGE_BYTES", 1000)
    held = recompute.HostRows()
    for count in (3, 100, 64, 7):
        x = torch.arange(count * 6, dtype=torch.float32).view(count, 6)
        held.hold(x)
        for here, there in held.pieces(slice(0, count), x):
            here.copy_(there)
        for rows in (slice(0, count), slice(1, 2), slice(count // 3, count)):
            found = torch.empty(rows.stop - rows.start, 6)
            for here, there in held.pieces(rows, found):
                there.copy_(here)
            assert torch.equal(found, x[rows])


@pytest.mark.parametrize(
    ("narrow", "tile"), [(1024, 250), (64, 250), *(pytest.param(one, 64, marks=pytest.mark.slow) for one in (1024, 64))]
)
def test_what_the_estimate_counts_is_what_a_layer_s_backward_pass_takes(
    narrow: int, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes of all tensors at once, but for what only definitions in plain torch make for a moment; with borders of
    whole tiles, too."""
    monkeypatch.setattr(lora, "NARROW", narrow)
    monkeypatch.setattr(reckoned, "NARROW", narrow)
    tokens, width = 1024, 128
    sizes = {"hidden_size": width, "intermediate_size": 448, "num_attention_heads": 8, "num_key_value_heads": 8}
    model = swapped(adapt(build("llama", **sizes, max_position_embeddings=tokens, num_hidden_layers=1)))
    inner, alive = model.get_base_model().model, Alive()
    for module, names in ((lora_mlp, ("gate", "gate_backward_", *NORMS)), (lora_qkv, ("turn_", "turn_back", *NORMS))):
        for name in names:
            monkeypatch.setattr(module, name, alive.unseen(getattr(module, name)))
    behind = sum(one.nbytes for name, one in trainable(model) if not any(part in name for part in ("q_", "k_", "v_")))
    [layer], positions = inner.layers, torch.arange(tokens)[None]
    set_checkpointing(model, "recompute", tile_tokens=tile)
    x = torch.randn(1, tokens, width, requires_grad=True)
    angles = inner.rotary_emb(x, positions)
    y = layer(x, position_ids=positions, position_embeddings=angles)
    dy, alive.peak, counted = torch.randn_like(y), 0, fast_layer_sizes(layer)
    with alive:
        y.backward(dy)
    # The input lies here and is no copy; a CPU works on a copy of [gate | up]; gradients are another term.
    here = x.nbytes - TILES_COMING * tile * 4 * width + 2 * angles[0].nbytes
    copied = tile * 4 * (2 * 448 + counted.borders[2])
    assert alive.peak == pytest.approx(counted.tiled(tokens, tile) + here + copied + 2 * behind, rel=0.01)


@pytest.mark.parametrize("arithmetic", ["16-bit", "int8"])
def test_matrices_with_borders_of_whole_tiles_are_counted_and_tiles_are_exact(
    arithmetic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 8 bits borders lie apart, and are as wide as the ranks."""
    wanted = learned(swapped(adapt(build("llama").double())), 0, [packed_batch([7, 12])])
    monkeypatch.setattr(lora, "NARROW", 64)
    monkeypatch.setattr(reckoned, "NARROW", 64)
    assert_same(learned(swapped(adapt(build("llama").double())), 5, [packed_batch([7, 12])]), wanted)
    model = swapped(adapt(build("llama")), arithmetic=arithmetic)
    learned(model, 5, [packed_batch([7, 12])])
    [layer, *_], like = model.get_base_model().model.layers, torch.zeros(1)
    counted, parts = fast_layer_sizes(layer), layer.parts[True, True]
    assert counted.borders == (64, 64, 64, 64) != counted.ranks
    stacks = (parts.qkv, parts.mlp.o, parts.mlp.gate_up)
    made = [replace(stack, again=None).matrix(like)[0] for stack in stacks]
    sizes = [one.whole.nbytes if arithmetic == "16-bit" else one.beside.nbytes + one.below.nbytes for one in made]
    assert sum(sizes) == counted.matrices


def test_numbers_that_the_estimate_counts_with() -> None:
    assert (reckoned.MOST_GROUPS, terms.PAGE_BYTES) == (tiles.MOST_GROUPS, host_pages.PAGE_BYTES)
    for query, key in ((32, 8), (32, 32), (14, 2), (9, 3), (40, 10), (8, 1)):
        heads, layer = Heads(query, key, 16), reckoned.FastLayer(64, 16 * query, 16 * key, 96, 16, (8, 8, 8, 8), 2)
        halves = tiles.Halves(None, None, heads, None, (), None, 1)  # type: ignore[arg-type]
        groups = halves.groups(torch.arange(2.0 * heads.columns).view(2, -1))
        assert len(groups) == layer.groups
        assert {(q.shape[1], k.shape[1]) for q, k, _ in groups} == {(query // len(groups), key // len(groups))}


def test_a_row_that_is_recomputed_and_does_not_fit_is_computed_in_smaller_and_smaller_tiles() -> None:
    model = swapped(adapt(build("llama")))

    class OneRow:
        def __len__(self) -> int:
            return 1

        def length(self, *_: object) -> int:
            return 5000

    said: list[tuple[str, str, str]] = []
    channel = SimpleNamespace(reporter=SimpleNamespace(say=lambda one: said.append((one.key, one.old, one.new))))
    trainer: Any = SimpleNamespace(
        args=SimpleNamespace(device=torch.device("cpu")), accelerator=SimpleNamespace(num_processes=1), packed=True,
        trained=SimpleNamespace(model=model), rows=OneRow(),
    )  # fmt: skip
    config = RunConfig(train=TrainChoice(checkpointing="recompute", tile_tokens=0))
    recovery = oom_recovery.OomRecovery(trainer, config, channel, None)  # type: ignore[arg-type]
    oom_recovery.set_checkpointing(model, "none")
    assert not recovery.make_smaller([5000], "full"), "of layers that keep everything tiles are none"
    oom_recovery.set_checkpointing(model, "recompute")
    tries = [recovery.make_smaller([5000], "full") for _ in range(4)]
    assert tries == [True, True, True, False]
    assert said == [("train.tile_tokens", *pair) for pair in (("0", "2500"), ("2500", "1250"), ("1250", "625"))]
    (chooser, _), *_ = [layer.choice for layer in model.modules() if hasattr(layer, "replaced")]
    assert (chooser.tile(5000), chooser.tile(625)) == (625, 0)
