"""On a card: every attention backend that it has, forced, against float64; rows apart; no word to the host.

pytest -m gpu tests/gpu/test_attention_gpu.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parents[1] / "unit" / "model")]

from attention_cases import BY_NAME, CASES, Case, assert_dropout, assert_rows_apart, assert_rule, both  # noqa: E402

from core.model.attention import backends  # noqa: E402
from core.model.attention import flex as attention_flex  # noqa: E402
from core.model.attention.backends import BACKENDS, attend, situation  # noqa: E402
from core.model.attention.choice import AttentionKind, Bounds, choose  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA card")]
CUDA = torch.device("cuda", 0)
KIND = AttentionKind(128**-0.5)
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
AMPERE = torch.cuda.is_available() and torch.cuda.get_device_capability(CUDA) >= (8, 0)
DTYPES = [FP16, BF16] if AMPERE else [FP16]
CALM = replace(BY_NAME["equal rows"], name="equal rows of whole tiles", lengths=(512, 512, 512, 512))
NAMES = [name for name in ("cudnn", "flash", "efficient", "flex") if AMPERE or name in ("efficient", "flex")]


def takes(name: str, case: Case) -> bool:
    """Whether a backend computes this formula at all (forced, so not whether it would be chosen)."""
    if name == "flex":
        return case.softcap is not None
    if name == "cudnn":
        equal = case.bounds().equal and case.tokens > 1
        return case.softcap is None and equal and case.kind.within(max(case.lengths)).window is None and (
            case.head_dim <= 128
        )  # fmt: skip
    return case.softcap is None and (name != "efficient" or case.causal or case.window is None)


PAIRS = [(name, case) for name in NAMES for case in [*CASES, CALM] if takes(name, case)]


def force(name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Makes every call take this backend; the list says which ran."""
    ran: list[str] = []
    inner = backends.BACKENDS[name]  # type: ignore[index]

    def counted(*arguments: object) -> torch.Tensor:
        ran.append(name)
        return inner(*arguments)

    monkeypatch.setattr(backends, "choose", lambda _: name)
    monkeypatch.setitem(backends.BACKENDS, name, counted)
    return ran


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "case"), PAIRS, ids=lambda part: getattr(part, "name", part))
def test_a_backend_is_as_exact_as_eager(
    name: str, case: Case, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = force(name, monkeypatch)
    assert_rule(case, dtype, CUDA)
    assert ran
    assert not attention_flex.failed()


@pytest.mark.parametrize("case", [case for case in CASES if takes("efficient", case)], ids=lambda case: case.name)
def test_single_precision_is_as_exact_as_torch_row_by_row(case: Case) -> None:
    """transformers repeats keys and values for torch's own attention, which in float32 is this kernel row by row."""
    assert choose(situation(CUDA, FP32, case.head_dim, case.kind, case.bounds())) == "efficient"

    def usual(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> torch.Tensor:
        groups = q.shape[1] // k.shape[1]
        return BACKENDS["rows"](q.contiguous(), k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1), *rest)

    assert_rule(case, FP32, CUDA, usual=usual)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "cudnn"])
def test_rows_do_not_see_each_other(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit; deterministic, since FlashAttention adds up the query's gradient in whatever order it comes."""
    force(name, monkeypatch)
    with deterministic():
        assert_rows_apart(BY_NAME["cap and window" if name == "flex" else "window"], DTYPES[-1], CUDA)
        assert_rows_apart(BY_NAME["cap" if name == "flex" else "rows"], DTYPES[-1], CUDA)


@pytest.mark.parametrize("name", [name for name in NAMES if name in ("flash", "efficient")])
@pytest.mark.parametrize("case", ["rows", "both ways"])
def test_dropout_drops_the_same_weights_on_the_way_back(name: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    force(name, monkeypatch)
    assert_dropout(BY_NAME[case], DTYPES[-1], CUDA, rel=1e-2)


@pytest.mark.skipif(not AMPERE, reason="cuDNN attention wants sm_80")
def test_equal_rows_do_not_see_each_other_in_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs bit for bit; its backward is deterministic nowhere, so gradients stay within their own rounding."""
    force("cudnn", monkeypatch)
    buffer = CALM.draw(BF16).to(CUDA)
    other = buffer.clone()
    other[512:1024] = CALM.draw(BF16, seed=9)[512:1024].to(CUDA)
    before, after = both(attend, CALM, buffer), both(attend, CALM, other)
    keep = torch.ones(CALM.tokens, dtype=torch.bool)
    keep[512:1024] = False
    assert torch.equal(before[0].cpu()[keep], after[0].cpu()[keep])
    first, second = (pair[1].double().cpu()[keep] for pair in (before, after))
    assert (first - second).norm() <= 2.0**-9 * first.norm()


@pytest.mark.skipif(not AMPERE, reason="cuDNN attention wants sm_80")
def test_a_long_row_of_any_length_is_by_cudnn_what_it_is_by_flash_attention() -> None:
    """12,289 tokens, no multiple of 128. Each rounds its weights to bfloat16 (2^-9) before they are summed."""
    tokens, heads, keys = 12_289, 8, 2
    draw = torch.Generator(CUDA).manual_seed(0)
    rows, seed = (
        torch.randn(tokens, count, 128, device=CUDA, dtype=BF16, generator=draw) for count in (heads + 2 * keys, heads)
    )
    bounds, found = Bounds.of({}, tokens, 1, CUDA), {}
    assert choose(replace(situation(CUDA, BF16, 128, KIND, bounds), capability=(9, 0))) == "cudnn"
    for name in ("cudnn", "flash"):
        leaf = rows.clone().requires_grad_()
        result = BACKENDS[name](*leaf.split([heads, keys, keys], 1), bounds, KIND)
        found[name] = [result.detach().double(), torch.autograd.grad(result, leaf, seed)[0].double()]
    for one, other in zip(*found.values(), strict=True):
        assert (one - other).norm() <= 2.0**-7 * other.norm()


@pytest.mark.parametrize(("name", "case"), [(n, c) for n, c in PAIRS if c.name in (
    "rows", "window", "cap", "cap and window", "equal rows of whole tiles")],
    ids=lambda part: getattr(part, "name", part))  # fmt: skip
def test_the_host_is_not_asked(name: str, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = force(name, monkeypatch)
    dtype = DTYPES[-1]
    leaf = case.draw(dtype).to(CUDA).requires_grad_()
    seed, bounds = case.seed(dtype).to(CUDA), [case.bounds(CUDA), case.bounds(CUDA)]
    for n, given in enumerate(bounds):  # the first pass may compile, plan and load
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error" if n else "default")
        try:
            attend(*case.views(leaf), given, case.kind).backward(seed)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert leaf.grad is not None
    assert leaf.grad.abs().max() > 0
    assert len(ran) == 2


@pytest.mark.parametrize("head_dim", [64, 256])
def test_no_length_compiles_flex_attention_anew(head_dim: int) -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    attention_flex._works.cache_clear()
    attention_flex._compiled.cache_clear()
    graphs = []
    counters.clear()
    lengths = [(37, 300, 1, 90), (5,), (128, 128), (400, 500), (1, 1), (256,), (1000, 24), (641,), (129,), (33, 77)]
    for rows in lengths:
        for window in (None, 50):
            case = Case(str(rows), rows, heads=4, groups=2, head_dim=head_dim, softcap=3.0, window=window)
            assert_rule(case, DTYPES[-1], CUDA)
        graphs.append(counters["stats"]["unique_graphs"])
    assert not attention_flex.failed()
    assert graphs[-1] == graphs[0] == 1, graphs


def test_what_this_card_runs() -> None:
    """Nothing that trains goes row by row on a card, but float64, and a window both ways without FlashAttention."""
    for dtype in (*DTYPES, FP32):
        for case in CASES:
            kind = case.kind.within(max(case.lengths))
            if kind.causal or kind.window is None or (AMPERE and dtype != FP32):
                assert choose(situation(CUDA, dtype, case.head_dim, kind, case.bounds())) != "rows", case.name
