"""The largest step is tried before the first, and the run is the same as without."""

from types import SimpleNamespace
from typing import Any

import pytest
from memory_faults import Fault, apart, before, forward
from tiny_run import weights

from core.train.safety import oom_recovery, preflight
from core.train.step.batches import BatchSampler


def rehearsed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(oom_recovery, "tries_the_largest", lambda _device: True)


@pytest.mark.parametrize("method", ["sft", pytest.param("dpo", marks=pytest.mark.slow)])
def test_a_rehearsal_changes_nothing(method: str, runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "lora__lora_dropout": 0.1,
        **({"method": "dpo", "train__tokens_per_pass": 256} if method == "dpo" else {}),
    }
    whole, undisturbed = runs.undisturbed(**values)
    folder = runs.make(**values)
    rehearsed(monkeypatch)
    runs.work(folder, 1, lambda event: event.kind == "step" and event.step == 3)
    log = runs.work(folder, 2)  # it is tried again after a resume
    for said, times in ((log, 1), (undisturbed, 0)):
        assert [event.text for event in said.of("stage")].count("Trying the largest step") == times
    assert log.losses() == {step: undisturbed.losses()[step] for step in range(3, 7)}
    assert apart(weights(folder), weights(whole)) == 0.0


def test_what_a_rehearsal_computes_of_the_reference_is_not_kept(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row's sums are those of the micro-batch in which a run meets it first, whatever a resume tries before."""
    rehearsed(monkeypatch)
    known: list[bool] = []
    honest = oom_recovery.preflight

    def tried(trainer: Any, *rest: Any) -> None:
        honest(trainer, *rest)
        known.append(not trainer.extra_state()["reference"].isnan().all())

    monkeypatch.setattr(oom_recovery, "preflight", tried)
    runs(method="dpo", train__tokens_per_pass=256, train__max_steps=1, train__eval_steps=100)
    assert known == [False]


@pytest.mark.parametrize("inject", [forward(0), before(preflight, "_moments")], ids=["a pass", "the moments"])
def test_what_does_not_fit_is_found_before_the_first_step(
    inject: Any, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsed(monkeypatch)
    inject(monkeypatch, Fault((1,)))
    _, log = runs(train__max_steps=2)
    assert len(log.of("correction")) == 1
    kinds = [event.kind for event in log.said]
    assert kinds.index("correction") < kinds.index("step")
    assert list(log.losses()) == [1, 2]


def test_the_largest_window_is_that_of_the_largest_pass_to_come() -> None:
    sampler = BatchSampler(40, 4, 7, 25)
    every = list(preflight.coming(sampler, 0))
    assert every == [sampler.after(step) for step in range(25)]
    assert list(preflight.coming(sampler, 23)) == every[23:]
    rows = SimpleNamespace(length=lambda row: 10 + row)
    trainer = SimpleNamespace(
        sampler=sampler, step=0, rows=rows, cut=lambda batch: [batch], computed_tokens=max, own=lambda _, batch: batch
    )
    assert 39 in preflight.largest_batch(trainer)
    trainer.step = 25
    assert preflight.largest_batch(trainer) == []
