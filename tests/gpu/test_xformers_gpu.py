"""On a card: what packed attention runs on below sm_80, forced on any card: torch's memory-efficient operators and
xformers, each for exactness, for the room of its backward pass, and in whole training steps against the forecast.

pytest -m gpu tests/gpu/test_xformers_gpu.py      xformers' half is left out where it is not installed
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parents[1] / "unit" / "model"), str(Path(__file__).parent)]

from attention_cases import BY_NAME, CASES, Case, assert_rows_apart, assert_rule, both  # noqa: E402
from measure_memory import free, measured, reckoned  # noqa: E402
from memory_cases import Case as Training  # noqa: E402

from core.machine.hardware import read_machine  # noqa: E402
from core.machine.imports import unmet_by, version_of  # noqa: E402
from core.model.attention import backends, efficient, xformers  # noqa: E402
from core.model.attention.backends import BACKENDS, attend  # noqa: E402
from core.model.attention.choice import choose  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA card")]
CUDA = torch.device("cuda", 0)
FP16, FP32 = torch.float16, torch.float32
TURING = ((7, 5), 0)
NAMES = [
    pytest.param("efficient"),
    pytest.param("xformers", marks=pytest.mark.skipif(not version_of("xformers"), reason="no xformers here")),
]
each_backend = pytest.mark.parametrize("name", NAMES)
TAKEN = [case for case in CASES if case.softcap is None and (case.causal or case.window is None)]
UNEVEN = Case("one long row", (2048, *[120] * 60), heads=16, groups=4, head_dim=128)
ROUNDING = 2**20
"""What the allocator may add to a tensor."""


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    yield
    xformers.usable.cache_clear()
    gc.collect()
    torch.cuda.empty_cache()


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def force(name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Makes every call take this backend; the list says which ran."""
    ran: list[str] = []
    inner = BACKENDS[name]  # type: ignore[index]

    def counted(*given: Any) -> torch.Tensor:
        ran.append(name)
        return inner(*given)

    monkeypatch.setattr(backends, "choose", lambda _: name)
    monkeypatch.setitem(backends.BACKENDS, name, counted)
    return ran


def on_turing(monkeypatch: pytest.MonkeyPatch, with_xformers: bool) -> None:
    """Attention is chosen as on a card of compute capability 7.5."""
    monkeypatch.setattr(backends, "_card", lambda _: TURING)
    if not with_xformers:
        monkeypatch.setattr(xformers, "usable", lambda _: False)


@pytest.mark.skipif(not version_of("xformers"), reason="no xformers here")
def test_an_installed_xformers_that_fits_works() -> None:
    assert xformers.usable(CUDA) == (not unmet_by("xformers", "torch"))


@each_backend
@pytest.mark.parametrize("case", [*TAKEN, UNEVEN], ids=lambda case: case.name)
def test_it_is_as_exact_as_eager(name: str, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = force(name, monkeypatch)
    assert_rule(case, FP16, CUDA)
    assert ran


@each_backend
@pytest.mark.parametrize("case", [*TAKEN, UNEVEN], ids=lambda case: case.name)
def test_single_precision_is_as_exact_as_torch_row_by_row(
    name: str, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def usual(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> torch.Tensor:
        groups = q.shape[1] // k.shape[1]
        return BACKENDS["rows"](q.contiguous(), k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1), *rest)

    ran = force(name, monkeypatch)
    assert_rule(case, FP32, CUDA, usual=usual)
    assert ran


@each_backend
def test_rows_do_not_see_each_other(name: str, deterministic: None, monkeypatch: pytest.MonkeyPatch) -> None:
    force(name, monkeypatch)
    assert_rows_apart(BY_NAME["window"], FP16, CUDA)
    assert_rows_apart(BY_NAME["rows"], FP16, CUDA)


@pytest.mark.skipif(not version_of("xformers"), reason="no xformers here")
@pytest.mark.parametrize("case", [BY_NAME["rows"], BY_NAME["window"], BY_NAME["both ways"]], ids=lambda c: c.name)
def test_xformers_gives_the_bits_of_torch(case: Case, deterministic: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its kernels the one for such cards is torch's own."""
    buffer, found = case.draw(FP16).to(CUDA), []
    for name in ("xformers", "efficient"):
        with monkeypatch.context() as inner:
            force(name, inner)
            found.append(both(attend, case, buffer))
    for first, second in zip(*found, strict=True):
        assert torch.equal(first, second)


def backward_bytes(case: Case) -> int:
    """The most that a backward pass allocates on top of what was there before it."""
    leaf = case.draw(FP16).to(CUDA).requires_grad_()
    output, seed = attend(*case.views(leaf), case.bounds(CUDA), case.kind), case.seed(FP16).to(CUDA)
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    there = torch.cuda.memory_allocated()
    torch.autograd.grad(output, leaf, seed)
    return torch.cuda.max_memory_allocated() - there


@each_backend
def test_one_long_row_among_short_ones_takes_no_more_room(
    name: str, deterministic: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's float32 sums would be 13 times those of equal rows; the heads in turn give the same bits."""
    force(name, monkeypatch)
    buffer = UNEVEN.draw(FP16).to(CUDA)
    backward_bytes(UNEVEN)  # loads what it loads once
    ours, parted = backward_bytes(UNEVEN), both(attend, UNEVEN, buffer)
    monkeypatch.setattr(efficient, "heads_at_once", lambda heads, *_: heads)
    whole, at_once = backward_bytes(UNEVEN), both(attend, UNEVEN, buffer)
    queries, keys = UNEVEN.heads * UNEVEN.head_dim, UNEVEN.groups * UNEVEN.head_dim
    # Gradients of q, k, v and of k, v for every head, those two again, what autograd adds up, and the sums.
    values = 3 * (queries + 2 * keys) + 4 * queries
    assert ours <= UNEVEN.tokens * (2 * values + 4 * queries) + ROUNDING, (ours, whole)
    assert whole >= ours + 8 * 4 * queries * UNEVEN.tokens, "what the division is for"
    for first, second in zip(parted, at_once, strict=True):
        assert torch.equal(first, second)


@each_backend
def test_what_is_kept_for_the_backward_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result and its sums: keys and values stay those of the groups."""
    force(name, monkeypatch)
    case = replace(UNEVEN, lengths=(1024, 1024, 1024, 1024))
    leaf = case.draw(FP16).to(CUDA).requires_grad_()
    q, k, v = case.views(leaf)
    bounds = case.bounds(CUDA)
    attend(q, k, v, bounds, case.kind)  # what is kept once
    gc.collect()
    there = torch.cuda.memory_allocated()
    output = attend(q, k, v, bounds, case.kind)
    gc.collect()
    kept = torch.cuda.memory_allocated() - there
    assert output.requires_grad
    assert kept <= case.tokens * (2 * case.heads * case.head_dim + 4 * case.heads) + ROUNDING


STEPS = (
    Training("qwen3-0.6b", 2048, batch=4, policy="none", more=(("model.dtype", "float16"),)),
    Training("llama-3.2-1b", 2048, batch=4, policy="recompute", more=(("model.dtype", "float16"),)),
    Training("qwen2.5-0.5b", 2048, batch=16, rows="short", policy="none", more=(("model.dtype", "float16"),)),
)


@pytest.mark.parametrize(
    ("name", "case"),
    [*(("efficient", case) for case in STEPS), pytest.param("xformers", STEPS[0], marks=NAMES[1].marks)],
    ids=str,
)
def test_steps_take_what_was_reckoned(name: str, case: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole steps as on such a card: float16, its attention. At most 8 % off, as every forecast."""
    ran: list[str] = []
    on_turing(monkeypatch, name == "xformers")
    for each in ("efficient", "xformers", "flash", "cudnn", "rows"):
        inner = BACKENDS[each]  # type: ignore[index]
        monkeypatch.setitem(
            backends.BACKENDS, each, lambda *given, each=each, inner=inner: (ran.append(each), inner(*given))[1]
        )
    row = measured(case, reckoned(case, read_machine()), CUDA)
    free(CUDA)
    assert row["status"] == "measured", row["error"]
    assert set(ran) == {name}
    assert choose(backends.situation(CUDA, FP16, 128, BY_NAME["rows"].kind)) == name
    peak, reckon = row["measured"]["peak_allocated_bytes"], row["estimate"]["allocated_bytes"]
    print(f"{name} {case.name}: reckoned {reckon / 2**30:.3f} GiB, measured {peak / 2**30:.3f}")
    assert abs(reckon - peak) <= 0.08 * peak, (reckon, peak)
