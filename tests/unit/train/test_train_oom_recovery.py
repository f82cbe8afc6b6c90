"""After an out of memory: what is freed, what is corrected, who goes on, and who ends in a line."""

import weakref
from typing import Any

import pytest
import torch
from dying_log import Log
from memory_faults import Fault, Inject, after_step, apart, backward, before, forward, with_trainer
from tiny_run import weights
from transformers import Adafactor

from core.contract.config import LoraChoice
from core.contract.errors import MachineError
from core.model.layers.checkpointing import checkpointing_layers
from core.model.layers.peft_bnb import base_causal_model
from core.train.channel.command_queue import Afresh, CommandQueue
from core.train.keep.saver import read_position
from core.train.run import train
from core.train.safety import oom_recovery
from core.train.step.optimizer import atomic


def test_a_half_done_optimiser_step_goes_back_to_the_last_checkpoint(
    runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, folder = runs.undisturbed()[0], runs.make()
    with monkeypatch.context() as patch:
        after_step(patch, Fault((4,)))
        with pytest.raises(Afresh, match="back to the last checkpoint"):
            runs.work(folder)
    assert list(runs.work(folder, 2).losses()) == [4, 5, 6]
    assert apart(weights(folder), weights(whole)) == 0.0


def test_the_next_attempt_begins_with_the_corrected_number_though_nothing_was_saved_since(
    runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = runs.make()
    with monkeypatch.context() as patch:
        forward(0)(patch, Fault((5,)))  # in step 3; the last checkpoint is of step 2
        log = runs.work(folder, 1, lambda event: event.kind == "correction")
    (correction,) = log.of("correction")
    assert (correction.key, correction.old, correction.step) == ("train.tokens_per_pass", "64", 2)
    resumed = runs.work(folder, 2)
    assert resumed.of("plan")[0].tokens_per_pass == int(correction.new) < 64
    assert read_position(folder.checkpoints / "step-000006")["tokens_per_pass"] == int(correction.new)


def eight_bit_moments(patch: pytest.MonkeyPatch, fault: Fault) -> None:
    """At the end of one tensor's step."""
    from bitsandbytes.optim.optimizer import Optimizer2State

    honest = Optimizer2State.update_step

    def update_step(self: Any, *arguments: Any) -> None:
        honest(self, *arguments)
        fault()

    patch.setattr(Optimizer2State, "update_step", update_step)


def adafactor_half_done(patch: pytest.MonkeyPatch, fault: Fault) -> None:
    """In the middle of a step, after some matrices."""
    honest, calls = Adafactor._approx_sq_grad, iter(range(10_000))

    def approximated(*arguments: Any) -> Any:
        if next(calls) == 9:
            fault()
        return honest(*arguments)

    patch.setattr(Adafactor, "_approx_sq_grad", staticmethod(approximated))


def muon_half_done(patch: pytest.MonkeyPatch, fault: Fault) -> None:
    """After some matrices; AdamW's part is still to come."""
    import torch.optim._muon as muon

    honest, calls = muon._adjust_lr, iter(range(10_000))

    def adjusted(*arguments: Any) -> Any:
        if next(calls) % 14 == 9:  # of 14 matrices
            fault()
        return honest(*arguments)

    patch.setattr(muon, "_adjust_lr", adjusted)


def test_half_a_step_of_muon_is_no_step(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts none: what it changed says so."""
    folder = runs.make(**MUON)
    muon_half_done(monkeypatch, Fault((2,)))
    with pytest.raises(Afresh, match="back to the last checkpoint"):
        runs.work(folder)


def the_reference(patch: pytest.MonkeyPatch, fault: Fault) -> None:
    """In DPO's forward pass with the adapter off."""

    def hook(*_: Any) -> None:
        if not torch.is_grad_enabled():
            fault()

    with_trainer(patch, lambda made: checkpointing_layers(made.model)[1].register_forward_pre_hook(hook))


def the_divergence(patch: pytest.MonkeyPatch, fault: Fault) -> None:
    """In KTO's forward passes before the first micro-batch of a step, from its first step on."""

    def then(made: Any) -> None:
        honest = made._moved

        def moved(*given: Any) -> Any:
            fault()
            return honest(*given)

        made._moved = moved

    with_trainer(patch, then)


DPO = {"method": "dpo", "train__tokens_per_pass": 256}
MUON = {"train__learns": "everything", "train__learning_rate": 1e-3, "train__optim": "muon"}
EIGHT = {"train__optim": "adamw_8bit"}
VARIANTS: dict[str, tuple[dict[str, Any], Inject, tuple[int, ...], float]] = {
    "8-bit moments half made": ({**EIGHT, "lora__r": 64}, eight_bit_moments, (1,), 0.0),
    "dpo": (DPO, backward(0), (2, 5), 1e-5),
    "dpo's reference": ({**DPO, "data__eval_fraction": 0.0, "train__max_steps": 2}, the_reference, (1, 2), 1e-5),
    "kto's divergence": (
        {"method": "kto", "train__tokens_per_pass": 256, "data__eval_fraction": 0.0}, the_divergence, (1, 4), 1e-5,
    ),
    "kto's divergence, padded": (
        {"method": "kto", "train__packing": False, "data__eval_fraction": 0.0}, the_divergence, (1,), 1e-5,
    ),
    "classify": ({"method": "classify", "train__tokens_per_pass": 128}, backward(0), (2, 5), 1e-5),
    "reward": ({"method": "reward", "train__tokens_per_pass": 256}, backward(0), (2, 5), 1e-5),
    "padded, 8-bit": (
        {**EIGHT, "model__quantization": "nf4", "train__packing": False}, backward(0), (2, 5), 1e-5,
    ),
    "adafactor half done": (
        {"train__optim": "adafactor", "lora__target_modules": LoraChoice().target_modules},
        adafactor_half_done, (1,), 0.0,
    ),
    "Muon half done": (MUON, muon_half_done, (1,), 0.0),
    "NEFTune": ({"train__neftune_noise_alpha": 50.0}, backward(0), (2, 5), 1e-5),
    "NEFTune on pairs": ({**DPO, "train__neftune_noise_alpha": 50.0}, backward(0), (2, 5), 1e-5),
    "recomputed": ({"train__checkpointing": "recompute"}, backward(0), (2, 5), 1e-5),
}  # fmt: skip


@pytest.mark.parametrize(
    "variant",
    [pytest.param(name, marks=[] if number < 2 else pytest.mark.slow) for number, name in enumerate(VARIANTS)],
)
def test_every_kind_of_run_goes_on(variant: str, runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights and the loss of every step come out alike, up to sums in another order."""
    values, inject, at, close = VARIANTS[variant]
    values = {"train__max_steps": 3, **values}
    whole, undisturbed = runs.undisturbed(**values)
    fault = Fault(at)
    inject(monkeypatch, fault)
    folder, log = runs(**values)
    assert len(fault.raised) == len(at)
    told = {note.code for note in log.of("note") if note.code.startswith("memory.")}
    assert told == (set() if log.of("correction") else {"memory.optimizer"})
    assert not [one for one in log.of("correction") if "pass of 0 tokens" in one.reason]
    assert apart(weights(folder), weights(whole)) <= close
    assert log.losses() == pytest.approx(undisturbed.losses(), rel=close)
    if values.get("lora__r"):
        assert "absmax1" in (folder.checkpoints / "step-000003" / "optimizer.json").read_text(), "moments in 8 bits"


@pytest.mark.parametrize("goes_on", [True, False], ids=["smaller", "not even a row"])
def test_memory_that_runs_out_before_an_evaluation_never_ends_a_run(
    goes_on: bool, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"method": "kto", "train__max_steps": 1, "train__eval_steps": 1}
    _, undisturbed = runs.undisturbed(**values)
    the_divergence(monkeypatch, Fault((1,) if goes_on else tuple(range(1, 8))))  # in the evaluation at step 0
    _, log = runs(**values)
    assert log.losses() == undisturbed.losses()
    first, whole = log.of("evaluation")[0], undisturbed.of("evaluation")[0]
    assert first.loss == (pytest.approx(whole.loss, rel=1e-5) if goes_on else None)
    assert [note.code for note in log.of("note")] == ([] if goes_on else ["memory.evaluation"])
    assert log.of("evaluation")[-1].loss is not None


@pytest.mark.parametrize("method", ["sft", pytest.param("dpo", marks=pytest.mark.slow)])
def test_layers_are_set_in_the_language_model_whose_sizes_a_budget_reads(
    method: str, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_in: list[Any] = []
    monkeypatch.setattr(oom_recovery, "set_checkpointing", lambda model, *_, **__: set_in.append(model))
    forward(0)(monkeypatch, Fault((1,)))
    runs(method=method, train__tokens_per_pass=1, train__max_steps=1)
    (model,) = set_in
    assert base_causal_model(model).config.vocab_size > 0


def test_what_one_row_needs_is_made_less_and_then_the_run_ends_in_one_line(
    runs: Any, letters: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = runs.make(train__tokens_per_pass=1)
    log = Log(folder)
    forward(0)(monkeypatch, Fault(tuple(range(1, 100))))
    with pytest.raises(MachineError, match=r"one row of \d+ tokens, activations recomputed") as caught:
        train(folder, log, letters)
    assert caught.value.code == "memory.row"
    assert "\n" not in str(caught.value)
    (correction,) = log.of("correction")
    assert (correction.key, correction.old, correction.new) == ("train.checkpointing", "none", "recompute")


def test_nothing_of_a_failed_pass_is_alive_when_the_next_one_begins(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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
    runs(train__max_steps=2)
    assert alive == [[False, False, False]]


def test_dropout_is_drawn_again_alike(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the micro-batches stay as they were, dropout or not, the batch done twice is the batch done once."""
    values = {"lora__lora_dropout": 0.3, "train__max_steps": 2}
    whole, _ = runs.undisturbed(**values)
    monkeypatch.setattr(oom_recovery.OomRecovery, "make_smaller", lambda *_: True)
    backward(0)(monkeypatch, Fault((3,)))
    assert apart(weights(runs(**values)[0]), weights(whole)) == 0.0


@pytest.mark.parametrize("half_done", [False, True])
def test_with_a_loss_scaler_a_step_is_done_once(half_done: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = []
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
            stepped.append(weight.detach().clone())
    assert torch.equal(*stepped)
    assert not torch.equal(stepped[0], torch.linspace(-1, 1, 300))


def test_what_other_programs_took_is_waited_for(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row a pass, everything recomputed: nothing is left but to wait until the others give it back."""
    held = iter([0, *[300 << 20] * 4])
    monkeypatch.setattr(CommandQueue, "wait", lambda *_: None)
    monkeypatch.setattr(oom_recovery.OomRecovery, "_held_by_others", lambda self: next(held, 0))
    forward(0)(monkeypatch, Fault((2, 3)))
    _, log = runs(train__tokens_per_pass=1, train__checkpointing="recompute", train__max_steps=2)
    waited = {event.text for event in log.of("stage") if event.stage == "waiting"}
    assert waited == {"for the card's memory: other programs took 0.3 GiB since this run began"}
    assert list(log.losses()) == [1, 2]
