"""Numbers gone bad: what is skipped, who is named, when a run goes back, and that it does so once."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dying_log import Killed, Log
from tiny_run import equal, weights

from core.contract.errors import RunError
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventTail
from core.runs.record.job_record import effective_config, fold
from core.train.channel.command_queue import Afresh
from core.train.channel.reporter import EventReporter
from core.train.keep import checkpoint
from core.train.keep.saver import read_position
from core.train.methods import sft
from core.train.run import train
from core.train.safety.guard import Guard
from core.train.step.trainer import StepTrainer

pytestmark = pytest.mark.usefixtures("quiet_torch")
NOTHING_ELSE: dict[str, Any] = {
    "flat": None,
    "sums": [],
    "clip_norm": 0.0,
    "sampler": SimpleNamespace(after=lambda _step: None),
}
HONEST = sft.TextTrainer.pass_loss


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


def test_one_bad_step_is_skipped_and_its_rows_are_named(trained: Any, bad_when: Any) -> None:
    poisoned = {7}
    bad_when(lambda _step, rows, _rate: bool(poisoned & set(rows)))
    folder, log = trained(train__max_steps=9)
    bad = [step for step, loss in log.losses().items() if loss is None]
    assert len(bad) == 1
    (note,) = log.of("note")
    assert note.code == "step.skipped"
    kept = json.loads((folder.path / "rows.json").read_text())["held_out"]
    number = [row for row in range(40) if row not in kept][7] + 1
    assert f"(row {number} of the data file)" in note.text
    assert all(torch.isfinite(tensor).all() for tensor in weights(folder).values())


@pytest.mark.parametrize("kind", ["loss", "gradient"])
def test_a_skipped_step_leaves_adapter_and_moments_as_they_were(
    kind: str, trained: Any, bad_when: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "loss":
        bad_when(lambda step, *_: step == 3)
    else:

        def pass_loss(self: Any, model: Any, rows: Any, chosen: Any) -> torch.Tensor:
            loss = HONEST(self, model, rows, chosen)
            if self.model.training and self.state.global_step == 2 and loss.requires_grad:
                loss.register_hook(lambda gradient: gradient * math.inf)
            return loss

        monkeypatch.setattr(sft.TextTrainer, "pass_loss", pass_loss)
    folder, log = trained(train__max_steps=3, train__eval_steps=100)
    assert [note.code for note in log.of("note")] == ["step.skipped"]
    assert "of the data file" in log.of("note")[0].text
    before, after = folder.checkpoints / "step-000002", folder.checkpoints / "step-000003"
    for name in ("adapter/adapter_model.safetensors", "optimizer.safetensors"):
        assert (before / name).read_bytes() == (after / name).read_bytes(), name


def test_three_bad_steps_go_back_once_with_half_the_rate_and_then_stop(
    run_config: Any, make_folder: Any, letters: Any, bad_when: Any
) -> None:
    bad_when(lambda step, _rows, rate: step >= 6 and rate > 6e-3)
    config = run_config(train__max_steps=12, train__lr_scheduler_type="constant")
    folder = make_folder(config)
    first, second = attempts(folder, letters)
    assert [note.text.split()[1] for note in first.of("note")] == ["6", "7", "8"]
    (correction,) = first.of("correction")
    assert (correction.key, json.loads(correction.old), json.loads(correction.new)) == (
        "train.learning_rate", 1e-2, 5e-3,
    )  # fmt: skip
    assert "steps 6 to 8" in correction.reason
    assert [event.resumed_step for event in second.of("starting")] == [4]
    assert list(second.losses()) == list(range(5, 13))
    assert set(rates(second).values()) == {5e-3}, "the rate that the checkpoint's scheduler holds is the old one"
    assert effective_config(config, fold(EventTail(folder.events).read()).corrections).train.learning_rate == 5e-3
    assert read_position(folder.checkpoints / "step-000012")["learning_rate"] == 5e-3

    bad_when(lambda step, *_: step >= 6)
    again = make_folder(config, "again")
    with pytest.raises(RunError) as caught:
        attempts(again, letters)
    assert "half the learning rate (0.005)" in caught.value.message
    assert "steps 6 to 8" in caught.value.message
    assert "\n" not in str(caught.value)
    assert checkpoint.latest_good(again) is not None
    with pytest.raises(RunError, match="half the learning rate"):  # also after a restart: the log remembers
        attempts(again, letters, 3)


@pytest.mark.slow
def test_the_halved_rate_holds_over_later_resumes_bit_for_bit(
    run_config: Any, make_folder: Any, letters: Any, bad_when: Any
) -> None:
    bad_when(lambda step, _rows, rate: step >= 6 and rate > 6e-3)
    config = run_config(train__max_steps=12, train__lr_scheduler_type="constant_with_warmup", lora__lora_dropout=0.1)
    whole, broken = make_folder(config, "whole"), make_folder(config, "broken")
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
def test_a_schedule_that_falls_goes_on_at_half_its_height(
    run_config: Any, make_folder: Any, letters: Any, bad_when: Any
) -> None:
    config = run_config(train__max_steps=12, train__lr_scheduler_type="cosine", train__warmup_steps=2)
    honest = make_folder(config, "honest")
    (log,) = attempts(honest, letters)
    usual = rates(log)
    went_back: list[int] = []
    bad_when(lambda step, _rows, rate: step in (6, 7, 8) and rate > 0.6 * usual[step])
    folder = make_folder(config)
    logs = attempts(folder, letters)
    went_back = [log.of("starting")[0].resumed_step for log in logs[1:]]
    assert went_back == [4]
    for step, rate in rates(logs[-1]).items():
        assert rate == pytest.approx(usual[step] / 2, rel=1e-12), step


def test_without_a_checkpoint_the_run_begins_again(
    run_config: Any, make_folder: Any, letters: Any, bad_when: Any
) -> None:
    bad_when(lambda step, _rows, rate: step >= 2 and rate > 6e-3)
    folder = make_folder(run_config(train__lr_scheduler_type="constant"))
    logs = attempts(folder, letters)
    assert list(logs[-1].losses()) == [1, 2, 3, 4, 5, 6]
    assert set(rates(logs[-1]).values()) == {5e-3}


def test_a_checkpoint_whose_held_out_loss_was_finite_is_trusted(
    run_config: Any, make_folder: Any, letters: Any, bad_when: Any
) -> None:
    bad_when(lambda step, _rows, rate: step >= 4 and rate > 6e-3)  # step 3 is measured, and saved since it is the best
    folder = make_folder(run_config(train__lr_scheduler_type="constant", train__save_steps=100))
    assert attempts(folder, letters)[-1].of("starting")[0].resumed_step == 3


def test_interrupted_between_bad_steps_it_counts_on(
    run_config: Any, make_folder: Any, letters: Any, bad_when: Any
) -> None:
    bad_when(lambda step, _rows, rate: step >= 5 and rate > 6e-3)
    config = run_config(train__max_steps=9, train__lr_scheduler_type="constant")
    whole, broken = make_folder(config, "whole"), make_folder(config, "broken")
    attempts(whole, letters)

    from core.contract.commands import Command

    def pause(event: Any) -> bool:
        if event.kind == "step" and event.step == 6:
            letters.waiting.append(Command(id="p", verb="pause"))
            while not log.of("acknowledged"):
                pass
        return False

    log = Log(broken, 1, pause)
    train(broken, log, letters)
    assert log.said[-1].kind == "paused"
    assert read_position(broken.checkpoints / "step-000006")["bad"] == [5, 6]
    kept = sorted(path.name for path in broken.checkpoints.iterdir())
    assert kept == ["step-000003", "step-000004", "step-000006"], "in a bad streak no older checkpoint gives way"
    second = attempts(broken, letters, 2)
    assert "steps 5 to 7" in second[0].of("correction")[0].reason
    assert equal(weights(whole), weights(broken))


def test_a_loss_of_exactly_zero_is_a_loss_like_any_other(trained: Any, bad_when: Any) -> None:
    """Labels of one word are learned by heart until float32 knows no smaller loss."""
    bad_when(lambda step, *_: step >= 2, value=0.0)
    folder, log = trained(train__weight_decay=0.0)
    assert log.said[-1].kind == "finished"
    assert log.of("note") == []
    assert [log.losses()[step] for step in range(2, 7)] == [0.0] * 5
    assert all(torch.isfinite(tensor).all() for tensor in weights(folder).values())


def test_a_step_without_a_trained_token_stops_at_once(said: Any) -> None:
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


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_float16_a_bad_loss_with_finite_gradients_is_skipped_by_the_real_scaler(bad: float) -> None:
    """What reaches the optimiser is the scaler's to judge; so it is shown what it skips."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    parameter = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.AdamW([parameter], lr=0.1)
    parameter.grad = torch.full((4,), 512.0)
    trainer: Any = StepTrainer.__new__(StepTrainer)
    trainer.accelerator = SimpleNamespace(scaler=scaler, process_index=0, num_processes=1)
    trainer.model, trainer.state = torch.nn.ParameterList([parameter]), SimpleNamespace(global_step=0)
    notes: list[Any] = []
    guard = Guard(EventReporter(SimpleNamespace(write=notes.append)))
    trainer._steps, trainer.sampler = SimpleNamespace(guard=guard), SimpleNamespace(after=lambda _step: None)
    trainer.flat, trainer.sums, trainer.clip_norm = None, [], 0.0
    scaler.scale(torch.zeros(()))  # makes the scale, as the first backward does
    trainer._judged(torch.tensor(bad, dtype=torch.float64), trainer.joined())
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(parameter.detach(), torch.ones(4))
    assert [note.code for note in notes] == ["step.skipped"]
