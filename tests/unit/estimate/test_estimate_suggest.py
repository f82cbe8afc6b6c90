"""Make it fit and use the room: what is said holds by the estimator itself, in an order that can be trusted."""

import random
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from core.contract.catalogue import ModelSpec
from core.contract.config import LoraChoice, ModelChoice, RunConfig, TrainChoice
from core.contract.data import DataFacts
from core.contract.estimate import Suggestion
from core.estimate import estimate, make_it_fit, use_the_room
from core.machine.hardware import Machine
from core.models.suited import put
from tests.unit.estimate import conftest
from tests.unit.estimate.conftest import SPECS, card, rows

OTHERS = tuple(SPECS.values())
DICE = random.Random(5)
CHATS = rows(tuple(min(6000, int(DICE.lognormvariate(5.5, 1.0))) for _ in range(2000)))
KEYS = ("llama-3.2-1b", "qwen3-4b", "gemma-2-9b", "mistral-7b", "qwen3-14b")


def changed(config: RunConfig, spec: ModelSpec, suggestion: Suggestion) -> tuple[RunConfig, ModelSpec]:
    """The run with a suggestion's changes."""
    other = suggestion.changes.get("model.name")
    return conftest.changed(config, suggestion.changes), next((one for one in OTHERS if one.name == other), spec)


@st.composite
def cases(draw: Any) -> tuple[RunConfig, ModelSpec, DataFacts | None, Machine]:
    rank = draw(st.sampled_from([8, 16, 64, 256]))
    config = RunConfig(
        model=ModelChoice(quantization=draw(st.sampled_from(["nf4", "none"]))),
        lora=LoraChoice(r=rank, lora_alpha=rank),
        train=TrainChoice(
            max_length=draw(st.sampled_from([512, 2048, 8192])),
            checkpointing=draw(st.sampled_from(["auto", "auto", "none", "recompute", "offload", "budget"])),
            tokens_per_pass=draw(st.sampled_from([0, 0, 8192])),
            optim=draw(st.sampled_from(["auto", "adamw_torch"])),
            kernels=draw(st.sampled_from(["auto", "auto", "plain"])),
        ),
    )
    machine = card(draw(st.floats(2.0, 40.0)), name="NVIDIA GeForce RTX 4070")
    return config, SPECS[draw(st.sampled_from(KEYS))], draw(st.sampled_from([CHATS, None])), machine


@draws(15)
@given(cases())
def test_what_is_said_of_changes_is_what_the_estimate_says_with_them_in_their_order(case: Any) -> None:
    config, spec, facts, machine = case
    base = estimate(config, spec, facts, machine)
    fitting, using = (ask(config, spec, facts, machine, others=OTHERS) for ask in (make_it_fit, use_the_room))
    for suggestions, verdicts in ((fitting, {"fits", "tight"}), (using, {"fits"})):
        for suggestion in suggestions:
            with_it = estimate(*changed(config, spec, suggestion), facts, machine)
            assert (with_it.verdict, with_it.peak_bytes) == (suggestion.verdict, suggestion.peak_bytes)
            assert with_it.rows_cut - base.rows_cut == suggestion.rows_cut
            assert suggestion.verdict in verdicts
            if base.seconds and with_it.seconds:
                assert suggestion.slower == pytest.approx(with_it.seconds[0] / base.seconds[0], rel=0.1)
            assert "\n" not in suggestion.text
            assert suggestion.text.endswith(".")
    expect_order(base.verdict, fitting, using)


def expect_order(verdict: str, fitting: Sequence[Suggestion], using: Sequence[Suggestion]) -> None:
    """Nothing is said where nothing is to do."""
    assert not fitting or verdict in ("tight", "too_large")
    assert not using or verdict == "fits"
    verdicts = [suggestion.verdict for suggestion in fitting]
    assert verdicts == sorted(verdicts), "what fits comes before what is tight"
    for verdict in ("fits", "tight"):
        models = ["model.name" in suggestion.changes for suggestion in fitting if suggestion.verdict == verdict]
        assert models == sorted(models), "another model is the last resort"
    for earlier, later in pairwise(fitting):
        if earlier.verdict == later.verdict and set(earlier.changes) == set(later.changes):
            assert (earlier.rows_cut, earlier.slower) <= (later.rows_cut, later.slower)
    assert len({tuple(suggestion.changes.items()) for suggestion in (*fitting, *using)}) == len(fitting) + len(using)


@draws(15)
@given(cases(), st.floats(1.05, 2.0))
def test_more_memory_never_asks_for_more(case: Any, more: float) -> None:
    """With more memory the first suggestion cuts no more rows, unless nothing has to be done any more."""
    config, spec, facts, machine = case
    free = machine.gpus[0].free_bytes
    assert free is not None
    larger = card(free * more / 1024**3, name="NVIDIA GeForce RTX 4070")
    small, large = (make_it_fit(config, spec, facts, where, others=()) for where in (machine, larger))
    if small and large and small[0].verdict == large[0].verdict == "fits":
        assert large[0].rows_cut <= small[0].rows_cut


@pytest.mark.parametrize("gib", [12.0, 16.0, 21.0, 24.0])
def test_rows_are_not_cut_where_four_bits_and_a_lower_rank_do(gib: float) -> None:
    """Found by the test above: 21 GiB led to cut rows where 12 GiB had led to 4 bits and rank 64."""
    config = RunConfig(
        model=ModelChoice(quantization="none"),
        lora=LoraChoice(r=256, lora_alpha=256),
        train=TrainChoice(max_length=8192),
    )
    first = make_it_fit(config, SPECS["gemma-2-9b"], CHATS, card(gib), others=())[0]
    assert (first.verdict, first.rows_cut, first.changes["model.quantization"]) == ("fits", 0, "nf4")
    assert "eights in 4 bits" in first.text


def test_where_only_length_or_rank_help_both_are_said_with_their_price() -> None:
    config = RunConfig(lora=LoraChoice(r=128, lora_alpha=128), train=TrainChoice(max_length=8192))
    suggestions = make_it_fit(config, SPECS["mistral-7b"], CHATS, card(6.3), others=())
    kinds = [frozenset(each.changes) for each in suggestions]
    assert frozenset({"lora.r", "lora.lora_alpha"}) in kinds
    rank = next(each for each in suggestions if "lora.r" in each.changes)
    assert int(rank.changes["lora.lora_alpha"]) == int(rank.changes["lora.r"]), "the adapter's strength stays"
    for each in suggestions:
        assert (each.rows_cut > 0) == ("train.max_length" in each.changes)
        assert ("rows are cut" in each.text) == (each.rows_cut > 0)


def test_room_that_is_left_is_used_for_speed_length_and_rank() -> None:
    config = RunConfig(train=TrainChoice(max_length=1024, checkpointing="recompute", tokens_per_pass=2048))
    suggestions = use_the_room(config, SPECS["llama-3.2-1b"], CHATS, card(20), others=OTHERS)
    assert suggestions[0].slower < 0.9
    assert "faster" in suggestions[0].text
    longer = next(each for each in suggestions if "train.max_length" in each.changes)
    assert longer.rows_cut < 0
    assert "fewer are cut" in longer.text
    assert any(int(each.changes.get("lora.r", 0)) == 64 for each in suggestions)
    assert "model.name" in suggestions[-1].changes


def spin() -> float:
    """Seconds of plain Python that does the same on every machine."""
    begun, held = time.process_time(), dict[int, int]()
    for number in range(20_000):
        held[number & 63] = max(number, 3)
    return time.process_time() - begun


@pytest.mark.parametrize("free", [5.4, 11.4, 23.4])
def test_each_answer_takes_less_than_fifty_milliseconds(free: float) -> None:
    """On a processor that takes 3 ms for ``spin``: those of one core go up and down by half with what runs beside."""
    facts = rows(tuple(30 + index * 37 % 5900 for index in range(20_000)))
    config = RunConfig(lora=LoraChoice(r=256), train=TrainChoice(max_length=8192))

    def quick(ask: Any, key: str) -> bool:
        """In the best of three; who was quick once is not asked again."""
        return any(seconds(ask, key) < 0.05 for _ in range(3))

    def seconds(ask: Any, key: str) -> float:
        before, begun = spin(), time.process_time()
        ask(config, SPECS[key], facts, card(free), others=OTHERS)
        took = time.process_time() - begun
        return took * 0.003 / ((before + spin()) / 2)

    for ask in (make_it_fit, use_the_room):
        assert sum(quick(ask, key) for key in KEYS) > len(KEYS) / 2, "the median of the models"


def test_a_large_model_in_16_bits_on_a_small_card_is_never_left_without_a_way() -> None:
    train = TrainChoice(checkpointing="none", tokens_per_pass=512, packing=False, max_length=4096)
    for key, method in (("llama-2-7b", "sft"), ("codellama-34b", "dpo")):
        config = RunConfig(method=method, model=ModelChoice(quantization="none"), train=train)  # type: ignore[arg-type]
        ways = make_it_fit(config, SPECS[key], None, card(4.5), None, OTHERS)
        assert ways
        for way in ways:
            raw, spec = changed(config, SPECS[key], way)
            assert estimate(raw, spec, None, card(4.5)).verdict in ("fits", "tight")
        assert "in its place, " in ways[-1].text, "what else changes is said beside the model"


def test_the_same_gain_is_offered_once() -> None:
    config = RunConfig(train=TrainChoice(checkpointing="recompute"))
    suggestions = use_the_room(config, SPECS["qwen2.5-0.5b"], CHATS, card(11.0), None, OTHERS)
    assert sum("kept as far" in one.text or "nothing recomputed" in one.text.lower() for one in suggestions) == 1


def test_a_length_that_cuts_as_many_rows_is_no_gain() -> None:
    config, spec = RunConfig(train=TrainChoice(max_length=512)), SPECS["qwen2.5-1.5b"]
    config = put(config, "model.rope_scaling", "none")
    for longest, offered in ((40_000, False), (900, True)):
        suggestions = use_the_room(config, spec, rows((longest,) * 40), card(15.0), None, OTHERS)
        assert any("train.max_length" in one.changes for one in suggestions) == offered
