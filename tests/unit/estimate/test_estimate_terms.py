"""Memory terms against what real libraries hold, and against the constants of the rooms that they speak for."""

from itertools import product
from typing import Any, cast

import pytest
from kept_tensors import kept_of

from core.contract.catalogue import ModelShape, ModelSpec
from core.contract.config import LoraChoice, ModelChoice, RunConfig, TrainChoice
from core.contract.optimisers import OPTIMISERS
from core.contract.tasks import DEFAULT_LEARNS, LEARNS
from core.contract.weight_forms import WEIGHT_FORMS
from core.estimate import terms
from core.estimate.fit import pass_work
from core.estimate.inputs import layer
from core.estimate.inputs.rows import rows_of
from core.estimate.inputs.work import GIB, Work, work_of
from core.estimate.peak import peak_bytes, whole_tokens
from tests.unit.estimate.conftest import card, model, rows

TINY = ModelShape(
    hidden_size=128, intermediate_size=320, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
    head_dim=32, vocab_size=64,
)  # fmt: skip
SPEC = ModelSpec(key="tiny", title="Tiny", source="folder", name="/tiny", model_type="llama", shape=TINY)


_BIASES = ("attention_bias", "mlp_bias")
MAPS = ("qmap1", "qmap2")
"""bitsandbytes' code books: one for all parameters."""


def in_turn(*choices: list[Any]) -> list[Any]:
    """Every combination; by default every second one, so that each choice is met in half of them."""
    return [
        pytest.param(*chosen, marks=() if sum(map(list.index, choices, chosen)) % 2 == 0 else pytest.mark.slow)
        for chosen in product(*choices)
    ]


def work(tokens: int = 64, dtype: str = "bfloat16", gpu: bool = False, kind: str = "llama", **train: Any) -> Work:
    lora, shape = train.pop("lora", LoraChoice()), train.pop("shape", TINY)
    train = TrainChoice(checkpointing="none").model_copy(update=train)
    form = ModelChoice().quantization if train.learns == "adapter" else "none"
    config = RunConfig(lora=lora, train=train, model=ModelChoice(dtype=dtype, quantization=form))
    return work_of(config, SPEC.model_copy(update={"model_type": kind, "shape": shape}), tokens, gpu=gpu)


@pytest.mark.parametrize(("inputs", "outputs"), [(64, 64), (128, 320), (192, 1000)])
def test_nf4_is_what_bitsandbytes_holds(inputs: int, outputs: int) -> None:
    torch = pytest.importorskip("torch")
    bitsandbytes = pytest.importorskip("bitsandbytes")
    layer = bitsandbytes.nn.Linear4bit(inputs, outputs, bias=False, quant_type="nf4", compress_statistics=True)
    layer.weight.data = torch.randn(outputs, inputs)
    layer = layer.to("cpu")
    state = layer.weight.quant_state
    if state is None:
        layer.weight = layer.weight._quantize("cpu")
        state = layer.weight.quant_state
    tensors = [layer.weight.data, state.absmax, state.code, state.offset, state.state2.absmax, state.state2.code]
    held = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    assert state.nested
    assert WEIGHT_FORMS["nf4"].matrix_bytes(inputs, outputs, 2) == pytest.approx(held, abs=16)


def test_whole_weights_are_parameters_times_bytes() -> None:
    config = RunConfig(model=ModelChoice(quantization="none"))
    fast = work_of(config, SPEC, 64, gpu=True)
    assert fast.model.weights_bytes == 2 * TINY.parameters
    assert terms.workspace_bytes(fast) > terms.CUBLAS_BYTES, "our layers border whole weights as well"
    plain = config.model_copy(update={"train": TrainChoice(kernels="plain")})
    assert terms.workspace_bytes(work_of(plain, SPEC, 64, gpu=True)) == terms.CUBLAS_BYTES
    assert terms.workspace_bytes(work_of(plain, SPEC, 64, gpu=False)) == 0
    assert work(gpu=True).model.weights_bytes < 0.5 * fast.model.weights_bytes


@pytest.mark.parametrize(("kind", "dtype"), [("llama", "bfloat16"), ("llama", "float32"), ("qwen3", "bfloat16"),
                                             ("gemma2", "bfloat16")])  # fmt: skip
def test_kept_activations_are_those_that_plain_peft_saves(kind: str, dtype: str) -> None:
    """Counts the storages that autograd keeps in a real model, per token and layer."""
    expected = terms.stored_bytes(work(dtype=dtype, kind=kind)) / TINY.num_hidden_layers
    assert expected == pytest.approx(_saved_bytes_a_layer(kind, dtype), rel=0.001 if kind == "llama" else 0.1)


@pytest.mark.parametrize(("kind", "dtype"), [("llama", "bfloat16"), ("llama", "float32"), ("qwen3", "bfloat16")])
def test_kept_activations_are_those_of_a_model_whose_every_weight_is_trained(kind: str, dtype: str) -> None:
    expected = terms.stored_bytes(work(dtype=dtype, kind=kind, learns="everything")) / TINY.num_hidden_layers
    actual = _saved_bytes_a_layer(kind, dtype, learns="everything")
    assert expected == pytest.approx(actual, rel=0.001 if kind == "llama" else 0.1)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma", "gemma3_text", "phi3"])
def test_kept_activations_are_those_that_our_layers_save(kind: str) -> None:
    """Counts the storages that autograd keeps between our Functions' forward and backward passes.

    On the CPU attention is torch's own: it keeps float32 sums as well, and its result once more where that is not the
    tensor that the output projection reads.
    """
    expected = terms.stored_bytes(work(kind=kind, gpu=True)) / TINY.num_hidden_layers
    assert expected == pytest.approx(_saved_bytes_a_layer(kind, "bfloat16", fast=True), rel=0.02)


@pytest.mark.parametrize(
    ("kind", "targets"),
    in_turn(
        ["llama", "qwen3", "gemma3_text", "phi3"],
        [RunConfig().lora.target_modules, ("q_proj", "o_proj"), ("up_proj", "down_proj")],
    ),
)
def test_kept_activations_of_dora_are_those_that_our_layers_save(kind: str, targets: tuple[str, ...]) -> None:
    """Half of what is counted of rows with magnitudes is kept from the forward to the backward pass of each layer."""
    both = (LoraChoice(target_modules=targets), LoraChoice(target_modules=targets, use_dora=True))
    plain, dora = (work(kind=kind, gpu=True, lora=lora) for lora in both)
    stacks = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",))
    assert dora.model.layer.scaled == tuple(any(name in targets for name in stack) for stack in stacks)
    before, after = (_saved_bytes_a_layer(kind, "bfloat16", fast=True, lora=lora) for lora in both)
    more = terms.stored_bytes(dora) + 4 * dora.model.scaled_rows - terms.stored_bytes(plain)
    assert after - before == pytest.approx(more / TINY.num_hidden_layers, abs=0.01 * before)


@pytest.mark.parametrize(("kind", "lengths"), [("llama", (32, 20)), ("llama", (32, 32)), ("gemma2", (32, 20))])
def test_kept_activations_of_padded_rows_are_those_that_plain_peft_saves(kind: str, lengths: tuple[int, int]) -> None:
    """Each layer makes a mask of its own, where rows differ in length."""
    config = RunConfig(
        train=TrainChoice(checkpointing="none", packing=False, max_length=32, tokens_per_pass=64),
        model=ModelChoice(dtype="bfloat16"),
    )
    machine, spec = card(24), SPEC.model_copy(update={"model_type": kind})
    reckoned = pass_work(config, spec, rows_of(config, rows(lengths, 32)), machine, 64)
    expected = terms.stored_bytes(reckoned) / TINY.num_hidden_layers
    actual = _saved_bytes_a_layer(kind, "bfloat16", lengths=lengths)
    assert expected == pytest.approx(actual, rel=0.001 if kind == "llama" else 0.1)


def _saved_bytes_a_layer(
    kind: str, dtype: str, fast: bool = False, learns: str = "adapter", lora: LoraChoice | None = None,
    lengths: tuple[int, ...] = (64,),
) -> float:  # fmt: skip
    pytest.importorskip("torch")
    makes = (lambda layers: _fast_model(kind, layers, dtype, lora)) if fast else (
        lambda layers: _model(kind, layers, dtype, lora or LoraChoice(), learns)
    )  # fmt: skip
    one, three = (_saved_bytes(makes(layers), lengths) for layers in (1, 3))
    return (three - one) / 2


def _saved_bytes(tuned: Any, lengths: tuple[int, ...]) -> int:
    import torch

    from core.model.layers.peft_bnb import base_causal_model

    seen = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    with kept_of(tuned) as kept:
        base_causal_model(tuned).model(input_ids=seen.long(), attention_mask=seen.long(), use_cache=False)
    return sum(storage.nbytes() for storage in kept.values())


def _model(kind: str, layers: int, dtype: str, lora: LoraChoice, learns: str = "adapter", **more: bool) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from core.contract.tasks import LearnsName
    from core.model.attention import packed as attention
    from core.model.learners import LEARNERS, Onto

    shape = TINY.model_dump(exclude={"sliding_window", "num_hidden_layers", *_BIASES}) | more
    attention.register()
    name = attention.NAME if kind == "gemma2" else "sdpa"
    config = AutoConfig.for_model(kind, **shape, num_hidden_layers=layers, attn_implementation=name, pad_token_id=0)
    base = AutoModelForCausalLM.from_config(config).to(getattr(torch, dtype))
    config = RunConfig(lora=lora, train=TrainChoice(learns=cast(LearnsName, learns)))
    return LEARNERS[config.train.learns](Onto(base.requires_grad_(False), lambda: None), config).model.train()


def _fast_model(kind: str, layers: int, dtype: str, lora: LoraChoice | None = None) -> Any:
    from core.model.layers import surgery

    tuned = _model(kind, layers, dtype, lora or LoraChoice())
    assert surgery.apply(tuned, surgery.plan(tuned, force=True)).swapped
    return tuned


ADAPTERS = (
    {},
    {"use_dora": True},
    {"init_lora_weights": "pissa_niter_16"},
    {"init_lora_weights": "loftq"},
    {"bias": "lora_only"},
    {"target_modules": ("q_proj", "down_proj")},
    {"target_modules": ("o_proj", "lm_head", "embed_tokens")},
    {"target_modules": ("lm_head",), "r": 3},
)
MODELS = [("llama", {}), ("llama", dict.fromkeys(_BIASES, True)), ("qwen2", {}), ("phi3", {})]


@pytest.mark.parametrize(("lora", "model"), in_turn(list(ADAPTERS), MODELS))
def test_trained_numbers_and_moments_are_those_of_the_library(
    lora: dict[str, Any], model: tuple[str, dict[str, bool]]
) -> None:
    """Peft's trainable parameters one by one, and what every optimiser keeps of them after a step."""
    kind, biases = model
    choice, shape = LoraChoice(**lora), TINY.model_copy(update=biases)
    tuned = _model(kind, TINY.num_hidden_layers, "bfloat16", choice, **biases)
    _compare_numbers(kind, shape, choice, tuned, "adapter")


@pytest.mark.parametrize("learns", [name for name in LEARNS if name != DEFAULT_LEARNS])
@pytest.mark.parametrize(("kind", "tied"), [("llama", True), ("qwen2", False), ("qwen3", True), ("gemma2", True)])
def test_trained_weights_of_the_base_are_counted_one_by_one(kind: str, tied: bool, learns: str) -> None:
    shape = TINY.model_copy(update={"tie_word_embeddings": tied})
    tuned = _model(kind, TINY.num_hidden_layers, "bfloat16", LoraChoice(), learns, tie_word_embeddings=tied)
    _compare_numbers(kind, shape, LoraChoice(), tuned, learns)


def _compare_numbers(kind: str, shape: ModelShape, choice: LoraChoice, tuned: Any, learns: str) -> None:
    """The trained numbers, and what optimisers keep of their float32 values."""
    import torch
    import transformers

    from core.model.adapters import of_layer, trainable
    from core.train.step.optimizer import JOINT

    real = [one for one in tuned.parameters() if one.requires_grad]
    counted = work(kind=kind, lora=choice, shape=shape, learns=learns)
    trained = [torch.nn.Parameter(one.detach().float()) for one in real]
    assert terms.adapter_parameters(counted) == sum(one.numel() for one in trained)
    assert terms.gradients_bytes(counted) == sum(one.nbytes for one in trained)
    beside = [one for name, one in trainable(tuned) if "modules_to_save" in name]
    beside += [one for name, one in tuned.named_buffers() if name.rsplit(".")[-1].startswith("start_")]
    assert terms.lora_bytes(counted) == sum(one.nbytes for one in (*trained, *beside))
    for name, row in OPTIMISERS.items():
        if row.whole and not LEARNS[learns].base:
            continue
        args = transformers.TrainingArguments(optim=row.others or name, use_cpu=True, report_to="none")
        optimiser, options = transformers.Trainer.get_optimizer_cls_and_kwargs(args)
        groups = [{"params": trained}]
        if row.others:
            of_layers = {
                id(own) for own, (key, one) in zip(trained, trainable(tuned), strict=True) if of_layer(key, one)
            }
            halves = [[one for one in trained if (id(one) in of_layers) is matrices] for matrices in (True, False)]
            groups = [{"params": half, "matrices": of} for half, of in zip(halves, (True, False), strict=True)]
        made = JOINT.get(name, optimiser)(groups, **options)
        for group in made.param_groups:
            if "ns_steps" in group:
                group["ns_steps"] = 1  # of Muon: products that change no state
        for one in trained:
            one.grad = torch.zeros_like(one)
        made.step()
        states = [
            value for state in made.state.values() for key, value in state.items() if key not in ("step", "RMS", *MAPS)
        ]
        held = sum(value.nbytes for value in states if hasattr(value, "nbytes"))
        assert work(kind=kind, lora=choice, shape=shape, optim=name, learns=learns).model.state_bytes == held, name


def mistral(checkpointing: str, tokens: int, memory_gib: float = 0.0) -> Work:
    train = TrainChoice(checkpointing=checkpointing, optim="adamw_8bit", memory_gib=memory_gib)
    return work_of(RunConfig(train=train), model("mistral-7b"), tokens, gpu=True)


def test_a_budget_lies_between_keeping_and_recomputing() -> None:
    for tokens in (1000, 4000, 8192):
        kept, recomputed, offloaded = (peak_bytes(mistral(way, tokens)) for way in ("none", "recompute", "offload"))
        assert offloaded < recomputed < kept
        assert peak_bytes(mistral("budget", tokens, 100)) == kept
        assert peak_bytes(mistral("budget", tokens, 1)) == offloaded, "no less than one layer's work"
    for memory_gib in (8, 12, 16, 24):  # what is left over: a layer that is no longer kept, and the allocator's gaps
        assert 0.9 * memory_gib * GIB < peak_bytes(mistral("budget", 8192, memory_gib)) <= memory_gib * GIB


def test_a_budget_keeps_everything_up_to_one_length_and_fewer_layers_beyond() -> None:
    def kept(tokens: int) -> int:
        return terms.kept_of(mistral("budget", tokens, 12))

    def pinned(tokens: int) -> int:
        return terms.pinned_bytes(mistral("budget", tokens, 12))

    whole = whole_tokens(mistral("budget", 8192, 12))
    layers = [kept(tokens) for tokens in (1, whole, whole + 1, 2 * whole, 4 * whole, 20_000)]
    assert layers == sorted(layers, reverse=True)
    assert (layers[1], layers[-1] < 6) == (32, True)
    assert 0 < layers[3] < layers[2] < 32
    assert pinned(whole) == 0
    assert pinned(8192) == (32 - kept(8192)) * 8192 * 4096 * 2
    assert pinned(8193) == (32 - kept(8193)) * 8193 * 4096 * 2, "whole pages, and a row more"
    assert pinned(8197) == (32 - kept(8197)) * 8200 * 4096 * 2, "a power of two of rows more"


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3"])
def test_sizes_of_a_real_layer_are_those_of_the_plan(kind: str) -> None:
    pytest.importorskip("torch")
    from core.model.layers.checkpointing import checkpointing_layers, fast_layer_sizes

    shape = SPEC.model_copy(update={"model_type": kind})
    for targets in (RunConfig().lora.target_modules, ("q_proj", "v_proj"), ("up_proj", "o_proj", "down_proj")):
        lora = LoraChoice(target_modules=targets, r=12, use_dora="q_proj" not in targets)
        config = RunConfig(lora=lora, model=ModelChoice(dtype="bfloat16"))
        fast = checkpointing_layers(_fast_model(kind, 1, "bfloat16", lora))[0]
        assert fast_layer_sizes(fast) == work_of(config, shape, 64, gpu=True).model.layer


def test_the_loss_stops_growing_where_it_is_made_in_pieces_and_holds_logits_whole_elsewhere() -> None:
    spec = model("qwen3-8b")

    def loss(tokens: int, spec: ModelSpec = spec, **changes: Any) -> int:
        return terms.loss_bytes(work_of(RunConfig(**changes), spec, tokens, gpu=True))

    assert loss(1000) - loss(900) == 100 * spec.shape.hidden_size * 3 * 2, "hidden states, no logits"
    assert loss(2048, spec.model_copy(update={"model_type": "other"})) > 4 * 2048 * spec.shape.vocab_size


def test_chunks_of_logits_are_those_of_the_kernel() -> None:
    pytest.importorskip("torch")
    from core.kernels.linear_cross_entropy import LOGITS_AT_ONCE

    assert layer.LOGITS_AT_ONCE == LOGITS_AT_ONCE


def test_pieces_of_dora_s_backward_pass_are_those_of_the_kernel() -> None:
    pytest.importorskip("torch")
    from core.kernels.lora_mlp import PIECE_VALUES

    assert layer.PIECE_VALUES == PIECE_VALUES


def test_a_step_takes_what_its_optimiser_makes_for_a_moment() -> None:
    shape = ModelShape(**(TINY.model_dump() | {"vocab_size": 50_000, "tie_word_embeddings": True}))
    embedding = 4 * 50_000 * TINY.hidden_size

    def takes(optim: str) -> int:
        return terms.step_bytes(work(gpu=True, learns="everything", optim=optim, shape=shape))

    norms = 4 * (2 * TINY.num_hidden_layers + 1) * TINY.hidden_size
    assert takes("muon") == embedding + norms, "one copy of all that AdamW steps, which is more than Muon's of a matrix"
    assert takes("adafactor") == 2 * embedding
    assert takes("adamw_torch") == terms.gradients_bytes(work(gpu=True, learns="everything", shape=shape))
    assert takes("adamw_8bit") == 0, "gradients of 16-bit weights are joined as they come"
    wide = {"vocab_size": 4_000_000, "tie_word_embeddings": True}
    large = work(gpu=True, dtype="float32", learns="everything", optim="adamw_8bit",
                 shape=ModelShape(**(TINY.model_dump() | wide)))  # fmt: skip
    assert terms.step_bytes(large) == 4 * 4_000_000 * TINY.hidden_size, "the largest one, and then the others"


def test_padding_takes_plain_layers_and_pairs_do_not() -> None:
    packed = terms.stored_bytes(work(gpu=True))
    assert terms.stored_bytes(work(gpu=True, packing=False)) > packed
    dpo = RunConfig(method="dpo", train=TrainChoice(checkpointing="none"))
    assert terms.stored_bytes(work_of(dpo, SPEC, 64, gpu=True)) == packed
