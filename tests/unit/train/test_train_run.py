"""Runs in this process, on the CPU: what they say and keep, what they go on from, and what is asked meanwhile."""

import json
import math
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dying_log import Killed, Log
from tiny_run import equal, weights

from core.contract.commands import Command
from core.contract.config import RunConfig
from core.contract.errors import DataError, MachineError, RunError
from core.contract.events import Event
from core.estimate.eight_bits import served
from core.machine.hardware import Gpu, Machine
from core.machine.locations import Locations
from core.models.catalog import catalogue
from core.runs.folder.notes import note_asked
from core.runs.log.events_log import EventTail
from core.runs.record.job_record import RunRecord, effective_config, fold, folded
from core.runs.record.learned import speeds
from core.train import arithmetic, setup
from core.train import run as run_module
from core.train.channel.reporter import EventReporter
from core.train.evaluate import held_out as held_out_module
from core.train.keep import checkpoint
from core.train.keep.start_adapter import start_folder
from core.train.run import train

DPO = {"method": "dpo", "train__tokens_per_pass": 128}


def test_a_checkpoint_whose_writer_died_before_its_word_is_announced_by_the_next(runs: Any, letters: Any) -> None:
    class Mute(Log):
        def write(self, event: Any) -> Any:
            if event.kind == "checkpoint" and event.step == 4:
                raise Killed
            return super().write(event)

    folder = runs.make()
    with pytest.raises(Killed):
        train(folder, Mute(folder), letters)
    assert checkpoint.latest_good(folder) == folder.checkpoints / "step-000004"
    resumed = runs.work(folder, 2)
    told = [(event.step, event.name) for event in resumed.of("checkpoint")]
    assert told[0] == (4, "step-000004")
    assert resumed.of("starting")[-1].resumed_step == 4


def test_a_run_says_what_it_does_in_order(runs: Any) -> None:
    folder, log = runs.undisturbed()
    stages = list(dict.fromkeys(event.stage for event in log.of("stage")))
    assert stages == ["preparing", "loading", "evaluating", "first_step", "training", "saving"]
    plan = log.of("plan")[0]
    assert (plan.total_steps, plan.train_rows, plan.eval_rows) == (6, 36, 4)
    assert plan.train_tokens > plan.trained_tokens > 0
    assert plan.trainable_parameters > 0
    assert plan.lines
    assert [event.step for event in log.of("evaluation")] == [0, 3, 6]
    step = log.of("step")[1]
    assert step.learning_rate == pytest.approx(1e-2)
    assert step.epoch == pytest.approx(2 / 9)
    assert step.tokens > 0
    assert step.tokens_per_second > 0
    assert step.grad_norm > 0
    assert step.memory_bytes > 1e6
    assert (step.margin, step.accuracy) == (None, None), "those are DPO's"
    assert (log.said[-1].kind, log.said[-1].step) == ("finished", 6)
    names = sorted(path.name for path in folder.checkpoints.iterdir())
    assert {event.name for event in log.of("checkpoint")} >= set(names)
    assert names[-1] == "step-000006"
    best = min((event for event in log.of("evaluation") if event.step), key=lambda event: event.loss)
    assert checkpoint.best(folder) == folder.checkpoints / f"step-{best.step:06d}"


def test_a_run_whose_card_multiplies_no_eight_bits_says_so_and_takes_sixteen(runs: Any) -> None:
    """A run.yaml names fp8, as it was resolved on another machine."""
    _, log = runs(train__arithmetic="fp8", train__max_steps=1)
    why = "fp8 is for graphics cards; the CPU computes in 32 bits"
    assert [line for line in log.of("plan")[0].lines if "arithmetic" in line] == [f"train.arithmetic = 16-bit: {why}"]
    assert log.said[-1].kind == "finished"


def test_auto_is_sixteen_bits_without_a_card_and_stays_what_it_was(runs: Any) -> None:
    """As the window leaves it: asked.json says "auto", run.yaml what the plan foresaw."""
    folder = runs.make(train__max_steps=2, train__save_steps=1)
    asked = folder.config()
    note_asked(folder, asked.model_copy(update={"train": asked.train.model_copy(update={"arithmetic": "auto"})}))
    first = runs.work(folder, 1, lambda event: event.kind == "checkpoint" and event.step == 1)
    why = "8 bits are for graphics cards; the CPU computes in 32 bits"
    assert [line for line in first.of("plan")[0].lines if "arithmetic" in line] == [f"train.arithmetic = 16-bit: {why}"]
    again = runs.work(folder, 2)
    assert (again.said[-1].kind, again.of("correction")) == ("finished", []), "run.yaml says so too"


def test_ranks_compute_as_the_oldest_of_their_cards_can() -> None:
    """fp8 begins with 8.9: rank 0 would take it, and the card beside it could not."""
    ada = Gpu(0, "GPU-1", "NVIDIA GeForce RTX 4090", 24 << 30, 22 << 30, (8, 9))
    machine = Machine((ada,), 8, 1 << 35, 1 << 35, None, "Linux", wsl=False)
    spec = next(spec for spec in catalogue() if spec.key == "mistral-7b")
    config = RunConfig.model_validate({"model": {"dtype": "bfloat16"}, "train": {"arithmetic": "fp8"}})

    def taken(*others: tuple[int, int]) -> str:
        ranks: Any = SimpleNamespace(heard=lambda mine: [list(mine), *map(list, others)])
        return served(config, spec, setup._as_the_oldest(machine, ranks))[0].train.arithmetic

    assert [taken(), taken((9, 0)), taken((9, 0), (8, 6)), taken((99, 0))] == ["fp8", "fp8", "16-bit", "fp8"]


def test_a_run_takes_what_a_trial_finds_and_keeps_it_for_the_next_plan(
    runs: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a card that is stood in for, with times that are."""
    gpu = Gpu(0, "GPU-1", "NVIDIA H200", 140 << 30, 140 << 30, (9, 0))
    machine, home = Machine((gpu,), 8, 1 << 35, 1 << 35, None, "Linux", wsl=False), Locations(tmp_path / "home").make()
    spec = next(spec for spec in catalogue() if spec.key == "mistral-7b")
    times, asked_for = {"16-bit": 14.2, "fp8": 11.0, "int8": 11.8}, list[tuple[str, ...]]()

    def layer(_model: Any, _tokens: int, names: tuple[str, ...], _dtype: Any) -> dict[str, float]:
        asked_for.append(names)
        return times

    monkeypatch.setattr(arithmetic, "milliseconds_a_layer", layer)
    monkeypatch.setattr(arithmetic.Locations, "find", lambda: home)
    config = RunConfig.model_validate(
        {"model": {"dtype": "bfloat16"}, "train": {"arithmetic": "auto", "optim": "adamw_8bit"}}
    )
    folder = runs.make()
    said = Log(folder)
    for _ in range(2):
        loaded = None, torch.bfloat16
        settled, (line,) = arithmetic.settled(config, spec, (machine, None), loaded, folder, EventReporter(said))
        assert settled.train.arithmetic == line.value == "int8"
    first, second = said.of("correction")
    assert first.reason.startswith("after a trial of 0.0 s: 1.2 times as fast as 16 bits on this card (a layer's")
    assert second.reason == first.reason.partition(": ")[2]
    assert asked_for == [("16-bit", "fp8", "int8")], "the second run knows"
    assert speeds(home).trials[0].milliseconds == times
    record = fold(said.said)
    kept = arithmetic.reopened(config, folder, record, resumed=False)
    assert effective_config(kept, record.corrections).train.arithmetic == "int8", "a later attempt takes the same"
    assert arithmetic.reopened(settled, folder, record, resumed=False) == settled
    assert arithmetic.reopened(config, folder, RunRecord(), resumed=False).train.arithmetic == "auto"


def test_a_checkpoint_holds_no_pickle_and_an_adapter_that_plain_peft_loads(runs: Any, tiny_model: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder, _log = runs.undisturbed()
    files = [path for path in folder.checkpoints.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".safetensors", ".json", ".md"}
    assert all(path.read_bytes()[:2] != b"\x80\x04" for path in files)
    adapter = folder.checkpoints / "step-000006" / "adapter"
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_model), adapter)
    ids = torch.tensor([[5, 6, 7, 8]])
    tuned = model(input_ids=ids).logits
    with model.disable_adapter():
        assert not torch.equal(tuned, model(input_ids=ids).logits)


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(runs: Any) -> None:
    folder, whole = runs.copy()
    before = weights(folder)
    (folder.checkpoints / "step-000006" / "optimizer.json").write_text("{}")
    resumed = runs.work(folder, 2)
    note = resumed.of("note")[0]
    assert note.code == "checkpoint.bad"
    assert "step-000006" in note.text
    assert [event.resumed_step for event in resumed.of("starting")] == [4]
    assert resumed.losses() == {step: whole.losses()[step] for step in (5, 6)}
    assert equal(weights(folder), before)


def test_resume_from_starts_with_the_other_runs_adapter(runs: Any) -> None:
    _folder, log = runs.copy("earlier")
    _further, said = runs("further", resume_from="earlier", train__max_steps=1)
    best = min(event.loss for event in log.of("evaluation") if event.step)
    assert said.of("evaluation")[0].loss == pytest.approx(best, rel=1e-6)
    with pytest.raises(RunError, match="nowhere"):
        runs("lost", resume_from="nowhere")


def test_what_a_run_goes_on_from_is_kept_with_it(runs: Any) -> None:
    """The other run trains on, or is deleted: adapter and reference stay what they were, bit for bit."""
    earlier, _log = runs.copy("earlier")
    values = {**DPO, "resume_from": "earlier", "train__max_steps": 3}
    (whole, said), broken = runs("whole", **values), runs.make("broken", **values)
    assert said.of("evaluation")[0].loss == pytest.approx(math.log(2), rel=1e-5), "that adapter is the reference"
    assert not (whole.checkpoints / "step-000003" / "adapter" / "ref").exists()
    runs.work(broken, 1, lambda event: event.kind == "checkpoint")
    kept = checkpoint.read_manifest(broken.checkpoints / "step-000002")["depends"]["start"]
    for number, path in enumerate(sorted(earlier.checkpoints.iterdir())):
        checkpoint.add_facts(path, {"eval_loss": float(number)})  # another is the best now
    assert list(runs.work(broken, 2).losses()) == [3]
    assert equal(weights(broken), weights(whole))
    assert checkpoint.read_manifest(broken.checkpoints / "step-000003")["depends"]["start"] == kept
    shutil.rmtree(earlier.path)
    checkpoint.remove_after(broken, 2)
    runs.work(broken, 3)
    assert equal(weights(broken), weights(whole))
    (start_folder(broken, broken.config()) / "adapter_model.safetensors").write_bytes(b"damaged")
    with pytest.raises(RunError, match="earlier to start from, found none"):
        runs.work(broken, 4)


def test_a_run_of_before_goes_on_from_the_other_runs_best(runs: Any) -> None:
    """Nothing was kept with it, and its checkpoints name nothing that it goes on from."""
    runs.copy("earlier")
    further = runs.make("further", resume_from="earlier", train__max_steps=3)
    runs.work(further, 1, lambda event: event.kind == "checkpoint")
    (newest,) = further.checkpoints.iterdir()
    depends = checkpoint.read_manifest(newest)["depends"]
    del depends["start"]
    checkpoint.add_facts(newest, {"depends": depends})
    shutil.rmtree(start_folder(further, further.config()).parent)
    log = runs.work(further, 2)
    assert list(log.losses()) == [3]
    assert log.of("note") == []


def test_dpo_tells_margin_and_accuracy_of_its_pairs_and_answers_on_the_way(runs: Any) -> None:
    """With one pair a step the loss is the margin's own: -log σ(margin). Micro-batches of one pair each, so
    that a batch of several is the mean of theirs."""
    one = {"train__per_device_train_batch_size": 1, "train__gradient_accumulation_steps": 1, "train__sample_rows": 1}
    _folder, said = runs(method="dpo", **one, train__tokens_per_pass=8)
    steps, held_out = said.of("step"), said.of("evaluation")
    for event in steps:
        assert event.loss == pytest.approx(math.log1p(math.exp(-event.margin)), rel=1e-4)
        assert event.accuracy == (1.0 if event.margin > 0 else 0.5 if event.margin == 0 else 0.0)
    assert (held_out[0].margin, held_out[0].accuracy) == (0.0, 0.5), "nothing differs from the reference yet"
    assert held_out[0].loss == pytest.approx(math.log(2))
    assert held_out[-1].margin not in (None, 0.0)
    assert 0.0 <= held_out[-1].accuracy <= 1.0
    first = said.of("sample")[0]
    assert (first.step, first.side) == (0, "base")
    assert {event.right for event in said.of("sample")} != {""}


def test_what_is_measured_of_held_out_marks_is_a_mean_over_all_of_them(
    runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a group of rows has marks of one kind only."""
    values = {"method": "kto", "train__max_steps": 2, "train__eval_steps": 2, "data__eval_fraction": 0.3}
    _, together = runs.undisturbed(**values)
    monkeypatch.setattr(held_out_module, "EVALUATION_ROWS", 1)
    _, alone = runs(**values)
    last, wanted = alone.of("evaluation")[-1], together.of("evaluation")[-1]
    for name in ("chosen_reward", "rejected_reward", "margin"):
        assert getattr(wanted, name) not in (None, 0.0)
        assert getattr(last, name) == pytest.approx(getattr(wanted, name), rel=1e-4), name


def test_data_that_trains_nothing_fails_before_a_model_loads(runs: Any, letters: Any, tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    row = {"prompt": "cat " * 100, "completion": "dog"}
    path.write_text("".join(json.dumps(row) + "\n" for _ in range(6)), encoding="utf-8")
    folder = runs.make(data__path=str(path))
    log = Log(folder)
    with pytest.raises(DataError, match="none in 6 rows cut at 64 tokens") as caught:
        train(folder, log, letters)
    assert "Max length" in caught.value.hint
    assert "loading" not in {event.stage for event in log.of("stage")}


@pytest.mark.parametrize(("verb", "ending"), [("pause", "paused"), ("stop", "stopped")])
def test_leaving_while_the_model_loads_keeps_nothing_and_says_so(
    runs: Any, letters: Any, verb: Any, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = runs.make()
    log = Log(folder)
    real = run_module.prepare

    def slow(config: RunConfig, *arguments: Any) -> Any:
        letters.waiting = [Command(verb=verb)]
        while not log.of("acknowledged"):
            time.sleep(0.01)
        return real(config, *arguments)

    monkeypatch.setattr(run_module, "prepare", slow)
    train(folder, log, letters)
    assert log.said[-1].kind == ending
    assert getattr(log.said[-1], "kept", False) is False
    assert not log.of("step")


def test_what_is_asked_in_mid_run_is_done_at_a_seam(runs: Any, letters: Any) -> None:
    folder = runs.make(train__max_steps=400, train__save_steps=1000, train__eval_steps=1000)
    first = [Command(id="s", verb="sample", prompt="the cat", max_new_tokens=5), Command(id="k", verb="save")]
    asked = [Command(id="p", verb="pause")]

    def then(event: Event) -> None:
        if event.kind == "step" and event.step == 3:
            letters.waiting.extend(first)
        if event.kind == "checkpoint" and asked:
            letters.waiting.append(asked.pop())

    log = runs.work(folder, 1, then)
    assert [event.command for event in log.of("acknowledged")] == ["sample", "save", "pause"]
    assert [(event.command_id, event.side) for event in log.of("sample")] == [("s", "base"), ("s", "tuned")]
    assert all(event.text for event in log.of("sample"))
    saved = log.of("checkpoint")
    assert log.said[-1].kind == "paused"
    assert log.said[-1].step == saved[-1].step < 400
    assert checkpoint.latest_good(folder) == folder.checkpoints / saved[-1].name
    assert [event.kind for event in EventTail(folder.events).read()] == [event.kind for event in log.said]


@pytest.mark.parametrize("verb", ["save", "pause"])
def test_a_checkpoint_saved_during_an_evaluation_gets_its_loss_and_the_mark(verb: Any, runs: Any, letters: Any) -> None:
    folder = runs.make(train__save_steps=1000)
    log = Log(folder)
    asked: list[Event] = []

    def then(event: Any) -> None:
        if event.kind == "stage" and event.stage == "evaluating" and event.step == 3 and not asked:
            asked.append(event)
            letters.waiting.append(Command(id="k", verb=verb))
            while not log.of("acknowledged"):
                time.sleep(0.01)

    log = Log(folder, 1, then)  # type: ignore[arg-type]
    train(folder, log, letters)
    assert next(event.eval_loss for event in log.of("checkpoint") if event.step == 3) is None
    if verb == "pause":
        assert log.said[-1].kind == "paused"
        log = runs.work(folder, 2)
    (measured,) = [event for event in log.of("evaluation") if event.step == 3]
    told = [event for event in log.of("checkpoint") if event.step == 3]
    before = folded(folder).evaluations[0].loss
    assert (told[-1].eval_loss, told[-1].best) == (measured.loss, measured.loss < before)
    path = folder.checkpoints / "step-000003"
    assert checkpoint.read_manifest(path)["eval_loss"] == measured.loss
    assert checkpoint.verify(path) == ""
    assert not list(path.glob(".tmp*"))


def test_a_card_that_pytorch_cannot_use_is_said_and_not_replaced_by_the_cpu(
    runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = Gpu(0, "GPU-1", "NVIDIA GeForce RTX 3060", None, None, (8, 6), "470.1")
    monkeypatch.setattr(run_module, "read_machine", lambda: Machine((card,), 1, 1, 1, None, "Linux", False))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MachineError, match=r"RTX 3060.*launcher\.py --torch") as caught:
        runs()
    assert "\n" not in str(caught.value)
