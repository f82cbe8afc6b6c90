"""On a card: every Triton kernel against float64, and swapped models in 16 and 4 bits.

    pytest -m gpu tests/gpu/test_kernels_gpu.py

All models are small, random and made here. Cases and tiny models are those of the unit tests.
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

UNIT = Path(__file__).parents[1] / "unit"
sys.path[:0] = [str(UNIT / "kernels"), str(UNIT / "model")]

from kernel_cases import FAMILIES as ROWS  # noqa: E402
from kernel_cases import card_sizes, check_rows  # noqa: E402
from model_tiny import adapt, build, gradients, packed_batch, rows_of, save_tiny  # noqa: E402

from core.contract.config import ModelChoice  # noqa: E402
from core.kernels import cross_entropy, layer_norm, reference, rms_norm, rope, swiglu  # noqa: E402
from core.kernels.dispatch import use_triton  # noqa: E402
from core.kernels.trial import try_kernels  # noqa: E402
from core.model.layers import decoder_layer, surgery  # noqa: E402
from core.model.layers.checkpointing import set_checkpointing  # noqa: E402
from core.model.layers.loss import LossModel  # noqa: E402
from core.model.loading.load import load_base, resolve_dtype  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA card"),
]
CUDA = torch.device("cuda", 0)
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
FAMILIES = ["llama", "mistral", "qwen2", "qwen3"]
LENGTHS = [37, 5, 64, 1, 90]
SIZES = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64, "vocab_size": 515}


def half() -> torch.dtype:
    return resolve_dtype("auto", CUDA)


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often the fast layer ran."""
    seen, inner = {"fast": 0}, decoder_layer.lora_mlp

    def counted(*arguments: Any) -> Any:
        seen["fast"] += 1
        return inner(*arguments)

    monkeypatch.setattr(decoder_layer, "lora_mlp", counted)
    return seen


def on_card(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value.to(CUDA) if isinstance(value, torch.Tensor) else value for name, value in batch.items()}


def relative_errors(found: dict[str, torch.Tensor], truth: dict[str, torch.Tensor]) -> torch.Tensor:
    errors = []
    for name, wanted in truth.items():
        assert wanted.norm() > 0, name
        errors.append((found[name].double().cpu() - wanted.double().cpu()).norm() / wanted.double().cpu().norm())
    return torch.stack(errors)


def test_the_trial_agrees() -> None:
    verdict = try_kernels()
    assert verdict.ok, verdict


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", ROWS)
def test_drawn_rows_are_as_exact_as_plain_torch(family: str, dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and half() != dtype:
        pytest.skip("no bfloat16 on this card")
    assert use_triton(torch.empty(0, dtype=dtype, device=CUDA))
    usual = dtype == half()
    for number in range(40 if usual else 10):
        check_rows(family, card_sizes(usual), 10_000 * DTYPES.index(dtype) + number, dtype, "cuda")


def variants(*kernels: Any) -> int:
    """Programs that Triton has compiled for this card."""
    return sum(len(kernel.device_caches[CUDA.index][0]) for kernel in kernels)


def step_of_rows(tokens: int) -> None:
    """Every kernel once, at one token count."""
    like = {"device": CUDA, "dtype": half()}
    x, w, angles = torch.randn(tokens, 512, **like), torch.ones(512, **like), torch.zeros(1, tokens, 64, **like)
    y, h, s = rms_norm.normalize(x, w, 1e-5, residual=x)
    rms_norm.normalize_backward(y, h, w, s, extra=x)
    y, h, m, s = layer_norm.standardize(x, w, w, 1e-5, x)
    layer_norm.standardize_backward(y, h, w, m, s, x)
    heads = x.unflatten(1, (8, 64))
    rms_norm.normalize(heads, w[:64], 1e-5, out=heads)
    rope.turn_(x, angles, angles, 6, 64)
    rope.turn_back(heads[:, :4], heads[:, 4:6], heads[:, 6:], angles, angles, torch.empty_like(x))
    swiglu.gate(x, "silu", h[:, :256])
    swiglu.gate_backward_(h[:, :256], x, "silu")
    labels = torch.zeros(tokens, dtype=torch.int64, device=CUDA)
    cross_entropy.cross_entropy_gradient_(x, labels)


def test_twenty_token_counts_compile_nothing_anew() -> None:
    norms = (rms_norm._forward, rms_norm._backward, layer_norm._forward, layer_norm._backward)
    rest = (swiglu._forward, swiglu._backward, rope._turn, rope._turn_back, cross_entropy._kernel)
    step_of_rows(37)
    before = variants(*norms, *rest)
    assert before >= 9
    for tokens in (1, 2, 3, 15, 16, 17, 32, 48, 63, 64, 100, 128, 255, 256, 257, 1000, 1024, 2048, 4000, 4096):
        step_of_rows(tokens)
    assert variants(*norms, *rest) == before


def test_offsets_beyond_31_bits_reach_the_last_row() -> None:
    tokens, vocabulary = 17_000, 128_256
    if torch.cuda.mem_get_info(CUDA)[0] < 6 * 2**30:
        pytest.skip("the logits alone want 4.4 GB")
    logits = torch.zeros(tokens, vocabulary, device=CUDA, dtype=half())
    logits[-1].copy_(torch.randn(vocabulary, device=CUDA))
    labels = torch.full((tokens,), reference.IGNORED, device=CUDA)
    labels[-1] = 7
    wanted = logits[-1:].clone()
    losses = reference.cross_entropy_gradient_(wanted, labels[-1:])
    torch.testing.assert_close(cross_entropy.cross_entropy_gradient_(logits, labels)[-1:], losses)
    torch.testing.assert_close(logits[-1:], wanted)


@pytest.mark.parametrize("family", [*FAMILIES, "gemma2", "gemma3_text", "phi3"])
def test_packed_equals_one_by_one_in_float32(family: str) -> None:
    model = adapt(build(family, **SIZES)).to(CUDA)
    loss_model, batch = LossModel(model), on_card(packed_batch(LENGTHS, 515))
    alone = torch.stack([loss_model(**row).sum() for row in rows_of(batch)]).sum()
    alone.backward()
    wanted = gradients(model)
    together = loss_model(**batch).sum()
    together.backward()
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=0)
    assert relative_errors(gradients(model), wanted).max() <= 1e-4


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_swapped_model_is_no_further_from_float64_than_plain_peft(
    family: str, dora: bool, count: dict[str, int]
) -> None:
    model = adapt(build(family, **SIZES), use_dora=dora)
    for parameter in model.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(half())
    batch = packed_batch(LENGTHS, 515)

    exact = LossModel(copy.deepcopy(model).double())
    exact(**batch).sum().backward()
    truth = gradients(exact.model)

    model = model.to(CUDA)
    model.train()
    loss_model, batch = LossModel(model), on_card(batch)
    plain_loss = loss_model(**batch).sum()
    plain_loss.backward()
    plain = relative_errors(gradients(model), truth)
    plan = surgery.plan(model)
    assert plan.lines() == ("2 of 2 layers fast",)
    surgery.apply(model, plan)
    fast_loss = loss_model(**batch).sum()
    fast_loss.backward()
    fast = relative_errors(gradients(model), truth)

    assert count["fast"] == 2
    torch.testing.assert_close(fast_loss, plain_loss, rtol=5e-3, atol=0)
    assert fast.mean() <= 1.5 * plain.mean(), (fast.mean(), plain.mean())
    assert fast.max() <= 2.0 * plain.max() + 1e-3, (fast.max(), plain.max())


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("family", FAMILIES)
def test_four_bits_recomputed_and_under_autocast(
    family: str, dora: bool, tmp_path: Path, count: dict[str, int]
) -> None:
    folder = save_tiny(tmp_path, family, **SIZES)
    model = adapt(load_base(folder, ModelChoice(quantization="nf4"), CUDA).model, use_dora=dora).to(CUDA)
    model.train()
    loss_model, batch = LossModel(model), on_card(packed_batch(LENGTHS, 515))
    loss_model(**batch).sum().backward()
    plain = gradients(model)
    surgery.apply(model, surgery.plan(model))
    loss_model(**batch).sum().backward()
    fast = gradients(model)
    assert count["fast"] == 2
    set_checkpointing(model, "recompute")
    with torch.autocast("cuda", dtype=half()):
        loss = loss_model(**batch).sum()
    loss.backward()
    again = gradients(model)
    assert count["fast"] == 6
    for name, wanted in plain.items():
        assert wanted.norm() > 0, name
        for found in (fast[name], again[name]):
            assert torch.cosine_similarity(found.flatten(), wanted.flatten(), dim=0) >= 0.999, name


def test_disabled_adapters_give_the_base_model_bit_for_bit(count: dict[str, int]) -> None:
    base = build("llama", **SIZES).to(device=CUDA, dtype=half()).eval()
    ids = torch.randint(3, 515, (1, 50), device=CUDA)
    with torch.no_grad():
        wanted = base(ids).logits
        model = adapt(base).to(CUDA).eval()
        applied = surgery.apply(model, surgery.plan(model))
        with model.disable_adapter():
            assert torch.equal(model(ids).logits, wanted)
        assert count["fast"] == 0
        model(ids)
        assert count["fast"] == 2
        options = {"max_new_tokens": 8, "do_sample": False, "use_cache": True}
        generated = model.generate(input_ids=ids[:, :9], **options)
        surgery.undo(applied)
        assert torch.equal(model.generate(input_ids=ids[:, :9], **options), generated)


def test_memory_of_the_head_stays_far_below_all_logits() -> None:
    tokens, width, vocabulary = 8192, 64, 128_256
    from core.kernels.linear_cross_entropy import linear_cross_entropy

    hidden = torch.randn(tokens, width, device=CUDA, dtype=half()).requires_grad_()
    weight = torch.randn(vocabulary, width, device=CUDA, dtype=half())
    labels = torch.randint(0, vocabulary, (tokens,), device=CUDA)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    linear_cross_entropy(hidden, weight, labels).sum().backward()
    assert torch.cuda.max_memory_allocated() - before < 0.2 * tokens * vocabulary * 2
