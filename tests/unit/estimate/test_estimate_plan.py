"""The plan and what a person reads of it: arithmetic by card, verdicts, notes, time and disk."""

import dataclasses
import time

import pytest

from core.contract.catalogue import ModelSpec
from core.contract.config import DataChoice, LoraChoice, RunConfig, TrainChoice
from core.estimate import estimate, resolve
from core.estimate.fit import usual_tokens
from core.estimate.inputs.rows import rows_of
from core.estimate.inputs.work import work_of
from core.estimate.terms import kept_of
from core.machine.hardware import Machine
from tests.unit.estimate.conftest import CPU, GIB, card, model, rows


def chosen(machine: Machine, spec: ModelSpec, config: RunConfig | None = None) -> RunConfig:
    return resolve(config or RunConfig(), spec, None, machine)[0]


@pytest.mark.parametrize(
    ("capability", "key", "dtype"),
    [((8, 6), "llama-3.2-1b", "bfloat16"), ((12, 0), "gemma-2-2b", "bfloat16"), ((7, 5), "llama-3.2-1b", "float16"),
     ((7, 5), "gemma-2-2b", "float32"), (None, "llama-3.2-1b", "float16")],
)  # fmt: skip
def test_arithmetic_follows_the_card(capability: tuple[int, int] | None, key: str, dtype: str) -> None:
    config = chosen(card(20, capability), model(key))
    assert (config.model.dtype, config.train.optim) == (dtype, "adamw_8bit")


def test_the_cpu_computes_in_32_bits_with_moderate_passes() -> None:
    config = chosen(CPU, model("qwen2.5-0.5b"))
    assert (config.model.dtype, config.train.optim, config.train.checkpointing) == ("float32", "adamw_torch", "none")
    assert config.train.tokens_per_pass == 2048
    longer = RunConfig(train=TrainChoice(max_length=3000))
    assert chosen(CPU, model("qwen2.5-0.5b"), longer).train.tokens_per_pass == 3000


def test_what_was_chosen_by_hand_stays() -> None:
    train = TrainChoice(
        optim="adamw_torch", checkpointing="none", tokens_per_pass=4096, memory_gib=4.25, eval_steps=3, save_steps=4,
        max_steps=9, tile_tokens=0,
    )  # fmt: skip
    config, lines = resolve(RunConfig(train=train), model("qwen3-8b"), None, card(5))
    assert config.train == train
    assert [line.key for line in lines] == ["model.dtype"]


def test_more_memory_means_less_recomputing() -> None:
    facts, spec = rows((900,) * 400), model("qwen3-4b")
    plans = [resolve(RunConfig(), spec, facts, card(free))[0] for free in (5.4, 6.4, 11.4, 23.4, 47.4)]
    assert [plan.train.checkpointing for plan in plans] == ["budget", "budget", "none", "none", "none"]
    works = [work_of(plan, spec, plan.train.tokens_per_pass, gpu=True) for plan in plans]
    shares = [kept_of(work) / spec.shape.num_hidden_layers for work in works]
    assert shares == sorted(shares)
    assert shares[0] < 0.5
    assert shares[-1] == 1
    keeping = [plan.train.tokens_per_pass for plan in plans[2:]]
    assert keeping == sorted(keeping)


def test_without_our_layers_what_does_not_fit_is_recomputed() -> None:
    plain = RunConfig(train=TrainChoice(kernels="plain"))
    facts, spec = rows((900,) * 400), model("qwen3-4b")
    plans = [resolve(plain, spec, facts, card(free))[0].train.checkpointing for free in (5.4, 11.4, 47.4)]
    assert plans == ["recompute", "recompute", "none"]
    assert chosen(card(None), spec, plain).train.checkpointing == "recompute"
    assert chosen(card(None), spec).train.checkpointing == "budget"


def test_a_pass_is_no_larger_than_it_pays() -> None:
    """Where 2,048 tokens can be kept whole, more of them are not taken at the price of recomputing."""
    full = rows((2048,) * 400)
    config = resolve(RunConfig(), model("mistral-7b"), full, card(15.4))[0]
    assert (config.train.checkpointing, config.train.tokens_per_pass) == ("none", 2048)
    config = resolve(RunConfig(), model("mistral-7b"), full, card(7.4))[0]
    assert (config.train.checkpointing, config.train.tokens_per_pass) == ("budget", 4096), (
        "more rows, fewer layers kept"
    )
    config = resolve(RunConfig(), model("llama-3.2-1b"), rows((100,) * 400), card(15.4))[0]
    assert (config.train.checkpointing, config.train.tokens_per_pass) == ("none", 1600), "a whole step is enough"


def test_a_budget_suits_usual_steps_and_bears_long_ones() -> None:
    """Short rows with a long one among them: whole steps are kept, only the largest are recomputed in part."""
    facts, spec = rows((230,) * 399 + (2048,)), model("mistral-7b")
    config = resolve(RunConfig(), spec, facts, card(20))[0]
    fullest = 15 * 230 + 2048
    assert (config.train.checkpointing, config.train.tokens_per_pass) == ("budget", fullest), "no step has more"
    usual = usual_tokens(config, rows_of(config, facts), fullest)
    assert 230 * 16 < usual < 1.1 * 230 * 16
    assert kept_of(work_of(config, spec, usual, gpu=True)) == 32 > kept_of(work_of(config, spec, fullest, gpu=True))


def test_memory_is_made_definite_and_obeyed() -> None:
    config, lines = resolve(RunConfig(), model("mistral-7b"), None, card(7.4))
    assert config.train.memory_gib == 6.65, "never more than nine tenths"
    assert "90% of the 7.4 GB that are free" in {line.key: line.reason for line in lines}["train.memory_gib"]
    assert (
        chosen(CPU, model("qwen2.5-0.5b")).train.memory_gib
        == chosen(card(None), model("qwen3-4b")).train.memory_gib
        == 0
    )
    little = RunConfig(train=TrainChoice(memory_gib=8))
    estimated = estimate(little, model("mistral-7b"), None, card(23))
    assert estimated.verdict == "fits"
    assert 7 * GIB < estimated.peak_bytes <= 8 * GIB
    assert 0 < estimated.pinned_bytes < estimated.host_bytes
    tight = estimate(RunConfig(train=TrainChoice(memory_gib=5)), model("mistral-7b"), None, card(23))
    assert tight.verdict == "tight"
    assert "only 5.0 GB are to be used" in tight.sentence


def test_a_reference_in_every_weight_lies_in_host_memory() -> None:
    spec, whole = model("llama-3.2-1b"), {"train": {"learns": "everything"}, "model": {"quantization": "none"}}
    sft, dpo = (
        estimate(RunConfig.model_validate({**whole, "method": method}), spec, None, card(40))
        for method in ("sft", "dpo")
    )
    assert dpo.host_bytes - sft.host_bytes == pytest.approx(4 * spec.shape.parameters, rel=0.01)


def test_host_memory_that_is_not_there_is_not_planned_with() -> None:
    poor = dataclasses.replace(card(7.4), ram_free_bytes=GIB // 2)
    config = chosen(poor, model("mistral-7b"))
    assert config.train.checkpointing == "recompute"
    assert estimate(RunConfig(), model("mistral-7b"), None, poor).pinned_bytes == 0


@pytest.mark.parametrize("free", [4.0, 5.4, 7.4, 11.4, 15.4, 23.4])
@pytest.mark.parametrize("key", ["llama-3.2-1b", "gemma-2-2b", "qwen3-8b", "mistral-nemo-12b"])
def test_an_automatic_plan_fits_or_says_that_it_does_not(free: float, key: str) -> None:
    estimated = estimate(RunConfig(), model(key), None, card(free))
    if estimated.verdict == "fits":
        assert estimated.peak_bytes <= 0.9 * free * GIB
    else:
        config = chosen(card(free), model(key))
        assert (config.train.checkpointing, config.train.tokens_per_pass) == ("budget", config.train.max_length)


def test_verdicts_and_their_sentences() -> None:
    spec = model("qwen3-8b")
    need = estimate(RunConfig(), spec, None, dataclasses.replace(card(2), ram_free_bytes=4 * GIB)).peak_bytes / GIB
    large, tight, fits, unknown = (
        estimate(RunConfig(), spec, None, dataclasses.replace(card(free), ram_free_bytes=4 * GIB))
        for free in (need * 0.9, need * 1.05, need * 3, None)
    )
    assert [one.verdict for one in (large, tight, fits, unknown)] == [
        "too_large",
        "tight",
        "fits",
        "unknown",
    ]
    for estimated, begin in (
        (large, "Too large: needs "),
        (tight, "Tight: "),
        (fits, "Fits: "),
        (unknown, "Needs about "),
    ):
        assert estimated.sentence.startswith(begin)
        assert "\n" not in estimated.sentence
    assert unknown.free_bytes is None
    assert estimate(RunConfig(), spec, None, CPU).device == "cpu"


def test_what_the_figures_rest_on_is_said() -> None:
    """Without data rows are full; a sample is scaled to all rows; a model is not stretched in silence."""
    blind = estimate(RunConfig(), model("qwen3-4b"), None, card(11))
    assert (blind.total_steps, blind.tokens_per_epoch, blind.seconds) == (0, 0, None)
    assert "No data yet" in blind.notes[0]
    sample = rows((100,) * 50).model_copy(update={"rows": 500, "sampled": True})
    scaled = estimate(RunConfig(data=DataChoice(eval_fraction=0)), model("qwen3-4b"), sample, card(11))
    assert scaled.tokens_per_epoch == 50_000
    assert any("sample of 50" in note for note in scaled.notes)
    config = RunConfig(train=TrainChoice(max_length=4096))
    stretched = estimate(config, model("tinyllama-1.1b"), rows((3000,) * 30), card(11))
    assert any("2,048" in note for note in stretched.notes)


def test_measuring_and_saving_go_together_about_ten_times() -> None:
    config = resolve(RunConfig(), model("qwen3-4b"), rows((300,) * 2000), card(11))[0]
    assert config.train.save_steps == config.train.eval_steps == 35
    few = resolve(RunConfig(), model("qwen3-4b"), rows((300,) * 6), card(11))[0]
    assert few.train.eval_steps == 1
    by_hand = RunConfig(train=TrainChoice(eval_steps=7))
    assert resolve(by_hand, model("qwen3-4b"), None, card(11))[0].train.save_steps == 7


def test_an_answer_takes_less_than_five_milliseconds() -> None:
    """For every rank and every length limit that a slider passes, over a hundred thousand rows."""
    facts, spec, machine = rows(tuple(30 + index * 37 % 3900 for index in range(100_000))), model("qwen3-14b"), card(11)
    estimate(RunConfig(), spec, facts, machine)
    for _ in range(8):  # processor time; other work on this machine slows all answers of a while
        took = []
        for rank, limit in enumerate(range(500, 3000, 100), start=1):
            config = RunConfig(lora=LoraChoice(r=rank), train=TrainChoice(max_length=limit))
            begun = time.process_time()
            estimate(config, spec, facts, machine)
            took.append(time.process_time() - begun)
        if sorted(took)[len(took) // 4] < 0.005:
            return
        time.sleep(0.5)
    pytest.fail(f"{sorted(took)[len(took) // 4]:.4f} s")


def test_a_full_disk_and_little_memory_beside_the_card_are_said() -> None:
    def notes(**less: int) -> str:
        return " ".join(estimate(RunConfig(), model("mistral-7b"), None, dataclasses.replace(card(11), **less)).notes)

    assert "The disk has 2.0 GB free, and 14." in notes(disk_free_bytes=2 * GIB)
    assert "machine's own memory are needed, and 1.0 GB are free" in notes(ram_free_bytes=GIB)
    assert "free" not in notes()
