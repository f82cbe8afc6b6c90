"""Memory runs out anywhere in a run: the same steps are done in smaller micro-batches, and the adapter is the same."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from dying_log import Log
from memory_faults import CLOSE, Fault, Inject, after_step, apart, backward, before, forward
from tiny_run import weights

from core.contract.commands import Command
from core.train.keep import saver
from core.train.loop import Loop
from core.train.methods import sft
from core.train.step import optimizer

SECONDS_TO_GO_ON = 30


def evaluating(*_: Any) -> bool:
    return not torch.is_grad_enabled()


TRAINING: dict[str, tuple[Inject, tuple[int, ...]]] = {
    "first layer, first micro-batch of the run": (forward(0), (1,)),
    "last layer, first micro-batch": (forward(1), (1,)),
    "second micro-batch of a batch": (forward(0), (2,)),
    "in mid-run": (forward(1), (7,)),
    "backward of the first step": (backward(1), (1,)),
    "backward, first layer": (backward(0), (2,)),
    "backward in mid-run": (backward(0), (8,)),
    "twice in one batch": (forward(0), (1, 2)),
    "in two steps": (forward(0), (2, 9)),
    "the loss": (before(sft.TextTrainer, "pass_loss", lambda *_: torch.is_grad_enabled()), (3,)),
    "joining the gradients": (before(optimizer.Flat, "gather"), (1,)),
    "joining them later": (before(optimizer.Flat, "gather"), (4,)),
}
BESIDE: dict[str, tuple[Inject, tuple[int, ...], str]] = {
    "optimiser, first step": (before(torch.optim.AdamW, "step"), (1,), "memory.optimizer"),
    "optimiser, moments half made": (after_step, (1,), "memory.optimizer"),
    "optimiser, later": (before(torch.optim.AdamW, "step"), (4,), "memory.optimizer"),
    "optimiser, twice": (before(torch.optim.AdamW, "step"), (2, 3), "memory.optimizer"),
    "first evaluation": (before(sft.TextTrainer, "pass_loss", evaluating), (1,), "memory.evaluation"),
    "last evaluation": (before(sft.TextTrainer, "pass_loss", evaluating), (4,), "memory.evaluation"),
    "first checkpoint": (before(saver, "save_state"), (1,), "memory.checkpoint"),
    "last checkpoint": (before(saver, "save_state"), (6,), "memory.checkpoint"),
    "the next batch's tensors": (
        before(sft.TextTrainer, "look_ahead"), (2,), "",
    ),
}  # fmt: skip


BY_DEFAULT = {
    "backward in mid-run", "twice in one batch", "joining the gradients",
    "optimiser, moments half made", "first evaluation", "last checkpoint",
}  # fmt: skip
"""The other points are run with ``-m slow``."""


def some_by_default(points: Iterable[str]) -> list[Any]:
    return [pytest.param(point, marks=[] if point in BY_DEFAULT else pytest.mark.slow) for point in points]


@contextmanager
def rows_are_counted(patch: pytest.MonkeyPatch) -> Iterator[list[list[int]]]:
    """Yields the rows of each finished batch, as computed in its micro-batches."""
    done: list[list[int]] = []
    seen: list[int] = []
    begins, ends, loss = Loop.step_begins, Loop.batch_done, sft.TextTrainer.pass_loss

    def step_begins(self: Any, step: int) -> None:
        seen.clear()
        begins(self, step)

    def batch_done(self: Any, batch: Any, value: float) -> None:
        assert sorted(seen) == sorted(batch), "every row of the batch once"
        done.append(list(batch))
        ends(self, batch, value)

    def pass_loss(self: Any, model: Any, rows: Any, chosen: Any) -> Any:
        if torch.is_grad_enabled():
            seen.extend(chosen)
        return loss(self, model, rows, chosen)

    with patch.context() as inner:
        inner.setattr(Loop, "step_begins", step_begins)
        inner.setattr(Loop, "batch_done", batch_done)
        inner.setattr(sft.TextTrainer, "pass_loss", pass_loss)
        yield done


def disturbed(runs: Any, inject: Inject, fault: Fault, patch: pytest.MonkeyPatch) -> tuple[Log, float]:
    """A run with a fault: every row stays where it belongs, and it goes on soon. Its log, and how far its adapter is
    from that of the run without."""
    undisturbed, folder = runs.undisturbed()[0], runs.make()
    moments: list[float] = []
    with rows_are_counted(patch) as batches, patch.context() as inner:
        inject(inner, fault)
        log = runs.work(folder, 1, lambda event: moments.append(time.monotonic()))
    assert len(batches) == 6
    assert len(fault.raised) == len(fault.at), "the fault was met"
    for moment in fault.raised:
        assert min(later for later in moments if later >= moment) - moment < SECONDS_TO_GO_ON
    assert log.said[-1].kind == "finished"
    return log, apart(weights(folder), weights(undisturbed))


@pytest.mark.parametrize("point", some_by_default(TRAINING))
def test_out_of_memory_in_a_window_is_the_same_step_in_smaller_passes(
    point: str, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    inject, at = TRAINING[point]
    log, distance = disturbed(runs, inject, Fault(at), monkeypatch)
    corrections = log.of("correction")
    assert len(corrections) == len(at)
    assert {correction.key for correction in corrections} <= {"train.tokens_per_pass", "train.checkpointing"}
    assert all("memory ran out in a pass of" in correction.reason for correction in corrections)
    assert distance <= CLOSE
    assert log.losses() == pytest.approx(runs.undisturbed()[1].losses(), rel=CLOSE)


@pytest.mark.parametrize("point", some_by_default(BESIDE))
def test_out_of_memory_beside_the_passes_changes_not_a_bit(
    point: str, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    inject, at, code = BESIDE[point]
    log, distance = disturbed(runs, inject, Fault(at), monkeypatch)
    assert {note.code for note in log.of("note")} == ({code} if code else set())
    whole = runs.undisturbed()[1]
    assert (distance, log.losses()) == (0.0, whole.losses())
    assert log.of("evaluation")[-1].loss == pytest.approx(whole.of("evaluation")[-1].loss, rel=CLOSE)


def test_out_of_memory_in_a_sample_is_said_and_the_run_goes_on(
    runs: Any, letters: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import LlamaForCausalLM

    runs.undisturbed()
    letters.waiting = [Command(id="s", verb="sample", prompt="the cat", max_new_tokens=3)]
    log, distance = disturbed(runs, before(LlamaForCausalLM, "generate"), Fault((1,)), monkeypatch)
    (note,) = log.of("note")
    assert "memory ran out" in note.text
    assert [sample.text for sample in log.of("sample")] == ["", ""]
    assert distance == 0.0
