"""After an out of memory: what is freed, what is corrected, who goes on, and who ends in a line."""

from __future__ import annotations

import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dying_log import Killed, Log
from memory_faults import Fault, after_step, apart, backward, before, forward, with_trainer
from tiny_run import weights

from core.contract.config import RunConfig
from core.contract.errors import MachineError
from core.model.layers.checkpointing import checkpointing_layers
from core.model.layers.peft_bnb import base_causal_model
from core.train.channel.channel import Channel
from core.train.channel.command_queue import Afresh, CommandQueue
from core.train.channel.meter import Meter
from core.train.keep.saver import read_position
from core.train.run import train
from core.train.safety import oom_recovery
from core.train.step.atomic_step import atomic

pytestmark = pytest.mark.usefixtures("quiet_torch")


def test_a_half_done_optimiser_step_goes_back_to_the_last_checkpoint(
    trained: Any, run_config: Any, make_folder: Any, letters: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_folder(run_config())
    with monkeypatch.context() as patch:
        after_step(patch, Fault((4,)))
        with pytest.raises(Afresh, match="back to the last checkpoint"):
            train(folder, Log(folder), letters)
    resumed = Log(folder, 2)
    train(folder, resumed, letters)
    assert list(resumed.losses()) == [4, 5, 6]
    whole, _ = trained("whole")
    assert apart(weights(folder), weights(whole)) == 0.0


def test_the_next_attempt_begins_with_the_corrected_number_though_nothing_was_saved_since(
    run_config: Any, make_folder: Any, letters: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_folder(run_config())
    with monkeypatch.context() as patch:
        forward(0)(patch, Fault((5,)))  # in step 3; the last checkpoint is of step 2
        log = Log(folder, 1, lambda event: event.kind == "correction")
        with pytest.raises(Killed):
            train(folder, log, letters)
    (correction,) = log.of("correction")
    assert (correction.key, correction.old, correction.step) == ("train.tokens_per_pass", "64", 2)
    resumed = Log(folder, 2)
    train(folder, resumed, letters)
    assert resumed.of("plan")[0].tokens_per_pass == int(correction.new) < 64
    position = read_position(folder.checkpoints / "step-000006")
    assert position["tokens_per_pass"] == int(correction.new)


def test_eight_bit_moments_that_were_half_made_are_made_again(
    run_config: Any, make_folder: Any, letters: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bitsandbytes.optim.optimizer import Optimizer2State

    config = run_config(train__optim="adamw_8bit", lora__r=64, train__max_steps=3)
    honest, found = Optimizer2State.update_step, []
    for at in ((), (1,)):
        with monkeypatch.context() as patch:
            fault = Fault(at)

            def update_step(self: Any, *arguments: Any, fault: Fault = fault) -> None:
                honest(self, *arguments)
                fault()

            patch.setattr(Optimizer2State, "update_step", update_step)
            folder = make_folder(config, f"run{len(at)}")
            log = Log(folder)
            train(folder, log, letters)
            assert [note.code for note in log.of("note")] == ["memory.optimizer"] * len(at)
            found.append(weights(folder))
    state = (folder.checkpoints / "step-000003" / "optimizer.json").read_text()
    assert "absmax1" in state, "there are moments in 8 bits"
    assert apart(found[1], found[0]) == 0.0


VARIANTS: dict[str, dict[str, Any]] = {
    "padded, 8-bit": {"model__quantization": "nf4", "train__optim": "adamw_8bit", "train__packing": False},
    "dpo": {"method": "dpo", "data__layout": "preference", "train__tokens_per_pass": 256},
    "recomputed": {"train__checkpointing": "recompute"},
}


def came_out_alike(whole: tuple[Any, dict[int, Any]], disturbed: tuple[Any, dict[int, Any]]) -> None:
    """Weights, and the loss of every step, up to sums in another order."""
    assert apart(disturbed[0], whole[0]) <= 1e-5
    for step, loss in whole[1].items():
        assert disturbed[1][step] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize(
    "variant", [pytest.param(name, marks=[] if name == "dpo" else pytest.mark.slow) for name in VARIANTS]
)
def test_every_kind_of_run_goes_on(
    variant: str, run_config: Any, make_folder: Any, letters: Any, preferences: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = dict(VARIANTS[variant])
    if variant == "dpo":
        values["data__path"] = str(preferences)
    config, found = run_config(**values, train__max_steps=3), []
    for name in ("whole", "disturbed"):
        folder = make_folder(config, name)
        log = Log(folder)
        with monkeypatch.context() as patch:
            fault = Fault((2, 5) if name == "disturbed" else ())
            backward(0)(patch, fault)
            train(folder, log, letters)
        assert len(fault.raised) == (2 if name == "disturbed" else 0)
        assert bool(log.of("correction")) == (name == "disturbed")
        found.append((weights(folder), log.losses()))
    came_out_alike(*found)


def _before_a_layer(trainer: Any, hook: Any) -> None:
    checkpointing_layers(trainer.model)[1].register_forward_pre_hook(hook)


@pytest.mark.slow
def test_a_reference_that_does_not_fit_leaves_the_adapter_on_and_trained(
    run_config: Any, make_folder: Any, letters: Any, preferences: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DPO switches the adapter off for its reference, and the memory runs out meanwhile."""
    values = {**VARIANTS["dpo"], "data__path": str(preferences), "data__eval_fraction": 0.0}
    config, found = run_config(**values, train__max_steps=2), []
    for name in ("whole", "disturbed"):
        folder = make_folder(config, name)
        log = Log(folder)
        with monkeypatch.context() as patch:
            fault = Fault((1, 2) if name == "disturbed" else ())

            def hook(*_: Any, fault: Fault = fault) -> None:
                if not torch.is_grad_enabled():
                    fault()

            with_trainer(patch, lambda made, hook=hook: _before_a_layer(made, hook))
            train(folder, log, letters)
        assert len(fault.raised) == len(fault.at)
        found.append((weights(folder), log.losses()))
    came_out_alike(*found)


@pytest.mark.parametrize("method", ["sft", pytest.param("dpo", marks=pytest.mark.slow)])
def test_layers_are_set_in_the_language_model_whose_sizes_a_budget_reads(
    method: str, trained: Any, preferences: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_in: list[Any] = []

    def keep(model: Any, *_: Any) -> None:
        set_in.append(model)

    monkeypatch.setattr(oom_recovery, "set_checkpointing", keep)
    forward(0)(monkeypatch, Fault((1,)))
    values = {"train__tokens_per_pass": 1, "train__max_steps": 1}
    if method == "dpo":
        values |= {"method": "dpo", "data__layout": "preference", "data__path": str(preferences)}
    _folder, _ = trained(**values)
    (model,) = set_in
    assert base_causal_model(model).config.vocab_size > 0


def test_what_one_row_needs_is_made_less_and_then_the_run_ends_in_one_line(
    run_config: Any, make_folder: Any, letters: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_folder(run_config(train__tokens_per_pass=1))
    log = Log(folder)
    forward(0)(monkeypatch, Fault(tuple(range(1, 100))))
    with pytest.raises(MachineError, match=r"one row of \d+ tokens, activations recomputed") as caught:
        train(folder, log, letters)
    assert caught.value.code == "memory.row"
    assert "\n" not in str(caught.value)
    (correction,) = log.of("correction")
    assert (correction.key, correction.old, correction.new) == ("train.checkpointing", "none", "recompute")


def test_nothing_of_a_failed_pass_is_alive_when_the_next_one_begins(
    trained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[Any] = []
    fault = Fault((3,))

    def hook(_module: Any, given: Any, output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        if hidden.requires_grad:
            left.append(weakref.ref(hidden))
            fault()

    with_trainer(monkeypatch, lambda made: checkpointing_layers(made.model)[1].register_forward_hook(hook))
    honest, alive = oom_recovery.OomRecovery.make_smaller, []

    def make_smaller(self: Any, *arguments: Any) -> bool:
        alive.append([each() is not None for each in left])
        trained = [p for p in self._trainer.model.parameters() if p.requires_grad]
        assert all(p.grad is None for p in (*trained, *self._trainer.flat.tensors))
        return honest(self, *arguments)

    monkeypatch.setattr(oom_recovery.OomRecovery, "make_smaller", make_smaller)
    _folder, _ = trained(train__max_steps=2)
    assert alive == [[False, False, False]]


def test_dropout_is_drawn_again_alike(trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the passes stay as they were, dropout or not, the window done twice is the window done once."""
    found = []
    for at in ((), (3,)):
        with monkeypatch.context() as patch:
            patch.setattr(oom_recovery.OomRecovery, "make_smaller", lambda *_: True)
            backward(0)(patch, Fault(at))
            folder, _ = trained(f"run{len(at)}", lora__lora_dropout=0.3, train__max_steps=2)
            found.append(weights(folder))
    assert apart(found[1], found[0]) == 0.0


def test_among_other_processes_it_ends_in_a_line_and_waits_for_nobody(channel: Channel) -> None:
    trainer: Any = SimpleNamespace(
        args=SimpleNamespace(device=torch.device("cpu")), accelerator=SimpleNamespace(num_processes=2)
    )
    care = oom_recovery.OomRecovery(trainer, None, RunConfig(), channel, Meter())
    with pytest.raises(MachineError, match="in one of 2") as caught:
        care.until_it_fits(Fault((1,)))
    assert caught.value.code == "memory.ranks"
    with pytest.raises(ZeroDivisionError):
        care.until_it_fits(lambda: 1 // 0)


@pytest.mark.parametrize("half_done", [False, True])
def test_with_a_loss_scaler_a_step_is_done_once(half_done: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for at in ((), (1,)):
        with monkeypatch.context() as patch:
            fault = Fault(at)
            (after_step if half_done else before(torch.optim.AdamW, "step"))(patch, fault)
            weight = torch.nn.Parameter(torch.linspace(-1, 1, 300))
            optimizer = atomic(torch.optim.AdamW, lambda tries: None)([weight], lr=0.1)
            scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
            for _ in range(3):
                optimizer.zero_grad()
                scaler.scale((weight**2).sum()).backward()
                scaler.step(optimizer)
                scaler.update()
            assert len(fault.raised) == len(at)
            found.append(weight.detach().clone())
    assert torch.equal(*found)
    assert not torch.equal(found[0], torch.linspace(-1, 1, 300))


def test_what_other_programs_took_is_waited_for(trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row a pass, everything recomputed: nothing is left but to wait until the others give it back."""
    held = iter([0, *[300 << 20] * 4])
    monkeypatch.setattr(CommandQueue, "wait", lambda *_: None)
    monkeypatch.setattr(oom_recovery.OomRecovery, "_held_by_others", lambda self: next(held, 0))
    forward(0)(monkeypatch, Fault((2, 3)))
    _, log = trained(train__tokens_per_pass=1, train__checkpointing="recompute", train__max_steps=2)
    waited = {event.text for event in log.of("stage") if event.stage == "waiting"}
    assert waited == {"for the card's memory: other programs took 0.3 GiB since this run began"}
    assert list(log.losses()) == [1, 2]
