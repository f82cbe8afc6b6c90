"""What a config's checkpointing becomes on this machine's model, and what a budget is made of."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from core.contract.config import ModelChoice, RunConfig, TrainChoice  # noqa: E402
from core.contract.errors import MachineError  # noqa: E402
from core.estimate import terms  # noqa: E402
from core.estimate.inputs.work import work_of  # noqa: E402
from core.estimate.terms import CONTEXT_BYTES, context_of  # noqa: E402
from core.model.layers import checkpointing  # noqa: E402
from core.models.catalog import catalogue  # noqa: E402
from core.train import setup  # noqa: E402
from core.train.safety.memory import may_allocate  # noqa: E402
from tests.unit.estimate.conftest import card as card_of  # noqa: E402
from tests.unit.estimate.conftest import rows  # noqa: E402

GIB = 1024**3
CARD = torch.device("cuda", 0)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card of which 10 GiB are free beside the 4 that torch holds already."""
    memory = SimpleNamespace(
        mem_get_info=lambda _: (10 * GIB, 16 * GIB), memory_reserved=lambda _: 4 * GIB, get_device_name=lambda _: "one"
    )  # fmt: skip
    monkeypatch.setattr(torch, "cuda", memory)


@pytest.mark.usefixtures("card")
def test_a_budget_is_what_was_chosen_less_the_context_of_the_plan_and_never_more_than_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert may_allocate(8.0, CARD) == 8 * GIB - CONTEXT_BYTES
    assert may_allocate(15.0, CARD) == 14 * GIB, "what is free, and what torch holds of it"
    assert may_allocate(0.0, CARD) == int(0.9 * 14 * GIB)
    assert may_allocate(8.0, torch.device("cpu")) == 0
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    assert may_allocate(8.0, CARD) == 8 * GIB - context_of("NVIDIA H200")
    assert context_of("NVIDIA H200") / GIB == pytest.approx(0.82, abs=0.01)


@pytest.mark.usefixtures("card")
def test_plan_and_run_leave_the_same_to_the_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the plan counts as room for activations is what the run is left with, to a few bytes of the optimiser."""
    spec = next(spec for spec in catalogue() if spec.key == "mistral-7b")
    train = TrainChoice(checkpointing="budget", memory_gib=8, optim="adamw_8bit")
    config = RunConfig(model=ModelChoice(dtype="bfloat16"), train=train)
    work = work_of(config, spec, 2048, gpu=True)
    model = torch.nn.Module()
    model.trained = torch.nn.Parameter(torch.empty(terms.adapter_parameters(work), device="meta"))
    there = work.model.weights_bytes + terms.lora_bytes(work)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: there, raising=False)
    monkeypatch.setattr(checkpointing, "fast_layer_sizes", lambda _: work.model.layer)
    config_of_base = SimpleNamespace(vocab_size=spec.shape.vocab_size)
    base = SimpleNamespace(config=config_of_base, get_output_embeddings=lambda: None)
    monkeypatch.setattr(checkpointing, "base_causal_model", lambda _: base)
    budget = checkpointing._budget(model, None, may_allocate(8.0, CARD), 2 * model.trained.numel())
    assert (budget.layer, budget.end) == (work.model.layer, work.model.end)
    for tokens in (2048, 40_000):  # longer rows leave more to the gaps
        room = terms.room_bytes(work.at(tokens))
        assert budget.room(tokens) == pytest.approx(room, abs=0.05 * work.model.optimiser_bytes)


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize(
    ("chosen", "optim", "told"),
    [("none", "adamw_8bit", ("none",)), ("auto", "adamw_8bit", ("none",)), ("recompute", "adamw_8bit", ("recompute",)),
     ("offload", "adamw_torch", ("offload",)),
     ("budget", "adamw_8bit", ("auto", 8 * GIB - CONTEXT_BYTES, 2 * 4096 + 2 * 64)),
     ("budget", "adamw_torch", ("auto", 8 * GIB - CONTEXT_BYTES, 8 * 4096))],
)  # fmt: skip
def test_the_model_is_told_what_the_config_says(
    chosen: Any, optim: Any, told: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[object, ...]] = []

    def take(_model: object, *arguments: object, tile_tokens: int) -> tuple[str, ...]:
        calls.append((*arguments, tile_tokens))
        return ("a line",)

    monkeypatch.setattr(setup, "set_checkpointing", take)
    for asked in (-1, 0, 512):
        config = RunConfig(train=TrainChoice(checkpointing=chosen, memory_gib=8, optim=optim, tile_tokens=asked))
        assert setup._checkpointing(config, torch.nn.Linear(64, 64, bias=False), CARD) == ("a line",)
    assert calls == [(*told, tile) for tile in (0, 0, 512)]


def test_a_run_whose_layer_inputs_this_machine_cannot_hold_ends_in_a_line_before_its_weights_are_loaded() -> None:
    spec = next(one for one in catalogue() if one.key == "llama-3.1-8b")
    long = {"max_length": 131_072, "checkpointing": "offload", "tokens_per_pass": 131_072, "tile_tokens": 8192}
    config = RunConfig.model_validate({"model": {"dtype": "bfloat16"}, "train": long})
    data: Any = SimpleNamespace(facts=rows((131_072,) * 4, 131_072))
    here = replace(card_of(24), ram_free_bytes=40 * GIB)
    setup._refuse_inputs(config, spec, data, here)
    with pytest.raises(MachineError) as refused:
        setup._refuse_inputs(config, spec, data, replace(here, ram_free_bytes=20 * GIB))
    assert refused.value.code == "memory.inputs"
    assert "32.0 GB of the machine's own memory for the layer inputs of 131,072 tokens, found 20.0" in str(
        refused.value
    )
