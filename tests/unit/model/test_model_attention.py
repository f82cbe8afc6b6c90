"""Packed attention on the CPU: bounds, the choice of a backend, and rows that are packed, padded and alone."""

from __future__ import annotations

import logging
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from attention_cases import BY_NAME, CASES, Case, assert_dropout, assert_rows_apart, assert_rule, both, parts, textbook
from transformers import AutoConfig

from core.model.attention import backends
from core.model.attention import flex as attention_flex
from core.model.attention import packed as attention
from core.model.attention.backends import attend
from core.model.attention.choice import AttentionKind, Bounds, Situation, backend_line, choose

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
T4, A100, RTX3090, RTX4090, H200, RTX5090 = (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (12, 0)


def on(capability: tuple[int, int], dtype: torch.dtype = BF16, head_dim: int = 128, **changes: Any) -> Situation:
    return Situation("cuda", capability, dtype, head_dim, **{"cudnn": 91_900, **changes})


REPEATED = ("equal odd rows", "no groups", "window of equal rows", "wide heads", "both ways in equal rows")
"""What differs from another case in numbers alone."""
EXACT = [
    pytest.param(
        case, torch.float64, id=f"{case.name}, 64", marks=pytest.mark.slow if case.name in REPEATED else ()
    )
    for case in CASES
]  # fmt: skip
IN_SINGLE = ("rows", "window", "cap and window", "one prompt's answers", "both ways in a window", "odd heads")
SINGLE = [
    pytest.param(case, FP32, id=f"{case.name}, 32", marks=() if case.name in IN_SINGLE else pytest.mark.slow)
    for case in CASES
]
"""The same arithmetic in fewer digits: one of each kind by default."""
EQUAL = {"equal": True, "longest": 2048}
MACHINES = [
    (Situation("cpu", (0, 0), FP32, 64), "rows"),
    (Situation("cpu", (0, 0), BF16, 64, softcap=50.0), "rows"),
    (on(T4, FP16), "efficient"),
    (on(T4, FP16, **EQUAL), "efficient"),
    (on(T4, FP16, window=4096), "efficient"),
    (on(T4, FP16, xformers=True, window=4096), "xformers"),
    (on(T4, FP32, xformers=True), "xformers"),
    (on(T4, FP16, xformers=True, causal=False), "xformers"),
    (on(T4, FP16, xformers=True, causal=False, window=65), "rows"),
    (on(T4, FP16, xformers=True, dropout=True), "efficient"),
    (on(T4, BF16, xformers=True), "rows"),
    (on(T4, FP16, 256, xformers=True, softcap=50.0), "flex"),
    (on(A100, FP32, xformers=True), "efficient"),
    (on(T4, FP16, 256, softcap=50.0), "flex"),
    (on(T4, BF16), "rows"),
    (on(T4, FP32), "efficient"),
    (on(A100), "flash"),
    (on(A100, **EQUAL), "flash"),
    (on(A100, FP32), "efficient"),
    (on(A100, torch.float64), "rows"),
    (on(RTX3090, FP16, 256), "flash"),
    (on(RTX3090, FP16, 200), "efficient"),
    (on(A100, FP16, 200), "flash"),
    (on(RTX4090, window=1024), "flash"),
    (on(RTX4090, BF16, 512), "efficient"),
    (on(RTX4090, BF16, 256, softcap=50.0), "flex"),
    (on(RTX4090, BF16, 256, softcap=50.0, flex=False), "rows"),
    (on(H200), "flash"),
    (on(H200, **EQUAL), "cudnn"),
    (on(H200, equal=True, longest=2047), "flash"),
    (on(H200, equal=True, longest=128), "flash"),
    (on(H200, equal=True, longest=60_000), "cudnn"),
    (on(H200, longest=60_000), "flash"),
    (on(H200, window=1024, **EQUAL), "flash"),
    (on(H200, BF16, 256, **EQUAL), "flash"),
    (on(H200, deterministic=True, **EQUAL), "flash"),
    (on(H200, cudnn=91_002) , "flash"),
    (on(H200, **{**EQUAL, "cudnn": 91_002}), "flash"),
    (on(H200, BF16, 256, softcap=50.0, **EQUAL), "flex"),
    (on(RTX5090, **EQUAL), "flash"),
    (on(RTX3090, causal=False), "flash"),
    (on(RTX3090, causal=False, window=65), "flash"),
    (on(RTX3090, FP32, causal=False), "efficient"),
    (on(RTX3090, FP32, causal=False, window=65), "rows"),
    (on(T4, FP16, causal=False), "efficient"),
    (on(H200, causal=False, **EQUAL), "cudnn"),
    (on(H200, causal=False, dropout=True, **EQUAL), "flash"),
    (on(RTX3090, softcap=50.0, dropout=True), "rows"),
]  # fmt: skip


@pytest.mark.parametrize(("machine", "wanted"), MACHINES, ids=lambda part: part if isinstance(part, str) else "")
def test_the_choice_of_a_backend(machine: Situation, wanted: str) -> None:
    assert choose(machine) == wanted


def test_bounds_from_what_transformers_passes() -> None:
    cu = torch.tensor([0, 4, 6, 9])
    bounds = Bounds.of({"cu_seq_lens_q": cu, "max_length_q": 4}, tokens=9)
    assert (bounds.longest, bounds.rows, bounds.tokens, bounds.equal) == (4, 3, 9, False)
    assert bounds.cu.dtype == torch.int32
    assert bounds.cu.tolist() == [0, 4, 6, 9]
    assert not Bounds.of({"cu_seq_lens_q": cu}, tokens=9).equal  # the longest is not known: never taken for equal
    assert Bounds.of({"cu_seq_lens_q": torch.tensor([0, 9])}, tokens=9).equal
    equal = Bounds.of({}, tokens=12, batch=3, device="cpu")
    assert (equal.cu.tolist(), equal.cu.dtype) == ([0, 4, 8, 12], torch.int32)
    assert (equal.longest, equal.rows, equal.equal) == (4, 3, True)
    assert Bounds.of({}, tokens=12, batch=3, device="cpu") is equal


def test_a_window_that_no_row_reaches_is_none() -> None:
    kind = AttentionKind(0.5, 8, 2.0)
    assert kind.within(8) == AttentionKind(0.5, None, 2.0)
    assert kind.within(9) is kind


@pytest.mark.parametrize(("case", "dtype"), [*EXACT, *SINGLE])
def test_packed_is_one_by_one(case: Case, dtype: torch.dtype) -> None:
    """By norm: torch's own exponential on the CPU is what keeps float32 from the textbook's last digits."""
    buffer = case.draw(dtype)
    wanted = parts(case, both(textbook, case, buffer.double()))
    bound = 1e-5 if dtype == FP32 else 1e-12
    for name, ours, exact in zip("oqkv", parts(case, both(attend, case, buffer)), wanted, strict=True):
        if name in "qk" and case.alone:
            assert ours.norm() <= bound * wanted[3].norm()
            continue
        assert exact.norm() > 0
        assert (ours.double() - exact).norm() <= bound * exact.norm(), name


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=pytest.mark.slow if case.name.startswith("wide") else ())
        for case in CASES
        if case.softcap
    ],
)
def test_capped_rows_are_as_exact_as_the_textbook(case: Case) -> None:
    assert_rule(case, FP32, "cpu")


@pytest.mark.parametrize("name", ["rows", "window", "cap", "cap and window", "both ways", "both ways in a window"])
def test_rows_do_not_see_each_other(name: str) -> None:
    assert_rows_apart(BY_NAME[name], FP32, "cpu")


@pytest.mark.parametrize("name", ["rows", "window", "cap and window"])
def test_packed_is_padded(name: str) -> None:
    """transformers' way for a padded batch: a mask, no bounds."""
    case = BY_NAME[name]
    q, k, v = case.views(case.draw(torch.float64))
    edges = case.bounds().cu.tolist()
    longest = max(case.lengths)
    batch = [torch.zeros(len(case.lengths), part.shape[1], longest, case.head_dim).double() for part in (q, k, v)]
    for row, (start, end) in enumerate(pairwise(edges)):
        for padded, part in zip(batch, (q, k, v), strict=True):
            padded[row, :, : end - start] = part[start:end].transpose(0, 1)
    distance = torch.arange(longest)[:, None] - torch.arange(longest)[None, :]
    mask = ((distance >= 0) & (distance < (case.window or longest)))[None, None].expand(len(edges) - 1, 1, -1, -1)
    module: Any = SimpleNamespace(num_key_value_groups=case.heads // case.groups, is_causal=True)
    output, _ = attention.packed_attention(module, *batch, mask, scaling=case.kind.scale, softcap=case.softcap)
    wanted = attend(q, k, v, case.bounds(), case.kind)
    for row, (start, end) in enumerate(pairwise(edges)):
        torch.testing.assert_close(output[row, : end - start], wanted[start:end], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dropout", [0.0, 1e-12], ids=["packed", "row by row"])
@pytest.mark.parametrize("name", ["rows", "window", "cap and window", "both ways", "both ways in a window"])
def test_the_convention_of_transformers(name: str, dropout: float) -> None:
    case = BY_NAME[name]
    buffer = case.draw(torch.float64)
    q, k, v = (part.transpose(0, 1)[None] for part in case.views(buffer))
    module: Any = SimpleNamespace(num_key_value_groups=case.heads // case.groups, is_causal=case.causal)
    options = {"cu_seq_lens_q": case.bounds().cu, "max_length_q": max(case.lengths), "sliding_window": case.window}
    output, weights = attention.packed_attention(
        module, q, k, v, None, dropout=dropout, scaling=case.kind.scale, softcap=case.softcap, **options
    )
    assert weights is None
    torch.testing.assert_close(output[0], textbook(case, buffer), rtol=1e-7, atol=1e-7)


def test_dropout_drops_the_same_weights_on_the_way_back() -> None:
    """By linearity: for one drawn mask the output is linear in v, and so is v's gradient in the output's."""
    for causal in (True, False):
        assert_dropout(Case("few", (37, 1, 20), groups=8, causal=causal), FP32, "cpu", rel=1e-4)


def test_views_that_kernels_can_load_are_not_copied() -> None:
    for name, copied in (("rows", False), ("bordered buffer", False), ("buffer of odd width", True)):
        case = BY_NAME[name]
        for part in case.views(case.draw(BF16)):
            ready = backends._aligned(part)
            assert (ready.data_ptr() != part.data_ptr()) == copied, name
            assert torch.equal(ready, part)


@pytest.mark.parametrize("window", [None, 1, 50, 200], ids=str)
def test_the_mask_of_blocks_is_the_mask_itself(window: int | None) -> None:
    from torch.nn.attention.flex_attention import create_block_mask

    case = BY_NAME["rows"]
    tokens = attention_flex.padded(case.tokens)
    first = attention_flex.first_seen(case.bounds(), window, tokens)
    wanted = create_block_mask(
        lambda b, h, i, j: (j <= i) & (j >= first[i]), None, None, tokens, tokens, device="cpu", BLOCK_SIZE=128
    )
    mask = attention_flex.block_mask(first)
    assert torch.equal(mask.to_dense() > 0, wanted.to_dense() > 0)
    assert mask.seq_lengths == (tokens, tokens)
    position = torch.arange(case.tokens)
    starts = case.bounds().cu[:-1].repeat_interleave(torch.tensor(case.lengths))
    assert torch.equal(first[: case.tokens], starts if window is None else starts.maximum(position - window + 1))


def test_no_length_traces_flex_attention_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward only: torch has no FlexAttention gradient on the CPU. Windows or none, the graph is one."""
    from torch._dynamo.testing import CompileCounter
    from torch.nn.attention.flex_attention import flex_attention

    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)  # set for all other tests
    torch._dynamo.reset()
    attention_flex._works.cache_clear()
    counter = CompileCounter()
    compiled = torch.compile(flex_attention, dynamic=True, fullgraph=True, backend=counter)
    monkeypatch.setattr(attention_flex, "_compiled", lambda: compiled)
    rows = [(37, 300, 1, 90), (5,), (128, 128), (1, 1, 1), (256,), (641,), (129,)]
    # Where a worker's variables were read at its import; undone by deletion a setting of torch would be gone.
    with torch.no_grad(), torch._dynamo.config.patch(disable=False):
        for lengths in rows:
            for window in (None, 50):
                case = Case(str(lengths), lengths, heads=4, head_dim=16, softcap=2.0, window=window)
                buffer = case.draw(FP32)
                output = attention_flex.attend(*case.views(buffer), case.bounds(), case.kind)
                assert output is not None
                torch.testing.assert_close(output, textbook(case, buffer), rtol=1e-4, atol=1e-5)
    assert counter.frame_count == 1


def test_a_compilation_that_fails_is_said_once_and_rows_go_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []

    def broken() -> Any:
        raise RuntimeError("no C compiler")

    monkeypatch.setattr(logging.getLogger(attention_flex.__name__), "handle", lambda one: said.append(one.getMessage()))
    monkeypatch.setattr(attention_flex, "_compiled", broken)
    monkeypatch.setattr(attention_flex, "_state", {"failed": False})
    monkeypatch.setattr(backends, "choose", lambda _: "flex")
    attention_flex._works.cache_clear()
    try:
        assert_rule(BY_NAME["cap and window"], FP32, "cpu")
        assert_rule(BY_NAME["wide heads, cap and window"], FP32, "cpu")
        assert attention_flex.failed()
        assert len(said) == 1
        assert "one by one" in said[0]
    finally:
        attention_flex._works.cache_clear()


def test_what_runs_is_said() -> None:
    either = "packed, FlashAttention inside torch, or cuDNN's where all rows of a pass are equally long"
    assert backend_line(on(H200)) == either
    assert backend_line(on(H200, **EQUAL)) == "packed, cuDNN inside torch"
    assert "cuDNN" not in backend_line(on(RTX4090))
    cpu = torch.device("cpu")
    llama, gemma = AutoConfig.for_model("llama"), AutoConfig.for_model("gemma2")
    for config in (llama, gemma):
        assert attention.attention_line(cpu, FP32, config) == "attention: row by row through torch"
    assert attention.attention_line(cpu, FP32, object()) == "attention: the model's own, rows kept apart by a mask"
    assert attention.attention_line(cpu, FP32, llama, packed=False) == "attention: padded, torch's own under a mask"
