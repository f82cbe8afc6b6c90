"""Memory-efficient attention through xformers, by a stand-in on the CPU: exactness, its room, when it is taken.

The heads' repetition and their division among calls are the same with torch's operators, which no CPU has.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import replace

import pytest
import torch
from attention_cases import BY_NAME, CASES, Case, both, parts, textbook
from xformers_stand_in import Fmha, modules

from core.model.attention import backends, xformers
from core.model.attention.backends import attend
from core.model.attention.choice import AttentionKind, Bounds
from core.model.attention.efficient import heads_at_once

CPU = torch.device("cpu")
TAKEN = [case for case in CASES if case.softcap is None and (case.causal or case.window is None)]
UNEVEN = Case("one long row", (300, *[20] * 30), heads=12, groups=4, head_dim=16)
REPEATED = ("one row", "equal odd rows", "no groups", "bordered buffer", "window past all rows",
            "window of equal rows", "wide heads", "both ways in equal rows")  # fmt: skip
"""What differs from another case in numbers alone."""
TRIED = [
    *(pytest.param(case, marks=pytest.mark.slow if case.name in REPEATED else ()) for case in TAKEN),
    UNEVEN,
    *(pytest.param(replace(UNEVEN, groups=groups), marks=pytest.mark.slow) for groups in (1, 12)),
]


@pytest.fixture
def fmha(monkeypatch: pytest.MonkeyPatch) -> Fmha:
    there = Fmha()
    for name, module in modules(there).items():
        monkeypatch.setitem(sys.modules, name, module)
    return there


@pytest.mark.parametrize("case", TRIED, ids=str)
def test_xformers_computes_what_the_textbook_says(case: Case, fmha: Fmha, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "choose", lambda _: "xformers")
    buffer = case.draw(torch.float64)
    wanted = parts(case, both(textbook, case, buffer))
    for name, ours, exact in zip("oqkv", parts(case, both(attend, case, buffer)), wanted, strict=True):
        if name in "qk" and case.alone:
            assert ours.norm() <= 1e-12 * wanted[3].norm()
            continue
        assert exact.norm() > 0
        assert (ours - exact).norm() <= 1e-12 * exact.norm(), name
    assert fmha.calls


def test_no_call_takes_more_room_than_equal_rows_would(fmha: Fmha, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backward kernel takes rows · longest · heads; in 64 queries a block."""
    monkeypatch.setattr(backends, "choose", lambda _: "xformers")
    for case, calls in (
        (UNEVEN, 12),
        (replace(UNEVEN, groups=12), 12),
        (BY_NAME["rows"], 4),
        (BY_NAME["equal rows"], 1),
    ):
        fmha.calls.clear()
        both(attend, case, case.draw(torch.float64))
        assert sum(heads for *_, heads in fmha.calls) == case.heads
        assert len(fmha.calls) == calls, case.name
        blocks = -(-case.tokens // 64)
        assert all(rows * -(-longest // 64) * heads <= blocks * case.heads for rows, longest, heads in fmha.calls)


def test_dropout_goes_in_one_call() -> None:
    """Its random numbers are counted by the head of a call."""
    bounds, kind = UNEVEN.bounds(), AttentionKind(1.0)
    assert heads_at_once(12, bounds, kind) == 1
    assert heads_at_once(12, bounds, replace(kind, dropout=0.1)) == 12
    assert heads_at_once(12, Bounds(bounds.cu, 4096, 70, 70 * 4096), kind) == 12


def test_the_host_is_asked_for_lengths_once_a_micro_batch(fmha: Fmha, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "choose", lambda _: "xformers")
    bounds, asked = BY_NAME["rows"].bounds(), []
    monkeypatch.setattr(fmha.attn_bias.BlockDiagonalMask, "from_seqlens", _counted(asked))
    q, k, v = (part.detach().requires_grad_() for part in BY_NAME["rows"].views(BY_NAME["rows"].draw(torch.float64)))
    for window in (None, None, 7):
        attend(q, k, v, replace(bounds), AttentionKind(0.1, window)).sum().backward()
    assert len(asked) == 1


def _counted(asked: list[list[int]]) -> staticmethod:  # type: ignore[type-arg]
    made = sys.modules["xformers.ops.fmha"].attn_bias.BlockDiagonalMask.from_seqlens

    def from_seqlens(lengths: list[int], *, device: torch.device) -> object:
        asked.append(lengths)
        return made(lengths, device=device)

    return staticmethod(from_seqlens)


@pytest.mark.parametrize(
    ("version", "unmet", "breaks", "line"),
    [
        ("", "", False, ""),
        ("0.0.35", "", False, ""),
        ("0.0.34", "==2.10.0", False, "made for torch ==2.10.0"),
        ("0.0.35", "", True, "does not work here"),
    ],
)
def test_it_is_taken_where_it_is_installed_fits_and_works(
    version: str, unmet: str, breaks: bool, line: str, fmha: Fmha, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(logging.getLogger(xformers.__name__), "handle", lambda one: said.append(one.getMessage()))
    monkeypatch.setattr(xformers, "version_of", lambda _: version)
    monkeypatch.setattr(xformers, "unmet_by", lambda *_: unmet)
    if breaks:
        monkeypatch.setattr(fmha, "memory_efficient_attention_backward", None)
    xformers.usable.cache_clear()
    assert xformers.usable(CPU) == (bool(version) and not line)
    xformers.usable(CPU)
    assert len(said) == bool(line)
    assert line in "".join(said)
    xformers.usable.cache_clear()


def test_it_is_asked_for_on_cards_without_flash_attention_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[torch.device] = []
    monkeypatch.setattr(xformers, "usable", lambda device: asked.append(device) or True)
    kind, card = AttentionKind(1.0), torch.device("cuda", 0)
    for capability, taken in (((7, 5), True), ((8, 0), False), ((9, 0), False)):
        monkeypatch.setattr(backends, "_card", lambda _, capability=capability: (capability, 91_900))
        assert backends.situation(card, torch.float16, 64, kind).xformers == taken
        assert len(asked) == 1
    assert not backends.situation(CPU, torch.float32, 64, kind).xformers
    assert len(asked) == 1
