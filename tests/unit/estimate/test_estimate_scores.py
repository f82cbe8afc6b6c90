"""Memory and time of heads of scores: decoders without a head over the vocabulary, and encoders trained whole, against
what real models hold and autograd keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from encoder_cases import build, config_of, packed_batch, rows_of
from kept_tensors import kept_of
from live_tensors import Live

from core.contract.catalogue import ModelShape
from core.contract.config import ModelChoice, RunConfig, TrainChoice
from core.contract.optimisers import OPTIMISERS, part_of
from core.contract.tasks import Outputs
from core.estimate import Learned, advise, estimate, make_it_fit, predict, resolve, terms, use_the_room
from core.estimate.inputs.encoder import EncoderModel
from core.estimate.inputs.work import Work, work_of
from core.estimate.peak import height
from core.model.adapters import of_layer
from core.model.encoders import surgery
from core.model.encoders.forward import classify_logits
from core.model.layers.checkpointing import set_checkpointing
from core.model.learners import LEARNERS, Onto
from core.model.scores import ScoreModel, with_scores
from core.models.checks.folder import read_shape
from core.models.encoders import ENCODERS
from tests.unit.estimate.conftest import CPU, card, rows
from tests.unit.estimate.conftest import model as catalogued

SIZES = {"hidden_size": 128, "intermediate_size": 192, "num_attention_heads": 4, "vocab_size": 97}
DISTIL = {"dim": 128, "hidden_dim": 192, "n_heads": 4}
TOKENS = 40
LENGTHS = (10, 10, 10, 10)
"""One block of rows, where attention runs in blocks."""


def config(family: str, layers: int = 3, **more: Any) -> Any:
    sizes = {**DISTIL, "n_layers": layers} if family == "distilbert" else {**SIZES, "num_hidden_layers": layers}
    extra = {"global_attn_every_n_layers": 1} if family == "modernbert" else {}
    return config_of(family, max_position_embeddings=64, **sizes, **extra, **more)


def encoder(family: str, dtype: str = "float32", gpu: bool = False, layers: int = 3, **train: Any) -> Work:
    """What is counted of it; ``gpu``: with our layer norm, and masks of a byte."""
    shape = read_shape(config(family, layers).to_dict())
    spec = catalogued("bert-base").model_copy(update={"shape": shape, "model_type": family})
    choice = TrainChoice(learns="everything", checkpointing="none").model_copy(update=train)
    asked = RunConfig(method="classify", train=choice, model=ModelChoice(quantization="none", dtype=dtype))  # type: ignore[arg-type]
    return work_of(asked, spec, TOKENS, gpu=gpu)


def kept_bytes(made: Any, dtype: torch.dtype) -> int:
    """Bytes of them."""
    batch = packed_batch(rows_of(LENGTHS if made.config.model_type == "deberta-v2" else (TOKENS,)))
    with kept_of(made) as kept:
        classify_logits(made.train(), batch, dtype)
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.parametrize("family", ENCODERS)
@pytest.mark.parametrize(
    ("dtype", "joined"),
    [("float32", False), pytest.param("bfloat16", False, marks=pytest.mark.slow), ("bfloat16", True)],
)
def test_kept_activations_of_an_encoder_are_those_that_autograd_keeps(family: str, dtype: str, joined: bool) -> None:
    """Without dropout, whose masks have another size on a card; weights' copies for the products included."""
    saved, counted = [], []
    for layers in (1, 3):
        made = build(config(family, layers))
        surgery.apply(made, surgery.plan(made, fused=joined))
        saved.append(kept_bytes(made, getattr(torch, dtype)))
        work = encoder(family, dtype, joined, layers)
        row = LENGTHS[0] if ENCODERS[family].relative else TOKENS
        still: Any = replace(
            cast(EncoderModel, work.model), encoder=replace(ENCODERS[family], dropouts=0), row=row, gpu=False
        )
        counted.append(terms.stored_bytes(replace(work, model=still)))
    assert counted[1] - counted[0] == pytest.approx(saved[1] - saved[0], rel=0.01)
    assert counted[0] == pytest.approx(saved[0], rel=0.05)


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert", "deberta-v2"])
def test_recomputed_layers_of_an_encoder_keep_their_inputs(family: str) -> None:
    saved, counted = [], []
    for layers in (1, 3):
        made = build(config(family, layers))
        surgery.apply(made, surgery.plan(made, fused=False))
        set_checkpointing(made, "recompute")
        saved.append(kept_bytes(made, torch.float32))
        counted.append(terms.stored_bytes(encoder(family, layers=layers, checkpointing="recompute")))
    assert counted[1] - counted[0] == pytest.approx(saved[1] - saved[0], rel=0.02)


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_a_recomputed_encoders_backward_pass_holds_at_its_products_what_is_counted(family: str) -> None:
    """With dropout, but for attention's, which torch computes on a CPU with its weights. There it also keeps its result
    twice, and the mask over the embeddings in float32."""
    tokens, asked = 1024, config(family, dropout=True)
    for name in ("attention_probs_dropout_prob", "attention_dropout"):
        setattr(asked, name, 0.0)
    made = build(asked).train()
    surgery.apply(made, surgery.plan(made, fused=True))
    set_checkpointing(made, "recompute")
    batch = packed_batch(rows_of((64,) * (tokens // 64)))
    with Live("aten.mm.default", "aten.gelu_backward.default") as live:
        loss = classify_logits(made, batch, torch.bfloat16).sum()
        live.most = 0
        loss.backward()
    work = encoder(family, "bfloat16", gpu=True, checkpointing="recompute")
    on_cpu: Any = replace(cast(EncoderModel, work.model), gpu=False)
    there = replace(work, model=on_cpu, tokens=tokens, single=True)
    gradients = terms.gradients_bytes(there) - terms.late_bytes(there)
    counted = max(terms.activations_bytes(there), gradients + terms.last_activations_bytes(there))
    more = tokens * 2 * SIZES["hidden_size"] * 2
    assert counted + more == pytest.approx(live.most, rel=0.01)


@pytest.mark.parametrize("family", ENCODERS)
def test_weights_and_moments_of_an_encoder_are_the_classifiers(family: str) -> None:
    """Every parameter of transformers' class, in 32 bits; of a layer or not, as Muon asks."""
    made = build(config(family, num_labels=2))
    work = encoder(family, "bfloat16")
    numbers = sum(one.numel() for one in made.parameters())
    assert terms.adapter_parameters(work) == pytest.approx(numbers, rel=0.003)
    assert terms.always_bytes(work) - work.model.optimiser_bytes == 4 * terms.adapter_parameters(work)
    assert terms.gradients_bytes(work) == 4 * terms.adapter_parameters(work)
    for name, row in OPTIMISERS.items():
        held = sum(part_of(row, of_layer(key, one)).state_bytes(one.shape, 4) for key, one in made.named_parameters())
        assert encoder(family, optim=name).model.state_bytes == pytest.approx(held, rel=0.015), name


LLAMA = {
    "hidden_size": 128, "intermediate_size": 320, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 640,
}  # fmt: skip


def decoder(method: str, learns: str = "adapter", tied: bool = False, labels: int = 0, layers: int = 3) -> Work:
    spec = catalogued("qwen3-0.6b").model_copy(
        update={
            "shape": ModelShape(**{**LLAMA, "num_hidden_layers": layers}, tie_word_embeddings=tied),
            "model_type": "llama",
        }
    )
    train = TrainChoice(learns=learns, checkpointing="none")  # type: ignore[arg-type]
    chosen = ModelChoice(quantization="none", dtype="bfloat16")
    work = work_of(RunConfig(method=method, train=train, model=chosen), spec, TOKENS, gpu=False)  # type: ignore[arg-type]
    return replace(work, model=replace(work.model, scores=labels)) if labels else work


@pytest.mark.parametrize(("learns", "tied"), [("adapter", False), ("adapter", True), ("everything", False)])
def test_a_decoder_with_a_head_of_scores_holds_no_head_over_the_vocabulary(learns: str, tied: bool) -> None:
    """Weights, adapter and trained copies by the live tensors; five labels."""
    from transformers import AutoConfig, AutoModelForCausalLM

    plain = AutoModelForCausalLM.from_config(
        AutoConfig.for_model("llama", **LLAMA, tie_word_embeddings=tied, pad_token_id=0)
    ).to(torch.bfloat16)
    outputs = Outputs(tuple("abcde"))
    scored = with_scores(plain.requires_grad_(False), outputs, 1)
    asked = RunConfig(method="classify", train=TrainChoice(learns=learns))  # type: ignore[arg-type]
    made = LEARNERS[asked.train.learns](Onto(scored, lambda: None, outputs=outputs), asked).model
    held = sum(one.nbytes for one in {one.data_ptr(): one for one in made.parameters()}.values())
    work = decoder("classify", learns, tied=tied, labels=5)
    trained = [one for one in made.parameters() if one.requires_grad]
    assert terms.adapter_parameters(work) == sum(one.numel() for one in trained)
    exact = 4 * sum(one.numel() for one in trained) if learns == "everything" else 0
    counted = work.model.weights_bytes + terms.lora_bytes(work)
    assert counted == pytest.approx(held + exact, rel=0.003)
    assert decoder("sft", learns, tied=tied).model.weights_bytes - work.model.weights_bytes == pytest.approx(
        0 if tied else 2 * 640 * 128, abs=4 * 5 * 128
    )


@pytest.mark.parametrize("method", ["classify", "reward"])
def test_kept_activations_of_a_scored_decoder_are_those_that_autograd_keeps(method: str) -> None:
    """Per layer as a language model's; and beside the layers no more than last hidden states and their norm."""
    from transformers import AutoConfig, AutoModelForCausalLM

    saved, counted = [], []
    for layers in (1, 3):
        sizes = {**LLAMA, "num_hidden_layers": layers}
        base = AutoModelForCausalLM.from_config(
            AutoConfig.for_model("llama", **sizes, pad_token_id=0, attn_implementation="sdpa")
        ).to(torch.bfloat16)
        outputs = Outputs(("reward",), "regression") if method == "reward" else Outputs(("a", "b"))
        onto = Onto(with_scores(base.requires_grad_(False), outputs, 1), lambda: None, outputs=outputs)
        made = LEARNERS["adapter"](onto, RunConfig(method=method)).model.train()  # type: ignore[arg-type]
        batch = {"input_ids": rows_of((TOKENS,))[0][None], "attention_mask": torch.ones(1, TOKENS, dtype=torch.long)}
        with kept_of(made) as kept:
            ScoreModel(made)(**batch)
        saved.append(sum(storage.nbytes() for storage in kept.values()))
        work = decoder(method, layers=layers)
        counted.append(terms.stored_bytes(work))
    assert counted[1] - counted[0] == pytest.approx(saved[1] - saved[0], rel=0.001)
    assert 0 <= saved[0] - counted[0] <= 1.05 * terms.loss_bytes(work)


def test_what_a_head_of_scores_spares_is_in_the_moment_of_the_loss() -> None:
    """On a card no logits over a vocabulary; while it is loaded its head is there, before adapter and optimiser."""
    spec, (one, other) = catalogued("qwen3-8b"), ("classify", "sft")
    machine, facts = card(24), rows((512,) * 64)
    said = {name: estimate(RunConfig(method=name), spec, facts, machine) for name in (one, other)}  # type: ignore[arg-type]
    head = 2 * spec.shape.vocab_size * spec.shape.hidden_size
    parts = {name: {part.key: part for part in figures.terms} for name, figures in said.items()}
    assert parts[other]["weights"].bytes - parts[one]["weights"].bytes == pytest.approx(head, rel=0.001)
    assert parts[one]["loss"].bytes < parts[other]["loss"].bytes
    assert "scores" in parts[one]["loss"].how
    assert said[one].peak_bytes < said[other].peak_bytes - 0.9 * head


def test_the_time_of_an_encoder_is_that_of_the_measured_ladder() -> None:
    """BERT base, 256 rows of 144 tokens a step on one H200: 566,000 tokens a second (core/bench/NOTES.md)."""
    facts = rows(tuple(range(32, 257)) * 8)
    asked = RunConfig(method="classify", train=TrainChoice(per_device_train_batch_size=256, tokens_per_pass=36_864))
    figures = estimate(asked, catalogued("bert-base"), facts, card(130, (9, 0), "NVIDIA H200"))
    assert figures.tokens_per_second is not None
    low, high = figures.tokens_per_second
    assert low < 566_000 < high
    assert figures.verdict == "fits"


@pytest.mark.parametrize(("kernels", "gib"), [("auto", 13.48), ("plain", 16.04)])
def test_the_memory_of_an_encoder_is_that_of_the_measured_ladder(kernels: str, gib: float) -> None:
    """The same rungs with our layer norm and with torch's: peaks of torch's allocator in GiB, the fullest step at once.
    On average it has 36,800 tokens."""
    train = TrainChoice(learns="everything", optim="adamw_torch_fused", checkpointing="none").model_copy(
        update={"kernels": kernels}
    )
    asked = RunConfig(method="classify", train=train, model=ModelChoice(quantization="none", dtype="bfloat16"))
    step = replace(work_of(asked, catalogued("bert-base"), 38_000, gpu=True), single=True)
    assert height(step).allocated / 2**30 == pytest.approx(gib, rel=0.03)


def test_a_finished_run_of_an_encoder_teaches_the_next_estimate() -> None:
    """By the mark that its plan has: layers exchanged for packed ones, on the CPU too."""
    asked, spec, facts = RunConfig(method="classify"), catalogued("distilbert-base"), rows((200,) * 64)
    made = build(config("distilbert"))
    assert surgery.plan(made).fast
    line = predict(asked, spec, facts, CPU).model_copy(update={"measured_tokens_per_second": 500.0, "steps": 50})
    assert (line.kernels, line.method, line.learns, line.rank) == ("fast", "classify", "everything", 0)
    said = estimate(asked, spec, facts, CPU, Learned((line,)))
    assert said.tokens_per_second == pytest.approx((450, 550))
    assert "earlier run" in said.time_basis


def test_every_label_is_a_row_of_the_head() -> None:
    """As the rows have them; numbers with fractions want one."""
    few, many = (
        estimate(
            RunConfig(method="classify"), catalogued("qwen3-0.6b"),
            rows((200,) * 64).model_copy(update={"labels": labels}), card(12),
        ).terms
        for labels in (2, 1000)
    )  # fmt: skip
    trained = {part.key: part.bytes for part in many}["lora"] - {part.key: part.bytes for part in few}["lora"]
    assert trained == 4 * 998 * 1024


@pytest.mark.parametrize(
    ("key", "gib"), [("distilbert-base", 4), ("bert-base", 4), ("modernbert-base", 4), ("xlm-roberta-base", 6)]
)
def test_an_encoder_of_the_catalogue_may_start_on_a_small_card_as_it_is_picked(key: str, gib: int) -> None:
    """Classification of a BERT-base shape in 4 GB, with nothing touched; and every line says why."""
    spec = catalogued(key)
    facts = rows((200, 300, 60, 40) * 50, max_length=min(2048, spec.shape.max_position_embeddings))
    resolved, lines = resolve(RunConfig(method="classify"), spec, facts, card(gib))
    assert (resolved.train.learns, resolved.model.quantization) == ("everything", "none")
    assert all(line.reason for line in lines)
    assert estimate(resolved, spec, facts, card(gib)).verdict == "fits"
    assert resolved.problems() == ["data.path: expected a data file, found none. Choose a file or one of the samples."]


LABELLED = rows((200,) * 4_000, max_length=512).model_copy(update={"labels": 4, "trained": (1,) * 4_000})


def advice(key: str, facts: Any = LABELLED, **train: Any) -> dict[str, Any]:
    asked = RunConfig(method="classify", train=TrainChoice(**train))
    return {one.code: one for one in advise(asked, catalogued(key), facts, None, None)}


def test_an_encoder_is_advised_as_encoders_are_trained() -> None:
    """Whole, in small steps that rise slowly; nothing is said of ranks; its own proposals are silent."""
    first = advice("bert-base")
    assert first["learning_rate"].changes == {"train.learning_rate": "3e-05"}
    assert first["learning_rate"].level == "warning"
    assert first["warmup"].changes == {"train.warmup_steps": "71"}
    assert not {"rank_low", "rank_high", "targets", "weights", "few_rows", "beyond_model"} & first.keys()
    for rate in (2e-5, 3e-5, 5e-5):
        assert advice("bert-base", learning_rate=rate, warmup_steps=71, num_train_epochs=4).keys() == set()
    assert "learning_rate" not in advice("qwen3-0.6b", learning_rate=2e-4)


def test_rows_of_a_label_are_counted_not_rows() -> None:
    few = rows((100,) * 120).model_copy(update={"labels": 8})
    assert "about 14 of each" in advice("bert-base", few)["few_rows"].text
    assert "few_rows" not in advice("bert-base", rows((100,) * 600).model_copy(update={"labels": 2}))
    cut = rows((900,) * 400 + (100,) * 3_600, max_length=256).model_copy(update={"labels": 2})
    assert "whose end is not read" in advice("bert-base", cut, max_length=256)["rows_cut"].text


def test_what_is_proposed_for_an_encoder_is_an_encoder_trained_whole() -> None:
    config, spec = RunConfig(method="classify"), catalogued("xlm-roberta-base")
    ways = make_it_fit(config, spec, LABELLED, card(4))
    assert [way.changes["model.name"] for way in ways if "model.name" in way.changes] == ["answerdotai/ModernBERT-base"]
    assert not any({"lora.r", "model.quantization", "train.learns"} & way.changes.keys() for way in ways)
    assert not any(
        {"lora.r", "model.quantization"} & way.changes.keys()
        for way in use_the_room(config, catalogued("distilbert-base"), LABELLED, card(24))
    )
    too_large = estimate(config, spec, LABELLED, card(2)).sentence
    assert too_large.endswith("Shorten the longest example, or choose a smaller model.")
