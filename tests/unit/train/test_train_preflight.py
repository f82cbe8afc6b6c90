"""The largest step is tried before the first, and the run is the same as without."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dying_log import Killed, Log
from memory_faults import Fault, apart, before, forward
from tiny_run import weights

from core.train.run import train
from core.train.safety import oom_recovery, preflight
from core.train.step.batch_sampler import BatchSampler

pytestmark = pytest.mark.usefixtures("quiet_torch")


def rehearsed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(oom_recovery, "tries_the_largest", lambda _device: True)


DPO: dict[str, Any] = {"method": "dpo", "data__layout": "preference", "train__tokens_per_pass": 256}


@pytest.mark.parametrize("method", ["sft", pytest.param("dpo", marks=pytest.mark.slow)])
def test_a_rehearsal_changes_nothing(
    method: str, run_config: Any, make_folder: Any, letters: Any, preferences: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: dict[str, Any] = {"lora__lora_dropout": 0.2}
    if method == "dpo":
        values |= {**DPO, "data__path": str(preferences)}
    found = []
    for name in ("plain", "tried"):
        folder = make_folder(run_config(**values), name)
        with monkeypatch.context() as patch:
            if name == "tried":
                rehearsed(patch)
            with pytest.raises(Killed):
                train(folder, Log(folder, 1, lambda event: event.kind == "step" and event.step == 3), letters)
            log = Log(folder, 2)  # it is tried again after a resume
            train(folder, log, letters)
        found.append((weights(folder), log.losses()))
        texts = [event.text for event in log.of("stage")]
        assert texts.count("Trying the largest step") == (name == "tried")
    assert found[0][1] == found[1][1]
    assert apart(found[1][0], found[0][0]) == 0.0


@pytest.mark.parametrize("seam", [forward(0), before(preflight, "_moments")], ids=["a pass", "the moments"])
def test_what_does_not_fit_is_found_before_the_first_step(
    trained: Any, seam: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsed(monkeypatch)
    seam(monkeypatch, Fault((1,)))
    _, log = trained(train__max_steps=2)
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
    trainer = SimpleNamespace(sampler=sampler, step=0, rows=rows, cut=lambda batch: [batch], computed_tokens=max)
    assert 39 in preflight.largest_batch(trainer)
    trainer.step = 25
    assert preflight.largest_batch(trainer) == []
