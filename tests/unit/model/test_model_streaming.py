"""Streamed layers compute what resident ones do, bit for bit, whoever computes them and whatever is recomputed."""

from __future__ import annotations

import copy
import mmap
import os
import resource
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from model_tiny import adapt, gradients, packed_batch, save_tiny

from core.contract.config import LoraChoice, ModelChoice
from core.contract.errors import MachineError, ModelError, RunError
from core.contract.weight_forms import DEFAULT_ARITHMETIC, DEFAULT_WEIGHT_FORM, WEIGHT_FORMS
from core.estimate.inputs import model as reckoned
from core.machine.children.shared_memory import SharedMemory
from core.machine.host import Host
from core.model.adapters import add_adapter
from core.model.layers import surgery
from core.model.layers.checkpointing import set_checkpointing
from core.model.layers.loss import LossModel
from core.model.layers.peft_bnb import dense_weight, held_tensors, matrices_of, updates_of
from core.model.layers.trial import milliseconds_a_layer
from core.model.learners import LEARNERS, Onto
from core.model.loading import together, weight_cache
from core.model.loading.load import load_base
from core.model.loading.original import original_weights
from core.model.loading.random_weights import random_model
from core.model.loading.streamed import KEPT_FREE_BYTES, decoder_layers
from core.model.loading.together import Together
from core.model.streaming import host_pages, ring
from core.model.streaming.host_pages import HostPages
from core.model.streaming.layers import ring_of, spread
from core.model.streaming.ring import Ring
from core.models.families import FAMILIES

CPU = torch.device("cpu")
LAYERS = 4
GIB = 2**30
ALIKE = ("llama", "mistral", "gemma", "gemma3_text")
"""Families whose layers hold what those of another one hold: Qwen 2's, Qwen 3's, Gemma 2's."""
EVERY = [
    pytest.param(form, fast, marks=() if fast == (form == DEFAULT_WEIGHT_FORM) else pytest.mark.slow)
    for form in WEIGHT_FORMS for fast in (True, False)
]  # fmt: skip
"""Forms of weights over both kinds of layers: by default our layers with one form, plain ones with the others."""


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that matrices lie across them."""
    monkeypatch.setattr(host_pages, "PAGE_BYTES", 20_480)


def loaded(folder: Path, streamed: int, quantization: str = "nf4", **options: Any) -> Any:
    choice = ModelChoice(quantization=quantization, dtype="float32", streamed_layers=streamed)  # type: ignore[arg-type]
    return load_base(folder, choice, CPU, **options)


def passes(
    model: Any, fast: bool, policy: str, arithmetic: str = DEFAULT_ARITHMETIC
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Losses of two passes and of one forward alone between them, and the gradients of both."""
    model.train()
    if fast:
        plan = surgery.plan(model, force=True, arithmetic=arithmetic)
        assert not plan.sixteen
        surgery.apply(model, plan)
    set_checkpointing(model, policy)  # type: ignore[arg-type]
    loss_model, losses = LossModel(model), []
    for lengths in ([7, 12], [4, 6], [5, 3, 9]):
        with torch.set_grad_enabled(lengths != [4, 6]):
            loss = loss_model(**packed_batch(lengths)).sum()
        if loss.requires_grad:
            loss.backward()
        losses.append(loss.detach())
    return losses, gradients(model)


def assert_equal(found: Any, wanted: Any) -> None:
    for ours, theirs in zip(found[0], wanted[0], strict=True):
        assert torch.equal(ours, theirs)
    assert found[1].keys() == wanted[1].keys()
    for name, gradient in wanted[1].items():
        assert gradient.norm() > 0, name
        assert torch.equal(found[1][name], gradient), name


@pytest.mark.parametrize(
    "family", [pytest.param(one, marks=pytest.mark.slow if one in ALIKE else ()) for one in FAMILIES]
)
def test_losses_and_gradients_are_those_of_resident_layers(family: str, tmp_path: Path) -> None:
    """Where one layer stays and the others come twice; other budgets are the next test's."""
    folder, fast = save_tiny(tmp_path, family, num_hidden_layers=LAYERS), FAMILIES[family].fast
    form = "none" if family in ("mistral", "granite") else "nf4"
    wanted = passes(adapt(loaded(folder, 0, form).model), fast, "none")
    model = loaded(folder, 3, form).model
    assert_equal(passes(adapt(model), fast, "recompute"), wanted)
    assert ring_of(model) is not None


@pytest.mark.parametrize(("quantization", "fast"), EVERY)
def test_so_are_those_of_every_budget_in_both_forms(quantization: str, fast: bool, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path, num_hidden_layers=LAYERS)
    wanted = passes(adapt(loaded(folder, 0, quantization).model), fast, "none")
    for streamed, policies in ((1, ("none", "auto")), (LAYERS, ("none", "recompute", "offload", "auto"))):
        model = adapt(loaded(folder, streamed, quantization).model)
        for policy in policies:
            assert_equal(passes(model, fast and policy == "none", policy), wanted)


def test_so_are_those_of_eight_bits(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path, num_hidden_layers=LAYERS)
    wanted = passes(adapt(loaded(folder, 0).model), True, "none", "int8")
    model = adapt(loaded(folder, LAYERS).model)
    milliseconds_a_layer(model, 16, ("int8",), torch.float32, force=True)  # finds extents, which are kept
    assert_equal(passes(model, True, "recompute", "int8"), wanted)


def test_answers_are_the_same_with_and_without_the_adapter(tmp_path: Path) -> None:
    folder, said = save_tiny(tmp_path, num_hidden_layers=LAYERS), []
    for streamed in (0, 3):
        model = adapt(loaded(folder, streamed).model).eval()
        ask = partial(model.generate, torch.tensor([[3, 4, 5]]), max_new_tokens=6, do_sample=False, use_cache=True)
        with model.disable_adapter():
            base = ask(output_logits=True, return_dict_in_generate=True)
        said.append((ask(), torch.cat(base.logits)))
    assert torch.equal(said[0][0], said[1][0])
    assert torch.equal(said[0][1], said[1][1])


def test_each_layer_is_copied_once_a_direction_and_what_lies_there_is_used_again(tmp_path: Path) -> None:
    model = loaded(save_tiny(tmp_path, num_hidden_layers=6), 6).model
    through = ring_of(model)
    assert through is not None
    a_layer, before = through.spans[0].size, 0
    model = adapt(model)
    model.train()
    surgery.apply(model, surgery.plan(model, force=True))
    set_checkpointing(model, "recompute")
    copied = []
    for _ in range(3):
        loss = LossModel(model)(**packed_batch([7, 12])).sum()
        copied.append((through.copied_bytes - before) // a_layer)
        before = through.copied_bytes
        loss.backward()
        copied.append((through.copied_bytes - before) // a_layer)
        before = through.copied_bytes
    assert copied == [6, 4, 4, 4, 4, 4], copied
    with torch.no_grad():
        for _ in range(2):  # evaluations go round: the first layer comes while the last one computes
            LossModel(model)(**packed_batch([7, 12]))
    assert (through.copied_bytes - before) // a_layer <= 4 + 6 + 1


def test_layers_that_stream_are_evenly_spread() -> None:
    assert spread(4, 4) == [True] * 4
    assert spread(4, 0) == [False] * 4
    assert spread(6, 2) == [False, False, True, False, False, True]
    for layers, streamed in ((80, 76), (32, 5), (7, 3)):
        gaps = [place for place, one in enumerate(spread(layers, streamed)) if one]
        assert len(gaps) == streamed
        assert max(b - a for a, b in pairwise(gaps)) <= -(-layers // streamed)


def test_what_the_estimate_counts_is_what_streaming_takes(tmp_path: Path) -> None:
    model = loaded(save_tiny(tmp_path, num_hidden_layers=LAYERS), 3).model
    through, [layer, *_] = ring_of(model), decoder_layers(model)
    assert through is not None
    assert len(through.slots) == reckoned.SLOTS == ring.SLOTS
    assert {slot.numel() for slot in through.slots} == {span.size for span in through.spans}
    matrices = matrices_of(layer).values()
    form = WEIGHT_FORMS["nf4"]
    counted = sum(form.matrix_bytes(one.in_features, one.out_features, 4) for one in matrices)
    tables = sum(16 * 4 + 256 * 4 + 4 for _ in matrices)
    assert sum(tensor.nbytes for one in matrices for tensor in held_tensors(one)) == counted - tables
    assert all(span.size >= counted - tables for span in through.spans)
    assert through.host_bytes == 3 * through.spans[0].size


def test_embeddings_are_looked_up_on_the_host_unless_they_are_the_head(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "own", num_hidden_layers=2)
    model, resident = loaded(folder, 1).model, loaded(folder, 0).model
    embedding, ids = model.get_input_embeddings(), torch.tensor([[5, 9, 5], [3, 96, 0]])
    assert embedding.weight.isnan().all()
    assert embedding.weight.untyped_storage().nbytes() < 1000
    assert torch.equal(embedding(ids), resident.get_input_embeddings()(ids))
    copied = copy.deepcopy(embedding)  # peft trains such a copy
    assert torch.equal(copied.weight, resident.get_input_embeddings().weight)
    assert "state_dict" not in vars(copied)
    tied = loaded(save_tiny(tmp_path / "tied", num_hidden_layers=2, tie_word_embeddings=True), 1).model
    assert tied.get_output_embeddings().weight is tied.get_input_embeddings().weight
    assert not tied.get_output_embeddings().weight.isnan().any()


def test_embedding_and_head_are_trained_beside_streamed_layers(tmp_path: Path) -> None:
    from core.contract.config import RunConfig, TrainChoice

    folder = save_tiny(tmp_path, num_hidden_layers=LAYERS)
    config = RunConfig(train=TrainChoice(learns="adapter_embeddings"))
    seen = []
    for streamed in (0, LAYERS):
        onto = Onto(loaded(folder, streamed).model, lambda: None)
        trained = LEARNERS["adapter_embeddings"](onto, config)
        trained.model.train()
        loss = LossModel(trained.model)(**packed_batch([7, 12])).sum()
        loss.backward()
        moved = {update.name: update.before() for update in updates_of(trained.model)}
        seen.append((loss.detach(), {name: p.grad for name, p in trained.named}, moved))
    assert torch.equal(seen[0][0], seen[1][0])
    for name, gradient in seen[0][1].items():
        assert gradient is None or torch.equal(gradient, seen[1][1][name]), name
    for name, before in seen[0][2].items():
        assert torch.equal(before, seen[1][2][name]), name


@pytest.mark.parametrize("start", ["pissa_niter_16", "loftq", "dora"])
def test_starts_of_adapters_are_made_of_the_right_matrices(start: str, tmp_path: Path) -> None:
    folder, made = save_tiny(tmp_path, num_hidden_layers=LAYERS), []
    lora = LoraChoice(r=4, use_dora=True) if start == "dora" else LoraChoice(r=4, init_lora_weights=start)  # type: ignore[arg-type]
    for streamed in (0, LAYERS):
        torch.manual_seed(0)
        originals = partial(original_weights, folder, CPU)
        model = add_adapter(loaded(folder, streamed).model, lora, 0, originals=originals)
        made.append({name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad})
        made[-1] |= {key: dense_weight(one) for key, one in model.named_modules() if hasattr(one, "lora_A")}
    assert made[0].keys() == made[1].keys()
    for name, tensor in made[0].items():
        assert torch.equal(tensor, made[1][name]), name


def test_the_cache_of_quantised_weights_is_written_and_read_by_streamed_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_cache, "LEAST_BYTES", 0)
    monkeypatch.setattr(weight_cache, "SPARED_BYTES", 0)
    folder = save_tiny(tmp_path / "model", num_hidden_layers=LAYERS)
    files = []
    for number, streamed in enumerate((0, LAYERS)):
        cache = tmp_path / f"cache{number}"
        assert "kept quantised for the next time" in loaded(folder, streamed, cache=cache).line
        [entry] = (cache / "nf4").iterdir()
        files.append((entry.name, (entry / weight_cache.WEIGHTS).read_bytes()))
    assert files[0] == files[1]
    again = loaded(folder, 3, cache=tmp_path / "cache0")
    assert "already quantised" in again.line
    assert "3 of 4 layers stream from the machine's memory" in again.line
    assert_equal(passes(adapt(again.model), True, "none"), passes(adapt(loaded(folder, 0).model), True, "none"))


def test_of_several_processes_one_reads_and_the_layers_lie_in_memory_once(tmp_path: Path) -> None:
    """Whatever the weights' form, and biases too: the same losses and gradients, in the same bytes of memory."""
    for family, form in (("llama", "nf4"), ("qwen2", "none")):
        folder = save_tiny(tmp_path / form, family, num_hidden_layers=LAYERS)
        shared = SharedMemory.made()
        assert shared
        beside = SharedMemory.inherited(shared.words, writes=False)
        read: list[list[int]] = [[], []]
        models = [
            loaded(folder, 3, form, together=together, on_progress=lambda done, _, mine=mine: mine.append(done)).model
            for together, mine in zip((Together(2, True, shared), Together(2, False, beside)), read, strict=True)
        ]
        rings = [ring_of(model) for model in models]
        first, second = ([part for span in ring.spans for part in span.parts] for ring in rings if ring)
        assert [len(part) for part in first] == [len(part) for part in second]
        assert_equal(
            passes(adapt(models[1]), True, "recompute"), passes(adapt(loaded(folder, 0, form).model), True, "none")
        )
        tables = [model.get_input_embeddings().host_rows.table for model in models]
        for ours, theirs in ((first[-1], second[-1]), tables):
            ours.flatten()[:8].fill_(7)
            assert bool((theirs.flatten()[:8] == 7).all()), "one copy"
        shared.close()


def test_a_first_that_reads_again_says_nothing_twice_and_one_that_says_nothing_is_not_waited_for_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the cache of quantised weights turns out to be damaged."""
    folder, shared = save_tiny(tmp_path, num_hidden_layers=LAYERS), SharedMemory.made()
    assert shared
    beside = Together(2, False, SharedMemory.inherited(shared.words, writes=False))
    monkeypatch.setattr(together, "WAIT_SECONDS", 0.1)
    with pytest.raises(RunError) as refused:
        loaded(folder, 2, together=beside)
    assert refused.value.key == "ranks.no_weights"
    sizes = []
    for _ in range(2):
        loaded(folder, 2, together=Together(2, True, shared))
        sizes.append([os.fstat(int(number)).st_size for number in shared.words.split(",")])
    assert sizes[0] == sizes[1], "the same memory, and no line more"
    given = loaded(folder, 2, together=beside)
    assert "once for all 2 processes" in given.line
    assert_equal(passes(adapt(given.model), True, "none"), passes(adapt(loaded(folder, 0).model), True, "none"))
    shared.close()


def test_where_nothing_can_be_shared_there_must_be_room_for_every_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, embedding = save_tiny(tmp_path, num_hidden_layers=LAYERS), 97 * 64 * 4
    layer = ring_of(loaded(folder, 1).model).spans[0].size  # type: ignore[union-attr]
    free = 2 * (KEPT_FREE_BYTES + embedding + 3 * layer // 2)
    monkeypatch.setattr(Host, "memory", lambda _self: (64 * GIB, free))
    monkeypatch.delattr("os.memfd_create")
    assert SharedMemory.made() is None
    with pytest.raises(MachineError) as refused:
        loaded(folder, 2, together=Together(2))
    assert (refused.value.key, refused.value.values["fit"]) == ("memory.streamed/each", 1)
    loaded(folder, 1, together=Together(2))
    loaded(folder, 2, together=Together(2, first=False))  # the first asks for all


def test_random_weights_are_the_same_too() -> None:
    seen = []
    for streamed in (0, 2):
        model = random_model("tiny", CPU, streamed=streamed).model
        seen.append(passes(adapt(model), True, "recompute"))
    assert_equal(seen[1], seen[0])


def test_too_little_memory_is_said_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_tiny(tmp_path, num_hidden_layers=LAYERS)
    read: list[int] = []
    embedding = 97 * 64 * 4
    layer = ring_of(loaded(folder, 1).model).spans[0].size  # type: ignore[union-attr]
    monkeypatch.setattr(Host, "memory", lambda _self: (64 * GIB, KEPT_FREE_BYTES + embedding + 3 * layer // 2))
    with pytest.raises(MachineError) as refused:
        loaded(folder, LAYERS, on_progress=lambda done, _total: read.append(done))
    assert refused.value.code == "memory.streamed"
    assert not any(read)
    told = refused.value.values
    assert (told["layers"], told["fit"]) == (LAYERS, 1)
    loaded(folder, told["fit"])


def test_weights_that_transformers_must_read_itself_are_not_streamed(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path, num_hidden_layers=2)
    (folder / "adapter_config.json").write_text("{}", "utf-8")
    with pytest.raises(ModelError) as refused:
        loaded(folder, 1)
    assert refused.value.code == "model.unstreamable"


def test_a_refused_pin_leaves_plain_pages_and_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refused(size: int, pinned: bool) -> torch.Tensor:
        asked.append(pinned)
        if pinned:
            raise RuntimeError("CUDA error: out of memory")
        return torch.empty(size, dtype=torch.uint8)

    monkeypatch.setattr(host_pages, "memory", refused)
    pages = HostPages(pin=True)
    span = pages.span(50_000)
    assert asked == [True, False, False, False]
    assert pages.refused
    assert not span.pinned
    assert pages.plain_bytes == 61_440


def test_what_is_written_across_pages_arrives_in_the_slot() -> None:
    pages, values = HostPages(pin=False), torch.arange(30_000, dtype=torch.int32)
    spans = [pages.span(values.nbytes + 512) for _ in range(3)]
    for number, span in enumerate(spans):
        span.write(512, values + number)
    assert max(len(span.parts) for span in spans) > 2
    through = Ring(spans, CPU)
    for number in (0, 1, 2, 1, 0):
        through.need(number, back=False)
        found = through.slots[number % 2][512:].view(torch.int32)[: len(values)]
        assert torch.equal(found, values + number)
    assert through.rate() == 0.0


def test_without_streamed_layers_loading_is_as_ever(tmp_path: Path) -> None:
    model = loaded(save_tiny(tmp_path, num_hidden_layers=2), -1).model
    assert ring_of(model) is None
    assert not any(layer._forward_pre_hooks for layer in decoder_layers(model))


def test_shared_memory_may_have_more_parts_than_a_process_usually_has_files() -> None:
    """Python keeps a descriptor for each of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        shared = SharedMemory.made()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(4096, hard)
        if shared is not None:
            parts = [shared.part(number * mmap.ALLOCATIONGRANULARITY, 1) for number in range(600)]
            assert len(parts) == 600
            shared.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
