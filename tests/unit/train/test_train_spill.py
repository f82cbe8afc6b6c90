"""The cut that gets smaller, the cap on WSL, and the judge of a card whose memory has spilled."""

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.estimate.terms import CONTEXT_BYTES
from core.model.faults import is_card_fault, is_host_full, is_out_of_memory
from core.train.safety import memory, oom_recovery
from core.train.safety.memory import SpillWatch, Taken, cap_allocator, halved, pass_tokens
from core.train.step.trainer import split_batch

GIB = 1024**3
CARD = torch.device("cuda", 0)
LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=24)


class Lengths:
    """Rows of which only the lengths are known."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def length(self, row: int, packed: bool = True) -> int:
        return self.lengths[row]


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(1, 5000), st.booleans(), st.integers(1, 400))
def test_halved_again_and_again_passes_cover_the_window_exactly_and_end(
    lengths: list[int], tokens: int, packed: bool, least: int
) -> None:
    rows: Any = Lengths(lengths)
    batch = list(range(len(lengths)))
    for _ in range(len(lengths) * 12):
        micro_batches = split_batch(rows, batch, tokens, packed)
        assert sorted(row for chosen in micro_batches for row in chosen) == batch, "every row once"
        sizes = [[lengths[row] for row in chosen] for chosen in micro_batches]
        assert all(len(each) == 1 or pass_tokens(each, packed) <= tokens for each in sizes)
        failed = max(sizes, key=lambda each: pass_tokens(each, packed))
        new = halved(failed, packed, least) or halved(failed, packed)
        if new is None:
            assert len(failed) == 1
            return
        assert max(failed) <= new < pass_tokens(failed, packed)
        tokens = new
    raise AssertionError("it never ended")


def test_the_longest_row_of_the_data_is_the_least_while_something_else_can_be_tried() -> None:
    assert halved([100, 60, 40], packed=True) == 100
    assert halved([60, 50, 50, 40], packed=True) == 100
    assert halved([60, 50, 50, 40], packed=True, least=150) == 150
    assert halved([60, 50], packed=True, least=150) is None
    assert halved([500], packed=True) is None
    assert halved([60, 50, 10], packed=False) == 90


USUAL = [Taken(4000, 1.0, 2 * GIB)] * 20
SPILLS: dict[str, list[Taken]] = {
    "within five steps": [*USUAL, *[Taken(4000, 3.4, 0)] * 5],
    "comes and goes": [*USUAL, *(Taken(4000, seconds, 0) for seconds in (4.0, 1.0, 4.0, 1.0, 4.0))],
    "from the first step on, torch holds more than there is": [
        Taken(4000, 9.0, 0, held_bytes=13 * GIB, total_bytes=12 * GIB)
    ]
    * 5,
}


@pytest.mark.parametrize(("story", "times"), zip(SPILLS, (3.4, 4.0, 1.0), strict=True))
def test_a_spill_is_seen(story: str, times: float) -> None:
    watch = SpillWatch()
    factors = [watch.add(taken) for taken in SPILLS[story]]
    assert not any(factors[:-5])
    assert max(factors[-5:]) == pytest.approx(times, rel=0.01)


def test_after_a_cure_it_is_quiet_and_a_second_spill_is_seen() -> None:
    watch = SpillWatch()
    for taken in USUAL:
        watch.add(taken)
    assert any(watch.add(Taken(4000, 5.0, 0)) for _ in range(5))
    watch.begin_again()
    assert watch.add(Taken(4000, 9.0, 0)) == 0.0, "the step of the cure itself"
    assert not any(watch.add(taken) for taken in USUAL[:5])
    assert any(watch.add(Taken(4000, 5.0, 0)) for _ in range(5))


QUIET: dict[str, list[Taken]] = {
    "the first steps compile": [Taken(4000, 40.0, 0), Taken(4000, 20.0, 0)] + [Taken(4000, 1.0, 0)] * 30,
    "longer rows take longer": [Taken(400, 0.2, 0)] * 30 + [Taken(8000, 4.0 * 2.9, 0)] * 10,
    "short steps wait for Python": [Taken(4000, 1.0, 0)] * 30 + [Taken(40, 0.5, 0)] * 10,
    "memory is free": [Taken(4000, 1.0, GIB)] * 30 + [Taken(4000, 9.0, GIB)] * 10,
    "nobody knows what is free": [Taken(4000, 1.0, None)] * 30 + [Taken(4000, 9.0, None)] * 10,
    "one kernel is made in mid-run": [Taken(4000, 1.0, 0)] * 30 + [Taken(4000, 60.0, 0)] + [Taken(4000, 1.0, 0)] * 9,
    "a lid was closed twice": ([Taken(4000, 1.0, 0)] * 30 + [Taken(4000, 3600.0, 0)]) * 2,
    "the card is full, and as fast as ever": [Taken(4000, 1.0, 0)] * 60,
    "a step of nothing": [Taken(4000, 1.0, 0)] * 30 + [Taken(0, 9.0, 0)] * 9,
}


@pytest.mark.parametrize("story", QUIET)
def test_no_false_alarm(story: str) -> None:
    watch = SpillWatch()
    assert [watch.add(taken) for taken in QUIET[story]] == [0.0] * len(QUIET[story])


def test_no_false_alarm_in_a_long_run_of_mixed_rows() -> None:
    """Three thousand steps on a full card: lengths over two decades, a tenth slower or faster, now and then a hitch."""
    draw = random.Random(3)
    watch = SpillWatch()
    for step in range(3_000):
        tokens = round(10 ** draw.uniform(2, 4))
        seconds = (0.2 + tokens / 5000 * (1 + tokens / 40_000)) * draw.uniform(0.9, 1.1)
        assert watch.add(Taken(tokens, seconds * (8 if step % 97 == 0 else 1), 0)) == 0.0


def test_a_run_names_the_spill_and_makes_its_passes_smaller(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = oom_recovery.OomRecovery.__init__

    def watched(self: Any, *parts: Any) -> None:
        honest(self, *parts[:-1], True)

    def taken(self: Any) -> Taken:
        step = self._trainer.step
        return Taken(100, 4.0 if 8 < step <= 11 else 1.0, 0)

    monkeypatch.setattr(oom_recovery.OomRecovery, "__init__", watched)
    monkeypatch.setattr(oom_recovery.OomRecovery, "_taken", taken)
    _, log = runs(train__max_steps=12, train__save_steps=100, train__eval_steps=100)
    (note,) = log.of("note")
    assert (note.code, note.step) == ("memory.spill", 11)
    assert "4 times as long" in note.text
    (correction,) = log.of("correction")
    assert correction.key == "train.tokens_per_pass"
    assert int(correction.new) < 64
    assert "spilled" in correction.reason
    assert list(log.losses()) == list(range(1, 13))


@pytest.mark.parametrize(
    ("memory_gib", "wsl", "allowed"),
    [(0.0, True, 0.9 * 14), (8.0, True, 8 - CONTEXT_BYTES / GIB), (15.0, True, 0.9 * 14), (8.0, False, None)],
)
def test_on_wsl_torch_may_hold_what_the_plan_may_use(
    memory_gib: float, wsl: bool, allowed: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card of 16 GiB with 10 free beside the 4 that torch holds already."""
    told: list[float] = []
    card = SimpleNamespace(
        mem_get_info=lambda _: (10 * GIB, 16 * GIB),
        memory_reserved=lambda _: 4 * GIB,
        get_device_name=lambda _: "one",
        set_per_process_memory_fraction=lambda share, _: told.append(share),
    )
    monkeypatch.setattr(memory.torch, "cuda", card)
    capped = cap_allocator(memory_gib, CARD, wsl)
    if allowed is None:
        assert (capped, told) == (0, [])
        return
    assert told == [pytest.approx(allowed / 16, rel=1e-6)]
    assert capped == pytest.approx(allowed * GIB, rel=1e-6)


class AcceleratorError(RuntimeError):
    """torch's class for what the card reports."""


@pytest.mark.parametrize(
    ("error", "memory_ran_out", "card_fault", "host"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), True, False, False),
        (AcceleratorError("CUDA error: out of memory"), True, False, False),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True, False, False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), True, False, False),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate"), True, False, True),
        (AcceleratorError("CUDA error: an illegal memory access was encountered"), False, True, False),
        (RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"), False, True, False),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), False, True, False),
        (RuntimeError("CUDA unknown error - this may be due to an incorrectly set up environment"), False, True, False),
        (RuntimeError("No CUDA GPUs are available"), False, True, False),
        (ValueError("a column called CUDA error"), False, False, False),
        (OSError(12, "Cannot allocate memory"), False, False, True),
        (MemoryError(), False, False, True),
        (ValueError("out of memory lane"), False, False, False),
    ],
)  # fmt: skip
def test_what_ran_out_is_told_from_what_broke(
    error: BaseException, memory_ran_out: bool, card_fault: bool, host: bool
) -> None:
    assert (is_out_of_memory(error), is_card_fault(error), is_host_full(error)) == (memory_ran_out, card_fault, host)
