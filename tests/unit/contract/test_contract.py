"""The contract: configs say all their faults, events survive strangers, knobs are declared once."""

import json
import pickle
import time
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.contract.commands import Command, parse_command
from core.contract.config import DataChoice, LoraChoice, ModelChoice, RunConfig, TrainChoice
from core.contract.errors import DataError, Fault
from core.contract.events import Event, Note, Step, parse_event
from core.contract.knobs import knobs
from core.contract.optimisers import OPTIMISERS, USUAL, USUAL_ON_CPU, OptimiserName, optimiser_of
from core.contract.weight_forms import WEIGHT_FORMS, WeightFormName


def test_every_knob_has_words_and_a_default_within_its_range_and_few_are_simple() -> None:
    assert 1 <= sum(knob.simple for knob in knobs(RunConfig).values()) <= 6
    for key, knob in knobs(RunConfig).items():
        assert knob.label, key
        assert knob.hint, key
        assert knob.group in {"data", "memory", "learning", "method", "lora", "saving"}, key
        if knob.minimum is not None and isinstance(knob.default, (int, float)):
            assert knob.minimum <= knob.default <= (knob.maximum or float("inf")), key
        if knob.kind == "choice":
            assert knob.default in knob.choices, key


def test_faults_between_fields_are_listed_at_once() -> None:
    config = RunConfig(
        model=ModelChoice(source="folder", name="not/absolute"),
        lora=LoraChoice(target_modules=(), use_dora=True, bias="lora_only"),
    )
    assert len(config.problems()) == 4
    assert RunConfig(data=DataChoice(path="/a.jsonl")).problems() == []


@pytest.mark.parametrize("values", [{"method": "dpo"}, {"model": ModelChoice(dtype="float16")}])
def test_biases_are_refused_where_they_cannot_be_trained(values: dict[str, object]) -> None:
    config = RunConfig(data=DataChoice(path="/a.jsonl")).model_copy(update=values)
    assert config.problems() == []
    (problem,) = config.model_copy(update={"lora": LoraChoice(bias="lora_only")}).problems()
    assert problem.startswith("lora.bias: ")
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("lora", "resume_from"),
    [({"use_dora": True}, ""), ({"use_rslora": True}, ""), ({"target_modules": ("embed_tokens",)}, ""),
     ({"r": 1024}, ""), ({}, "earlier")],
)  # fmt: skip
def test_an_adapter_that_begins_at_its_weights_is_plain_and_fresh(lora: dict[str, Any], resume_from: str) -> None:
    config = RunConfig(data=DataChoice(path="/a.jsonl"), resume_from=resume_from, lora=LoraChoice(**lora))
    assert config.problems() == []
    start = config.lora.model_copy(update={"init_lora_weights": "pissa_niter_16"})
    (problem,) = config.model_copy(update={"lora": start}).problems()
    assert problem.startswith("lora.init_lora_weights: pissa_niter_16 ")


def test_a_beginning_at_what_four_bits_lose_wants_four_bits() -> None:
    lora = LoraChoice(init_lora_weights="loftq")
    config = RunConfig(data=DataChoice(path="/a.jsonl"), lora=lora)
    assert config.problems() == []
    (problem,) = config.model_copy(update={"model": ModelChoice(quantization="none")}).problems()
    assert problem.startswith("lora.init_lora_weights: loftq corrects weights in 4 bits, found ")


def test_muon_is_for_full_finetuning() -> None:
    config = RunConfig(data=DataChoice(path="/a.jsonl"), train=TrainChoice(optim="muon"))
    (problem,) = config.problems()
    assert problem == "train.optim: muon is for full finetuning, found an adapter. Choose another one."
    whole = config.train.model_copy(update={"learns": "everything"})
    model = ModelChoice(quantization="none")
    assert config.model_copy(update={"train": whole, "model": model}).problems() == []


def test_every_optimiser_of_the_config_is_a_row() -> None:
    assert tuple(OPTIMISERS) == get_args(OptimiserName) == knobs(RunConfig)["train.optim"].choices[1:]
    assert {optimiser_of("auto", gpu=gpu) for gpu in (True, False)} == {OPTIMISERS[USUAL], OPTIMISERS[USUAL_ON_CPU]}
    paged = OPTIMISERS["paged_adamw_8bit"]
    assert (paged.card_bytes((64, 64), 4), paged.state_bytes((64, 64), 4)) == (0, 2 * (64 * 64 + 4 * 16))


@pytest.mark.parametrize("policy", ["none", "recompute"])
def test_a_config_from_before_there_was_a_budget_is_read(policy: str) -> None:
    train = RunConfig.model_validate({"train": {"checkpointing": policy, "tokens_per_pass": 2048}}).train
    assert (train.checkpointing, train.memory_gib) == (policy, 0)


@given(st.text() | st.binary())
def test_any_line_is_an_event_or_nothing(line: str | bytes) -> None:
    event = parse_event(line)
    assert event is None or isinstance(event, Event)
    assert parse_command(line) is None


def test_unknown_kinds_are_skipped_and_unknown_fields_ignored() -> None:
    assert parse_event('{"kind": "of_tomorrow"}') is None
    step = parse_event(json.dumps({"kind": "step", "loss": 1.5, "of_tomorrow": 1}))
    assert isinstance(step, Step)
    assert step.loss == 1.5
    assert step.gpu_load is None


def test_a_line_means_what_it_means_in_python() -> None:
    """The quick reader is stricter than Python's; what only Python takes is still an event."""
    assert parse_event('{"kind":"note","text":"\\ud83d"}') == Note(text="\ud83d")
    assert parse_event('{"kind":"step","loss":NaN}').loss is not None  # type: ignore[union-attr]
    assert parse_event('{"kind":"note","text":"a","text":"b"}') == Note(text="b")
    assert parse_event("[" * 100_000) is None
    assert parse_event('{"kind":"note"} and more') is None


def test_a_nights_log_is_read_in_a_moment() -> None:
    """The first look at a run of 20,000 steps waits for this: half of what Python takes for its JSON alone."""
    line = Step(step=1, loss=0.5, learning_rate=2e-4, seconds=1.0, memory_bytes=700_000_000).model_dump_json().encode()
    took = dict.fromkeys((json.loads, parse_event), float("inf"))
    for _ in range(50):  # in turn: a machine that others use as well is slow for tenths of a second
        for read in took:
            began = time.process_time()
            for _ in range(500):
                read(line)
            took[read] = min(took[read], time.process_time() - began)
    assert took[parse_event] < 1.2 * took[json.loads], took


def test_events_and_commands_survive_the_line() -> None:
    step = Step(step=3, loss=0.5)
    assert parse_event(step.model_dump_json()) == step
    command = Command(verb="stop", attempt=2)
    assert parse_command(command.model_dump_json()) == command


def test_errors_are_one_line_and_cross_processes() -> None:
    error = DataError.told_by(
        {"code": "data.empty", "message": "Expected rows, found none.", "hint": "Choose another file."}
    )
    assert str(error) == "Expected rows, found none. Choose another file."
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, Fault)
    assert (again.code, again.hint) == ("data.empty", "Choose another file.")


def test_every_weight_form_of_the_config_is_a_row_and_counts_its_bytes() -> None:
    assert tuple(WEIGHT_FORMS) == get_args(WeightFormName) == knobs(RunConfig)["model.quantization"].choices
    assert all(row.name == name and row.title and row.words for name, row in WEIGHT_FORMS.items())
    assert WEIGHT_FORMS["none"].matrix_bytes(30, 7, 4) == 840
    # 256 blocks of 64 are one block of scales; one value more begins the next of each.
    assert [WEIGHT_FORMS["nf4"].matrix_bytes(width, 1, 2) for width in (16384, 16385)] == [
        8192 + 256 + 4 + 1092, 8193 + 257 + 8 + 1092,
    ]  # fmt: skip


def test_label_smoothing_is_refused_where_a_loss_has_none() -> None:
    train = TrainChoice(label_smoothing=0.1, loss_type="hinge")
    config = RunConfig(method="dpo", data=DataChoice(path="/a.jsonl", layout="preference"), train=train)
    (problem,) = config.problems()
    assert problem.startswith("train.label_smoothing")
    for kind in ("sigmoid", "robust", "auto"):
        assert not config.model_copy(update={"train": train.model_copy(update={"loss_type": kind})}).problems()


@pytest.mark.parametrize(
    ("cards", "said"), [("", ""), ("all", ""), ("0,1", ""), ("GPU-a1, 2", ""), ("0,x", "such as 0,1"), ("1,1", "twice")]
)
def test_cards_are_numbers_and_each_is_named_once(cards: str, said: str) -> None:
    problems = [one for one in RunConfig(train=TrainChoice(cards=cards)).problems() if one.startswith("train.cards")]
    assert len(problems) == bool(said)
    assert said in "".join(problems)
