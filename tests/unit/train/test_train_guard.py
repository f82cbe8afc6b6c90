"""Numbers gone bad: what is skipped, who is named, when a run goes back, and that it does so once."""

import json
import math
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dying_log import Killed, Log
from tiny_run import equal, weights

from core.contract.commands import Command
from core.contract.errors import DataError, RunError
from core.runs.folder.job_folder import JobFolder
from core.runs.record.job_record import effective_config, folded
from core.train.channel.command_queue import Afresh
from core.train.channel.reporter import EventReporter
from core.train.keep import checkpoint
from core.train.keep.saver import read_position
from core.train.methods import sft
from core.train.run import train
from core.train.safety.guard import Guard, require_targets

HONEST = sft.TextTrainer.pass_loss
CONSTANT = {"train__lr_scheduler_type": "constant"}


@pytest.fixture
def bad_when(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes the loss of training passes NaN where ``when(step, rows, rate)`` is true; ``value`` replaces the NaN."""

    def make(when: Callable[[int, Any, float], bool], value: float = math.nan) -> None:
        def pass_loss(self: Any, model: Any, rows: Any, chosen: Any) -> torch.Tensor:
            rate = self.lr_scheduler.get_last_lr()[0] if self.lr_scheduler else 0.0
            bad = self.model.training and when(self.state.global_step + 1, chosen, rate)
            return HONEST(self, model, rows, chosen) * (value if bad else 1)

        monkeypatch.setattr(sft.TextTrainer, "pass_loss", pass_loss)

    return make


def rates(log: Log) -> dict[int, float]:
    return {event.step: event.learning_rate for event in log.of("step")}


def attempts(folder: JobFolder, letters: Any, first: int = 1) -> list[Log]:
    """Workers one after another, as the supervisor starts them, until one has no wish for another."""
    logs: list[Log] = []
    while True:
        logs.append(Log(folder, first + len(logs)))
        try:
            train(folder, logs[-1], letters)
        except Afresh:
            continue
        return logs


def test_one_bad_step_is_skipped_and_its_rows_are_named(runs: Any, bad_when: Any) -> None:
    bad_when(lambda _step, rows, _rate: 7 in rows)
    folder, log = runs(train__max_steps=9)
    assert list(log.losses().values()).count(None) == 1
    (note,) = log.of("note")
    assert note.code == "step.skipped"
    kept = json.loads((folder.path / "rows.json").read_text())["held_out"]
    number = [row for row in range(40) if row not in kept][7] + 1
    assert f"(row {number} of the data file)" in note.text
    assert all(torch.isfinite(tensor).all() for tensor in weights(folder).values())


@pytest.mark.parametrize("kind", ["loss", "gradient"])
def test_a_skipped_step_leaves_adapter_and_moments_as_they_were(
    kind: str, runs: Any, bad_when: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pass_loss(self: Any, model: Any, rows: Any, chosen: Any) -> torch.Tensor:
        loss = HONEST(self, model, rows, chosen)
        if self.model.training and self.state.global_step == 2 and loss.requires_grad:
            loss.register_hook(lambda gradient: gradient * math.inf)
        return loss

    if kind == "loss":
        bad_when(lambda step, *_: step == 3)
    else:
        monkeypatch.setattr(sft.TextTrainer, "pass_loss", pass_loss)
    folder, log = runs(train__max_steps=3, train__eval_steps=100)
    assert [note.code for note in log.of("note")] == ["step.skipped"]
    assert "of the data file" in log.of("note")[0].text
    before, after = folder.checkpoints / "step-000002", folder.checkpoints / "step-000003"
    for name in ("adapter/adapter_model.safetensors", "optimizer.safetensors"):
        assert (before / name).read_bytes() == (after / name).read_bytes(), name


def test_three_bad_steps_go_back_once_with_half_the_rate_and_then_stop(runs: Any, letters: Any, bad_when: Any) -> None:
    bad_when(lambda step, _rows, rate: step >= 6 and rate > 6e-3)
    folder = runs.make(train__max_steps=9, **CONSTANT)
    first, second = attempts(folder, letters)
    assert [note.text.split()[1] for note in first.of("note")] == ["6", "7", "8"]
    (correction,) = first.of("correction")
    assert (correction.key, json.loads(correction.old), json.loads(correction.new)) == (
        "train.learning_rate", 1e-2, 5e-3,
    )  # fmt: skip
    assert "steps 6 to 8" in correction.reason
    assert [event.resumed_step for event in second.of("starting")] == [4]
    assert list(second.losses()) == list(range(5, 10))
    assert set(rates(second).values()) == {5e-3}, "the rate that the checkpoint's scheduler holds is the old one"
    config = effective_config(folder.config(), folded(folder).corrections)
    assert config.train.learning_rate == 5e-3
    assert read_position(folder.checkpoints / "step-000009")["learning_rate"] == 5e-3

    bad_when(lambda step, *_: step >= 6)
    again = runs.make("again", train__max_steps=9, **CONSTANT)
    with pytest.raises(RunError) as caught:
        attempts(again, letters)
    assert "half the learning rate (0.005)" in caught.value.message
    assert "steps 6 to 8" in caught.value.message
    assert "\n" not in str(caught.value)
    assert checkpoint.latest_good(again) is not None
    with pytest.raises(RunError, match="half the learning rate"):  # also after a restart: the log remembers
        attempts(again, letters, 3)


@pytest.mark.slow
def test_the_halved_rate_holds_over_later_resumes_bit_for_bit(runs: Any, letters: Any, bad_when: Any) -> None:
    bad_when(lambda step, _rows, rate: step >= 6 and rate > 6e-3)
    values = {"train__max_steps": 12, "train__lr_scheduler_type": "constant_with_warmup", "lora__lora_dropout": 0.1}
    whole, broken = runs.make("whole", **values), runs.make("broken", **values)
    attempts(whole, letters)
    attempt = 1
    for dies_at in (7, 5, 9, 11):  # within the bad steps, right after going back, and twice later
        log = Log(broken, attempt, lambda event, at=dies_at: event.kind == "step" and event.step == at)
        with pytest.raises((Killed, Afresh)):
            train(broken, log, letters)
        attempt += 1
    last = attempts(broken, letters, attempt)[-1]
    assert set(rates(last).values()) == {5e-3}
    assert equal(weights(whole), weights(broken))


@pytest.mark.slow
def test_a_schedule_that_falls_goes_on_at_half_its_height(runs: Any, letters: Any, bad_when: Any) -> None:
    values = {"train__max_steps": 12, "train__lr_scheduler_type": "cosine", "train__warmup_steps": 2}
    usual = rates(runs("honest", **values)[1])
    bad_when(lambda step, _rows, rate: step in (6, 7, 8) and rate > 0.6 * usual[step])
    logs = attempts(runs.make(**values), letters)
    assert [log.of("starting")[0].resumed_step for log in logs[1:]] == [4]
    for step, rate in rates(logs[-1]).items():
        assert rate == pytest.approx(usual[step] / 2, rel=1e-12), step


@pytest.mark.parametrize(
    ("bad_from", "values", "resumed"),
    [
        (2, {}, 0),  # without a checkpoint the run begins again
        (4, {"train__save_steps": 100}, 3),  # step 3 is measured, and saved since it is the best: it is trusted
    ],
)
def test_where_a_run_goes_back_to(
    bad_from: int, values: dict[str, Any], resumed: int, runs: Any, letters: Any, bad_when: Any
) -> None:
    bad_when(lambda step, _rows, rate: step >= bad_from and rate > 6e-3)
    last = attempts(runs.make(**CONSTANT, **values), letters)[-1]
    assert list(last.losses()) == list(range(resumed + 1, 7))
    assert set(rates(last).values()) == {5e-3}


def test_interrupted_between_bad_steps_it_counts_on(runs: Any, letters: Any, bad_when: Any) -> None:
    bad_when(lambda step, _rows, rate: step >= 5 and rate > 6e-3)
    whole, broken = (runs.make(name, train__max_steps=8, **CONSTANT) for name in ("whole", "broken"))
    attempts(whole, letters)

    def pause(event: Any) -> None:
        if event.kind == "step" and event.step == 6:
            letters.waiting.append(Command(id="p", verb="pause"))
            while not log.of("acknowledged"):
                time.sleep(0.01)

    log = Log(broken, 1, pause)  # type: ignore[arg-type]
    train(broken, log, letters)
    assert log.said[-1].kind == "paused"
    assert read_position(broken.checkpoints / "step-000006")["bad"] == [5, 6]
    kept = sorted(path.name for path in broken.checkpoints.iterdir())
    assert kept == ["step-000003", "step-000004", "step-000006"], "in a bad streak no older checkpoint gives way"
    second = attempts(broken, letters, 2)
    assert "steps 5 to 7" in second[0].of("correction")[0].reason
    assert equal(weights(whole), weights(broken))


def test_a_loss_of_exactly_zero_is_a_loss_like_any_other(runs: Any, bad_when: Any) -> None:
    """Labels of one word are learned by heart until float32 knows no smaller loss."""
    bad_when(lambda step, *_: step >= 2, value=0.0)
    folder, log = runs(train__weight_decay=0.0, train__max_steps=3)
    assert log.said[-1].kind == "finished"
    assert log.of("note") == []
    assert [log.losses()[step] for step in (2, 3)] == [0.0] * 2
    assert all(torch.isfinite(tensor).all() for tensor in weights(folder).values())


def test_a_step_without_a_trained_token_stops_at_once_and_so_do_data_without_rows(said: Any) -> None:
    with pytest.raises(DataError, match="rows to train on"):
        require_targets(0, 0, 64)
    guard = Guard(EventReporter(said), name_rows=lambda: "rows 3, 4 of the data file")
    guard.require_weight(1, 5.0)
    with pytest.raises(RunError, match="tokens to train on in step 2, found none \\(rows 3, 4 of the data file\\)"):
        guard.require_weight(2, 0.0)


def test_float16_an_overflow_is_no_fault_and_a_scale_below_one_is(said: Any) -> None:
    guard = Guard(EventReporter(said))
    for step in range(1, 13):
        assert guard.judge(step, 2.0, math.inf, 65536.0 / 2**step)
    assert (guard.overflows, guard.bad) == (12, [])
    assert [note.code for note in said.of("note")] == ["step.overflow"] * 2, "the first and the tenth"
    assert not guard.judge(13, math.inf, 1.0, 1024.0)
    assert guard.judge(14, 2.0, math.inf, 1024.0)
    assert guard.bad == [13], "an overflow in between is no good step"
    assert not guard.judge(15, 2.0, 1.0, 0.5)
    assert "loss scale 0.5" in said.of("note")[-1].text
    with pytest.raises(RunError, match="3 steps in a row"):
        guard.judge(16, 2.0, 1.0, 0.25)
    assert guard.judge(17, 2.0, 1.0, 1.0)
    assert guard.bad == []
