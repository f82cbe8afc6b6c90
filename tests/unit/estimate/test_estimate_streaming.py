"""Streamed layers in the plan: only for what is larger than the card, as few as fit, said with what they cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.contract.estimate import Estimate, LearnedRun, Resolved
from core.estimate import Learned, estimate, make_it_fit, resolve
from core.estimate.by_fit import Asked, placed, proposed
from core.estimate.duration import copied_seconds, streaming_seconds
from core.estimate.fit import STREAMED, pass_work
from core.estimate.inputs.cards import COPY_RATE, published_of
from core.estimate.inputs.layer import TILE_BYTES
from core.estimate.inputs.rows import rows_of
from core.estimate.peak import peak_bytes
from core.machine.hardware import Machine
from tests.unit.estimate.conftest import CPU, GIB, card, model, rows

SEVENTY = model("llama-3.3-70b")
H200 = "NVIDIA H200"


def machine(gib: float, ram: float = 64, name: str = H200) -> Machine:
    return replace(card(gib, (9, 0), name), ram_free_bytes=int(ram * GIB), ram_total_bytes=int(ram * GIB))


def asked(length: int = 8192, **parts: Any) -> RunConfig:
    train = {"max_length": length, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 2}
    return RunConfig.model_validate({**parts, "train": {**train, **parts.get("train", {})}})


def facts(length: int = 8192) -> DataFacts:
    return rows((length,) * 40, length)


def planned(
    spec: ModelSpec, here: Machine, config: RunConfig | None = None, learned: Learned | None = None
) -> tuple[RunConfig, Estimate, Resolved | None]:
    config = config or asked()
    resolved, lines = resolve(config, spec, facts(config.train.max_length), here, learned)
    said = next((line for line in lines if line.key == STREAMED), None)
    return resolved, estimate(config, spec, facts(config.train.max_length), here, learned), said


def test_a_70b_fits_12_gib_with_as_few_streamed_layers_as_it_takes() -> None:
    resolved, found, said = planned(SEVENTY, machine(12))
    streamed = resolved.model.streamed_layers
    assert 60 < streamed < 80
    assert found.verdict == "fits"
    assert (found.streamed_layers, found.peak_bytes <= 0.9 * 12 * GIB) == (streamed, True)
    assert said is not None
    assert "else the weights do not fit" in said.reason
    assert "in the machine's memory" in said.reason
    whole = {"memory_gib": resolved.train.memory_gib, "tile_tokens": 0}
    fewer = asked(model={"streamed_layers": streamed - 1}, train=whole)
    assert estimate(fewer, SEVENTY, facts(), machine(12)).verdict != "fits"
    assert planned(SEVENTY, machine(24))[0].model.streamed_layers < streamed
    assert planned(SEVENTY, machine(80))[0].model.streamed_layers == 0


def test_the_figures_of_the_task_fit_their_cards() -> None:
    eight = asked(2048, lora={"r": 64}, train={"per_device_train_batch_size": 4})
    for spec, gib, config in ((model("llama-3.1-8b"), 6, eight), (model("codellama-34b"), 10, asked(4096))):
        resolved, found, said = planned(spec, machine(gib), config)
        assert found.verdict == "fits", found.sentence
        assert said is not None
        assert 0 < resolved.model.streamed_layers <= spec.shape.num_hidden_layers


def test_bytes_are_neither_lost_nor_counted_twice() -> None:
    base = pass_work(asked(), SEVENTY, rows_of(asked(), facts()), machine(12), 8192)
    whole, layer = base.model.weights_bytes, base.model.streamed_layer_bytes
    embedding = 2 * SEVENTY.shape.vocab_size * SEVENTY.shape.hidden_size
    for count in (1, 2, 40, 80):
        one = base.streaming(count).model
        assert one.host_weights_bytes == count * layer + embedding
        assert one.weights_bytes == whole - one.host_weights_bytes + min(2, count) * layer
    assert base.streaming(0).model.host_weights_bytes == 0
    assert peak_bytes(base.streaming(30)) - peak_bytes(base.streaming(31)) == layer
    tied = model("qwen2.5-0.5b")
    work = pass_work(asked(), tied, rows_of(asked(), facts()), machine(12), 8192).streaming(5)
    assert work.model.host_weights_bytes == 5 * work.model.streamed_layer_bytes, "the embedding is the head"


def test_large_passes_hide_the_copies_and_small_ones_pay() -> None:
    config = asked(train={"memory_gib": 10.8, "checkpointing": "recompute"})
    base = pass_work(config, SEVENTY, rows_of(config, facts()), machine(12), 8192).streaming(76)
    card_ = published_of(machine(12))
    assert copied_seconds(base) == pytest.approx(74 * base.model.streamed_layer_bytes / COPY_RATE)
    assert streaming_seconds(base, 8192, card_) == 0.0
    small = base.at(512)
    both_ways = 2 * copied_seconds(small)
    assert 0 < streaming_seconds(small, 8192, card_) < both_ways
    assert streaming_seconds(replace(small, copy_rate=1e15), 8192, card_) == 0.0
    assert planned(SEVENTY, machine(12), asked(512))[2].reason.count(" s to a pass") == 1  # type: ignore[union-attr]


def test_what_an_earlier_run_measured_of_the_bus_counts() -> None:
    def known(rate: float, name: str = H200) -> Learned:
        return Learned((LearnedRun(run_id="a", card=name, copy_bytes_a_second=rate),))

    guessed = planned(SEVENTY, machine(12), asked(1024))[1]
    slow, fast = (planned(SEVENTY, machine(12), asked(1024), known(rate))[1] for rate in (6e9, 60e9))
    assert slow.copy_seconds > guessed.copy_seconds > fast.copy_seconds
    assert slow.tokens_per_second is not None
    assert fast.tokens_per_second is not None
    assert slow.tokens_per_second[1] < fast.tokens_per_second[1]
    assert planned(SEVENTY, machine(12), asked(1024), known(6e9, "another"))[1].copy_seconds == guessed.copy_seconds


def test_host_memory_is_counted_and_must_be_there() -> None:
    _, found, _ = planned(SEVENTY, machine(12))
    assert found.host_bytes > found.host_weights_bytes > 30 * GIB
    assert any("layers stream from the machine's memory" in note for note in found.notes)
    resolved, found, said = planned(SEVENTY, machine(12, ram=24))
    assert (resolved.model.streamed_layers, found.verdict, said) == (0, "too_large", None)


def test_nobody_else_notices() -> None:
    """What fits, or would with less, is planned as ever; so is what cannot stream, and what a person decided."""
    small = asked(2048)
    for spec, here, config in (
        (model("mistral-7b"), machine(12), small),
        (model("llama-3.1-8b"), machine(11), asked(2048, model={"quantization": "none"})),
        (SEVENTY, replace(CPU, ram_free_bytes=20 * GIB), small),
        (SEVENTY, machine(12), asked(model={"streamed_layers": 0})),
        (model("llama-3.1-8b"), machine(12), asked(model={"quantization": "none"}, train={"learns": "everything"})),
        (model("bert-base"), machine(1), asked(512, method="classify", train={"learns": "everything"})),
    ):
        resolved, found, said = planned(spec, here, config)
        assert (resolved.model.streamed_layers, found.streamed_layers, said) == (0, 0, None), spec.key
        assert found.copy_seconds == 0.0
    chosen = planned(model("mistral-7b"), machine(24), asked(2048, model={"streamed_layers": 7}))
    assert (chosen[0].model.streamed_layers, chosen[1].streamed_layers, chosen[2]) == (7, 7, None)


def test_where_rows_would_be_cut_streaming_is_proposed_and_before_it_nothing_milder_lost() -> None:
    config = asked(4096, train={"per_device_train_batch_size": 1}, model={"quantization": "none"})
    ways = make_it_fit(config, model("llama-3.1-8b"), facts(4096), machine(11), others=())
    assert [way for way in ways if STREAMED in way.changes] == []
    assert ways[0].changes["model.quantization"] == "nf4"
    long = asked(16384)
    ways = make_it_fit(long, model("llama-3.1-8b"), facts(16384), machine(7.6), others=())
    streams = [way for way in ways if STREAMED in way.changes]
    if streams:
        assert "streamed from the machine's memory" in streams[0].text
        assert streams[0].rows_cut == 0


def test_a_streamed_model_has_a_group_of_its_own_and_is_never_proposed() -> None:
    groups = {one.spec.key: one.group for one in placed(Asked(asked(2048), facts(2048), machine(12)), [SEVENTY])}
    assert groups == {SEVENTY.key: "streamed"}
    assert proposed(Asked(asked(2048), facts(2048), machine(12))).spec.key != SEVENTY.key


def test_the_head_streams_last_and_only_where_that_makes_a_model_fit() -> None:
    layers, head = SEVENTY.shape.num_hidden_layers, 2 * SEVENTY.shape.vocab_size * SEVENTY.shape.hidden_size
    assert planned(SEVENTY, machine(10), asked(2048))[0].model.streamed_layers <= layers
    resolved, found, said = planned(SEVENTY, machine(8), asked(2048))
    assert (found.verdict, resolved.model.streamed_layers, found.streamed_layers) == ("fits", layers + 1, layers)
    assert said is not None
    assert "with the head," in said.reason
    assert any("80 of 80 layers, and the head, stream" in note for note in found.notes), found.notes
    base = pass_work(asked(2048), SEVENTY, rows_of(asked(2048), facts(2048)), machine(6), 2048)
    without, with_it = (base.streaming(count).model for count in (layers, layers + 1))
    assert with_it.host_weights_bytes - without.host_weights_bytes == head
    assert without.weights_bytes - with_it.weights_bytes == head - 2 * TILE_BYTES
    small, count = model("qwen3-4b"), model("qwen3-4b").shape.num_hidden_layers + 1
    assert planned(small, machine(2.5), asked(2048))[1].verdict == "too_large", "nobody asked for so small a head"
    by_hand = planned(small, machine(2.5), asked(2048, model={"streamed_layers": count}))
    assert (by_hand[0].model.streamed_layers, by_hand[1].verdict) == (count, "fits")
    tied = model("gemma-2-9b")
    work = pass_work(asked(2048), tied, rows_of(asked(2048), facts(2048)), machine(6), 2048)
    without, with_it = (work.streaming(tied.shape.num_hidden_layers + more).model for more in (0, 1))
    assert (
        with_it.host_weights_bytes - without.host_weights_bytes
        == without.weights_bytes - with_it.weights_bytes + 2 * TILE_BYTES
    )


def test_a_head_s_copies_hide_behind_its_products_unless_a_pass_is_short() -> None:
    base = pass_work(asked(), SEVENTY, rows_of(asked(), facts()), machine(6, name="NVIDIA GeForce RTX 3060"), 8192)
    base, card_ = base.streaming(81), published_of(machine(6, name="NVIDIA GeForce RTX 3060"))
    assert streaming_seconds(base, 8192, card_) == pytest.approx(0.0, abs=1e-9)
    one = base.at(16)
    alone = streaming_seconds(one.streaming(80), 16, card_)
    assert streaming_seconds(one, 16, card_) - alone == pytest.approx(base.model.head_bytes / COPY_RATE, rel=0.1)


@pytest.mark.parametrize(
    "parts",
    [
        {"lora": {"target_modules": ["q_proj", "lm_head"]}}, {"train": {"learns": "adapter_embeddings"}},
        {"method": "reward"}, {"method": "classify"},
    ],
)  # fmt: skip
def test_a_head_that_learns_or_scores_stays(parts: dict[str, Any]) -> None:
    config = asked(2048, **parts, model={"streamed_layers": 1000})
    assert planned(SEVENTY, machine(80), config)[0].model.streamed_layers == SEVENTY.shape.num_hidden_layers
