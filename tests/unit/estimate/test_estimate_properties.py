"""What must hold for every model and setting: more never takes less, and a peak is no sum."""

from typing import Any

import pytest
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from core.contract.catalogue import ModelShape, ModelSpec
from core.contract.config import LoraChoice, ModelChoice, RunConfig, TrainChoice
from core.contract.optimisers import OPTIMISERS
from core.estimate import estimate, resolve, total_steps
from core.estimate.inputs.work import work_of
from core.estimate.peak import memory_terms, peak_bytes
from core.estimate.terms import gradients_bytes
from tests.unit.estimate.conftest import card

CARD = card(11, (8, 9), "NVIDIA GeForce RTX 4070")


@st.composite
def specs(draw: Any) -> ModelSpec:
    heads = draw(st.sampled_from([4, 8, 32]))
    shape = ModelShape(
        hidden_size=64 * draw(st.integers(1, 64)),
        intermediate_size=64 * draw(st.integers(1, 200)),
        num_hidden_layers=draw(st.integers(1, 60)),
        num_attention_heads=heads,
        num_key_value_heads=draw(st.sampled_from([1, 2, heads])),
        head_dim=draw(st.sampled_from([32, 64, 128])),
        vocab_size=draw(st.integers(256, 260_000)),
        tie_word_embeddings=draw(st.booleans()),
    )
    kind = draw(st.sampled_from(["llama", "gemma2", "gemma3_text", "phi3", "other"]))
    return ModelSpec(key="x", title="X", source="hub", name="x/x", model_type=kind, shape=shape)


@st.composite
def configs(draw: Any) -> RunConfig:
    return RunConfig(
        method=draw(st.sampled_from(["sft", "dpo"])),
        model=ModelChoice(
            quantization=draw(st.sampled_from(["nf4", "none"])),
            dtype=draw(st.sampled_from(["bfloat16", "float16", "float32"])),
        ),
        lora=LoraChoice(r=draw(st.integers(1, 256))),
        train=TrainChoice(
            max_length=draw(st.integers(32, 8192)),
            per_device_train_batch_size=draw(st.integers(1, 16)),
            gradient_accumulation_steps=draw(st.integers(1, 16)),
            checkpointing=draw(st.sampled_from(["none", "recompute", "offload"])),
            optim=draw(st.sampled_from([*OPTIMISERS])),
            kernels=draw(st.sampled_from(["auto", "plain"])),
            tokens_per_pass=draw(st.integers(1, 20_000)),
        ),
    )


def grown(config: RunConfig, part: str, **values: Any) -> RunConfig:
    return config.model_copy(update={part: getattr(config, part).model_copy(update=values)})


def needs(config: RunConfig, spec: ModelSpec) -> int:
    return estimate(config, spec, None, CARD).peak_bytes


@draws(20)
@given(configs(), specs(), st.integers(1, 64), st.integers(1, 4096), st.integers(1, 8))
def test_more_never_takes_less(config: RunConfig, spec: ModelSpec, rank: int, tokens: int, layers: int) -> None:
    now = needs(config, spec)
    assert needs(grown(config, "lora", r=config.lora.r + rank), spec) > now
    assert needs(grown(config, "train", max_length=config.train.max_length + tokens), spec) >= now
    deeper = spec.shape.model_copy(update={"num_hidden_layers": spec.shape.num_hidden_layers + layers})
    assert needs(config, spec.model_copy(update={"shape": deeper})) > now


@draws(20)
@given(configs(), specs(), st.integers(1, 4096))
def test_a_larger_pass_never_takes_less(config: RunConfig, spec: ModelSpec, more: int) -> None:
    """Unless it makes the step a single pass: then no gradients of an earlier one stand."""
    larger = grown(config, "train", tokens_per_pass=config.train.tokens_per_pass + more)
    step = config.train.max_length * (2 if config.method == "dpo" else 1) * config.rows_per_step
    single = config.train.tokens_per_pass < step <= larger.train.tokens_per_pass
    spared = gradients_bytes(work_of(config, spec, 1, gpu=True)) if single else 0
    assert needs(larger, spec) >= needs(config, spec) - spared


@draws(20)
@given(configs(), specs())
def test_batch_and_accumulation_are_one_thing(config: RunConfig, spec: ModelSpec) -> None:
    """Tokens a pass decides memory; how a step's rows are written down does not."""
    one = grown(config, "train", per_device_train_batch_size=1, gradient_accumulation_steps=config.rows_per_step)
    assert needs(one, spec) == needs(config, spec)
    enough = grown(config, "train", tokens_per_pass=config.train.max_length)
    wider = grown(enough, "train", per_device_train_batch_size=2 * config.train.per_device_train_batch_size)
    first = work_of(enough, spec, 1, gpu=True)
    more = needs(wider, spec) - needs(enough, spec)
    assert more == 0 if enough.rows_per_step > 1 else 0 <= more <= gradients_bytes(first), "a second pass adds to them"


@draws(20)
@given(configs(), specs(), st.integers(32, 8192))
def test_the_peak_is_no_sum_and_no_less_than_any_part(config: RunConfig, spec: ModelSpec, tokens: int) -> None:
    work = work_of(config, spec, tokens, gpu=True)
    listed = memory_terms(work)
    parts = {term.key: term.bytes for term in listed}
    assert all(size >= 0 for size in parts.values())
    assert max(parts.values()) < peak_bytes(work)
    assert peak_bytes(work) <= sum(parts.values())
    assert sum(term.at_peak for term in listed) == peak_bytes(work)
    assert all(term.at_peak <= term.bytes for term in listed)
    joined = next(term for term in listed if term.key == "gradients")
    assert ("twice" in joined.how) == (joined.at_peak > gradients_bytes(work))


@draws(20)
@given(configs(), specs(), st.floats(1.0, 80.0))
def test_a_plan_is_complete_and_stays_when_asked_again(config: RunConfig, spec: ModelSpec, free_gib: float) -> None:
    auto = grown(config, "train", checkpointing="auto", optim="auto", tokens_per_pass=0)
    auto = grown(auto, "model", dtype="auto")
    machine = card(free_gib, name="card")
    whole, chosen = resolve(auto, spec, None, machine)
    assert "auto" not in (whole.model.dtype, whole.train.optim, whole.train.checkpointing)
    assert min(whole.train.tokens_per_pass, whole.train.eval_steps, whole.train.save_steps) > 0
    assert whole.train.tokens_per_pass >= whole.train.max_length
    assert len(chosen) == 7
    assert whole.train.memory_gib <= 0.9 * free_gib
    assert resolve(whole, spec, None, machine) == (whole, [])
    assert RunConfig.model_validate(whole.model_dump()) == whole


@pytest.mark.parametrize(
    ("rows", "batch", "epochs", "most", "steps"),
    [(100, 16, 1, 0, 7), (96, 16, 1, 0, 6), (100, 16, 3, 0, 21), (100, 16, 2.5, 0, 18), (100, 16, 0.1, 0, 1),
     (100, 16, 3, 5, 5), (100, 16, 1, 50, 7), (0, 16, 3, 0, 0), (1, 4096, 1, 0, 1)],
)  # fmt: skip
def test_steps_of_a_run(rows: int, batch: int, epochs: float, most: int, steps: int) -> None:
    train = TrainChoice(
        per_device_train_batch_size=batch, gradient_accumulation_steps=1, num_train_epochs=epochs, max_steps=most
    )
    assert total_steps(RunConfig(train=train), rows) == steps
