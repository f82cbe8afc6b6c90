"""Exact resume: however often a run is cut off and where, it ends with the adapter of one that never was.

And what it must not do silently: go on with other data, another base model, other libraries, another split.
"""

import json
import math
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from dying_log import Log
from tiny_run import equal, make_model, sentence, weights

from core.contract.errors import DataError, RunError
from core.contract.events import Event, Resumed
from core.data.files.keep import keep_file
from core.machine.locations import Locations
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import note_began
from core.train.keep import checkpoint, depends
from core.train.keep.depends import DIFFERS, differences
from core.train.keep.saver import read_position
from core.train.methods.answers import AnswerTrainer
from core.train.run import train
from core.train.safety.oom_recovery import OomRecovery

PARTIAL = {"train__gradient_accumulation_steps": 4, "train__max_steps": 8, "train__eval_steps": 5}
"""36 rows in batches of 8: five a epoch, the last of four rows; eight steps are an epoch and a bit."""
SHORT = {"train__max_steps": 4}
NF4 = {"model__quantization": "nf4", "train__optim": "adamw_8bit"}
DROPOUT = {"lora__lora_dropout": 0.1}
EVERYTHING = {"train__learns": "everything", "train__learning_rate": 1e-3}
MATRIX: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "epochs, partial batch": ({**PARTIAL, **DROPOUT, "train__save_steps": 3}, (5, 7)),
    "8-bit, padded": ({**NF4, **DROPOUT, "train__packing": False}, (5,)),
    "dpo, dropout": ({"method": "dpo", "train__tokens_per_pass": 128, **DROPOUT}, (5,)),
    # 22 pairs and answers are six batches an epoch: killed in the first, whose sums are not all known, and later.
    "kto": ({"method": "kto", "train__max_steps": 9, "train__tokens_per_pass": 128}, (3, 7)),
    "orpo": ({"method": "orpo", "train__tokens_per_pass": 128}, (3,)),
    "reward": ({"method": "reward", "train__tokens_per_pass": 128, **DROPOUT}, (3,)),
    "classify": ({"method": "classify", "train__class_weights": "balanced", **NF4, **SHORT}, (3,)),
    "classify, everything, padded": ({"method": "classify", **EVERYTHING, "train__packing": False}, (3,)),
    "dpo, padded, two epochs": ({"method": "dpo", "train__max_steps": 9, "train__packing": False}, (3, 7)),
    "twice within one step": (DROPOUT, (5, 5)),
    "8-bit, packed": ({**NF4, "lora__r": 32}, (3, 5)),
    "cosine, no clipping": ({"train__lr_scheduler_type": "cosine", "train__max_grad_norm": 0.0}, (5,)),
    "adafactor, LoRA+, NEFTune": (
        {"train__optim": "adafactor", "lora__loraplus_lr_ratio": 16.0, "train__neftune_noise_alpha": 5.0, **SHORT},
        (3,),
    ),
    "fused": ({"train__optim": "adamw_torch_fused", "train__learning_rate": 1e-3}, (5,)),
    "lion in 8 bits": ({"train__optim": "lion_8bit", "lora__r": 64, "train__learning_rate": 1e-3}, (5,)),
    "paged": ({"train__optim": "paged_adamw_8bit", "lora__r": 64, "train__learning_rate": 1e-3}, (5,)),
    "PiSSA": ({"lora__init_lora_weights": "pissa_niter_16", "train__learning_rate": 1e-3}, (3, 5)),
    "recomputed": ({"train__checkpointing": "recompute", **DROPOUT}, (3,)),
    "everything, Muon": ({**EVERYTHING, "model__dtype": "bfloat16", "train__optim": "muon"}, (5,)),
    "dpo, everything": ({"method": "dpo", **EVERYTHING, **SHORT}, (3,)),
    "everything, recomputed": ({**EVERYTHING, "train__checkpointing": "recompute"}, (5,)),
    "everything, bfloat16": ({**EVERYTHING, "model__dtype": "bfloat16", "train__optim": "adamw_8bit"}, (3, 5)),
    "embeddings": ({"train__learns": "adapter_embeddings"}, (5,)),
    "embeddings, bfloat16": ({**NF4, "train__learns": "adapter_embeddings", "model__dtype": "bfloat16", **SHORT}, (3,)),
}
OFTEN = (
    "epochs, partial batch", "8-bit, padded", "dpo, everything", "kto", "classify", "adafactor, LoRA+, NEFTune",
    "embeddings, bfloat16",
)  # fmt: skip


def at_step(step: int) -> Callable[[Event], bool]:
    return lambda event: event.kind == "step" and event.step == step


def cut_off(runs: Any, folder: JobFolder, *dies: Callable[[Event], bool]) -> Log:
    """One worker after another is killed as asked; the last one is left alone."""
    for attempt, die in enumerate(dies, start=1):
        log = runs.work(folder, attempt, die)
        assert log.said[-1].kind != "finished"
    last: Log = runs.work(folder, len(dies) + 1)
    return last


@pytest.mark.parametrize(
    "case", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in MATRIX]
)
def test_killed_and_resumed_is_uninterrupted_bit_for_bit(case: str, runs: Any) -> None:
    values, dies = MATRIX[case]
    (whole, first), broken = runs.undisturbed(**values), runs.make("broken", **values)
    last = cut_off(runs, broken, *(at_step(step) for step in dies))
    assert all(loss is not None and math.isfinite(loss) for loss in first.losses().values())
    assert min(last.losses()) > 1
    assert last.losses() == {step: first.losses()[step] for step in last.losses()}
    assert equal(weights(whole), weights(broken))
    newest = checkpoint.latest_good(whole)
    assert newest is not None
    assert not equal(weights(whole), weights(whole, min(path.name for path in whole.checkpoints.iterdir())))
    for name in ("optimizer.json", "scheduler.json"):
        assert (newest / name).read_bytes() == (broken.checkpoints / newest.name / name).read_bytes()
    if case == "epochs, partial batch":
        assert [event.epoch for event in first.of("step")][4:6] == [1.0, 1.2]


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        pytest.param("evaluation", 3, marks=pytest.mark.slow),
        ("evaluating", 3),
        pytest.param("saving", 4, marks=pytest.mark.slow),
        pytest.param("checkpoint", 4, marks=pytest.mark.slow),
    ],
)
def test_cut_off_between_steps(kind: str, step: int, runs: Any) -> None:
    def moment(event: Any) -> bool:
        return kind in (event.kind, getattr(event, "stage", "")) and event.step == step

    whole, _ = runs.undisturbed(**DROPOUT)
    broken = runs.make("broken", **DROPOUT)
    cut_off(runs, broken, moment)
    assert equal(weights(whole), weights(broken))


def test_tokens_a_pass_corrected_in_between_hold_over_resumes(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = OomRecovery.step_done

    def corrected(self: OomRecovery) -> None:
        honest(self)
        if self._trainer.step == 3 and self._trainer.tokens_per_pass != 40:
            self._cut_to(40, "as after memory ran out")

    monkeypatch.setattr(OomRecovery, "step_done", corrected)
    whole, log = runs("whole", **DROPOUT)
    broken = runs.make("broken", **DROPOUT)
    assert [event.key for event in log.of("correction")] == ["train.tokens_per_pass"]
    cut_off(runs, broken, at_step(5))
    assert read_position(broken.checkpoints / "step-000006")["tokens_per_pass"] == 40
    assert equal(weights(whole), weights(broken))


def test_a_manifest_names_what_the_run_depends_on_and_only_what_decides_is_compared(runs: Any) -> None:
    folder, _ = runs.undisturbed()
    noted = checkpoint.read_manifest(folder.checkpoints / "step-000006")["depends"]
    assert {len(noted[name]) for name in ("config", "base", "data")} == {64}
    assert noted["versions"]["torch"] == metadata.version("torch")
    assert set(noted["versions"]) >= {"torch", "transformers", "peft", "bitsandbytes"}
    then = {"data": "a" * 64, "base": "c0ffee", "versions": {"torch": "2.9.0+cpu", "peft": "0.17.1", "trl": "1.0"}}
    same = {"data": "a" * 64, "versions": {"torch": "2.9.0+cu128", "peft": "0.17.1", "trl": "2.0"}}
    assert differences(then, same) == []
    other = {"data": "b" * 64, "base": "decaf", "versions": {"torch": "2.9.1+cpu", "peft": ""}}
    assert differences(then, other) == [
        "another base model (decaf in place of c0ffee)",
        "another data file (bbbbbbbbbbbb in place of aaaaaaaaaaaa)",
        "torch 2.9.1+cpu in place of 2.9.0+cpu",
        "peft missing in place of 0.17.1",
    ]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("halfway") / "now"


@pytest.fixture
def halfway(runs: Any, place: Path) -> JobFolder:
    """A run that was cut off after its second step, on a base and a data file of its own; made once, and put back as it
    was before each test."""
    if place.exists():
        shutil.rmtree(place)
        shutil.copytree(place.with_name("as it was"), place)
        return JobFolder(place / "run")
    place.mkdir()
    rows = [{"prompt": sentence(number), "completion": sentence(number + 3)} for number in range(40)]
    data = place / "own.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    base = make_model(place / "base")
    folder = runs.make(train__max_steps=3, data__path=str(data), model__name=str(base), train__eval_steps=100)
    runs.work(folder, 1, lambda event: event.kind == "checkpoint")
    shutil.move(folder.path, place / "run")
    shutil.copytree(place, place.with_name("as it was"))
    return JobFolder(place / "run")


def change_data(folder: JobFolder, _: pytest.MonkeyPatch) -> None:
    path = Path(folder.config().data.path)
    path.write_text(path.read_text().replace("house", "river"), encoding="utf-8")


def change_base(folder: JobFolder, _: pytest.MonkeyPatch) -> None:
    make_model(Path(folder.config().model.name), intermediate_size=192)


def change_library(_: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    real = depends.version_of
    monkeypatch.setattr(depends, "version_of", lambda name: "9.9.9" if name == "transformers" else real(name))


def change_order(_: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depends, "epoch_batches", lambda rows, *_rest: [list(range(rows))])


CHANGES = {
    "another data file": change_data,
    "another base model": change_base,
    "transformers 9.9.9": change_library,
    "another order of its rows": change_order,
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_another_is_refused_by_name_or_goes_on_anyway(
    what: str, halfway: JobFolder, runs: Any, letters: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    CHANGES[what](halfway, monkeypatch)
    refused = Log(halfway, 2)
    with pytest.raises(RunError) as caught:
        train(halfway, refused, letters)
    assert caught.value.code == DIFFERS
    assert what in caught.value.message
    assert f"resume {halfway.name} --anyway" in caught.value.hint
    assert "\n" not in str(caught.value)
    assert not refused.of("step")
    if what == "another base model":
        return  # the optimiser's numbers are of other shapes: nobody can go on from them
    Log(halfway, 3).write(Resumed(anyway=True))
    log = runs.work(halfway, 3)
    assert list(log.losses()) == [3]
    assert any(note.code == DIFFERS and what in note.text for note in log.of("note"))
    again = runs.work(halfway, 4)  # what stands now was trained with what is there now
    assert not [note for note in again.of("note") if note.code == DIFFERS]


BEGINNINGS: dict[str, dict[str, Any]] = {
    "an adapter of another run": {"resume_from": "earlier"},
    "principal parts": {"lora__init_lora_weights": "pissa_niter_16"},
    "copies of embedding and head": {"train__learns": "adapter_embeddings"},
    "magnitudes": {"lora__use_dora": True},
    "what four bits lose": {"lora__init_lora_weights": "loftq", "model__quantization": "nf4"},
}


@pytest.mark.parametrize(
    ("beginning", "method"),
    [
        pytest.param(name, method, marks=[] if (number, method) in ((0, "dpo"), (1, "kto")) else pytest.mark.slow)
        for number, name in enumerate(BEGINNINGS)
        for method in ("dpo", "kto")
    ],
)
def test_the_reference_is_the_model_before_the_run_after_a_resume_too(beginning: str, method: str, runs: Any) -> None:
    """Not what the checkpoint holds."""
    runs.copy("earlier")
    more = {"train__max_steps": 4, "train__eval_steps": 2, "train__tokens_per_pass": 256, "train__learning_rate": 1e-3}
    values = {"method": method, **BEGINNINGS[beginning], **more}
    (whole, log), broken = runs("whole", **values), runs.make("broken", **values)
    last = cut_off(runs, broken, at_step(3))
    first = log.of("evaluation")[0]
    assert (first.step, first.margin) in ((0, pytest.approx(0.0, abs=1e-5)), (0, None))
    if method == "dpo":
        assert first.loss == pytest.approx(math.log(2), abs=1e-5)
    assert first.loss != log.of("evaluation")[-1].loss
    assert last.losses() == {step: log.losses()[step] for step in last.losses()}
    assert last.of("evaluation")[-1].loss == log.of("evaluation")[-1].loss
    assert equal(weights(whole), weights(broken))


def test_on_another_base_the_references_sums_are_made_anew(
    runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored: list[int] = []
    honest = AnswerTrainer.restore_extra_state
    monkeypatch.setattr(
        AnswerTrainer, "restore_extra_state", lambda self, state: restored.append(1) or honest(self, state)
    )
    base = make_model(tmp_path / "base")
    folder = runs.make(method="dpo", train__max_steps=4, model__name=str(base), train__eval_steps=100)
    runs.work(folder, 1, lambda event: event.kind == "checkpoint")
    runs.work(folder, 2, at_step(3))
    assert restored == [1]
    config = base / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "rms_norm_eps": 1e-2}), encoding="utf-8")
    Log(folder, 3).write(Resumed(anyway=True))
    assert list(runs.work(folder, 3).losses()) == [3, 4]
    assert restored == [1]


def test_a_changed_run_yaml_is_said_before_the_first_checkpoint_and_refused_by_name_after_it(runs: Any) -> None:
    def change(old: str, new: str) -> None:
        folder.run_yaml.write_text(folder.run_yaml.read_text().replace(old, new))

    folder: JobFolder = runs.make(train__max_steps=4, train__save_steps=2, train__eval_steps=100)
    note_began(folder, folder.config())  # as it is made
    change("seed: 3407", "seed: 5")
    (note,) = runs.work(folder, 1, at_step(1)).of("note")
    assert (note.code, "train.seed 5 in place of 3407" in note.text) == ("run.changed", True)
    change("seed: 5", "seed: 5  # mine")
    second = runs.work(folder, 2, lambda event: event.kind == "checkpoint")
    assert second.of("note") == [], "what was said is said once, and a comment changes nothing"
    change("max_steps: 4", "max_steps: 3")
    with pytest.raises(RunError, match=r"another run\.yaml .*: train\.max_steps 3 in place of 4") as caught:
        runs.work(folder, 3)
    assert caught.value.code == DIFFERS
    Log(folder, 4).write(Resumed(anyway=True))
    log = runs.work(folder, 4)
    assert [note.code for note in log.of("note")] == [DIFFERS]
    assert list(log.losses()) == [3]


def test_a_damaged_copy_of_the_data_is_not_trained_on_from_the_first_step_on(
    runs: Any, letters: Any, instructions: Path, tmp_path: Path
) -> None:
    """Neither is what else lies there than run.yaml says; a person may say to go on all the same."""
    locations = Locations(tmp_path / "home")
    kept = keep_file(instructions, locations)
    values = {"train__max_steps": 1, "data__path": str(kept.path), "data__sha256": kept.sha256}
    folder: JobFolder = runs.make(**values)
    kept.path.write_text(kept.path.read_text().replace("house", "river"), encoding="utf-8")
    refused = Log(folder, 1)
    with pytest.raises(DataError, match="data that run") as caught:
        train(folder, refused, letters)
    assert (caught.value.code, refused.of("step")) == ("data.damaged", [])
    assert f"resume {folder.name} --anyway" in caught.value.hint
    keep_file(instructions, locations)  # chosen once more
    mended = runs.work(folder, 2)
    assert list(mended.losses()) == [1]
    assert mended.of("note") == []
    kept.path.write_text(kept.path.read_text().replace("house", "river"), encoding="utf-8")
    other: JobFolder = runs.make("other", **values)
    Log(other, 1).write(Resumed(anyway=True))
    log = runs.work(other, 1)
    assert [note.code for note in log.of("note")] == [DIFFERS]
    assert log.losses()[1] != mended.losses()[1]


def test_which_rows_are_held_out_is_kept_whatever_draws_them_later(
    halfway: JobFolder, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from core.train import reading

    kept = json.loads((halfway.path / "rows.json").read_text())["held_out"]
    assert len(kept) == 4
    monkeypatch.setattr(reading, "split_rows", lambda rows, *_rest: (list(range(4, rows)), [0, 1, 2, 3]))
    seen: list[Any] = []
    honest = depends.KeptRows.agree

    def agree(self: Any, *words: Any) -> Any:
        seen.append(honest(self, *words))
        return seen[-1]

    monkeypatch.setattr(depends.KeptRows, "agree", agree)
    runs.work(halfway, 2)
    ((train_rows, held_out),) = seen
    assert held_out == kept
    assert sorted([*train_rows, *held_out]) == list(range(40))


def test_a_damaged_split_is_drawn_again_and_said(halfway: JobFolder, runs: Any) -> None:
    path = halfway.path / "rows.json"
    before = path.read_text()
    path.write_text(before.replace('"rows": 40', '"rows": 41'))
    log = runs.work(halfway, 2)
    assert "rows.unreadable" in [note.code for note in log.of("note")]
    assert path.read_text() == before


@pytest.mark.slow
def test_a_run_goes_on_from_one_that_began_at_what_four_bits_lose(runs: Any) -> None:
    """From the model as it was trained, with its correction; what it saves is the change since the first beginning."""
    more = {"model__quantization": "nf4", "train__max_steps": 4, "train__eval_steps": 2, "train__learning_rate": 1e-3}
    first, log = runs("first", lora__init_lora_weights="loftq", **more)
    second, further = runs("second", resume_from="first", **more)
    losses = [one.loss for one in log.of("evaluation")]
    assert further.of("evaluation")[0].loss == losses[-1] != losses[-2]
    assert {name: value.shape for name, value in weights(first).items()} == {
        name: value.shape for name, value in weights(second).items()
    }
