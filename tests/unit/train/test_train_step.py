"""What lies between two steps: little, and nothing of it changes a number."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_run import weights
from torch import nn

from core.contract.config import LoraChoice, RunConfig
from core.contract.errors import RunError
from core.contract.events import Event
from core.estimate.inputs.work import work_of
from core.model.adapters import Trained
from core.model.layers import decoder_layer, surgery
from core.model.loading.load import LoadedModel
from core.models.catalog import find_model
from core.train.channel.reporter import EventReporter
from core.train.methods import sft as trainers
from core.train.ranks.group import Ranks
from core.train.ranks.pace import Paces
from core.train.safety.guard import Guard
from core.train.setup import make_trainer
from core.train.step import optimizer
from core.train.step.batches import pack
from core.train.step.optimizer import FlatParameters
from core.train.step.rows import TextRows
from core.train.step.trainer import StepTrainer
from tests.unit.model.model_tiny import adapt, build

RARELY = {"train__save_steps": 1000, "train__eval_steps": 1000}


def by_single_tensors(patch: pytest.MonkeyPatch) -> None:
    """As transformers makes it, each tensor by itself."""
    patch.setattr(optimizer, "_parts", lambda group, _eight_bit: [[parameter] for parameter in group])


def counting(honest: Any, count: Any) -> Any:
    def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        count(self)
        return honest(self, *arguments, **options)

    return counted


@pytest.mark.parametrize(("optim", "clip"), [("adamw_torch", 0.05), ("adamw_8bit", 1000)])
def test_a_run_over_flat_parameters_is_the_one_over_single_tensors(
    optim: str, clip: float, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At rank 80 some matrices have more than 4,096 values and some fewer; biases have a weight decay of their own.
    values = {"train__optim": optim, "train__max_grad_norm": clip, "lora__r": 80, "lora__bias": "lora_only", **RARELY}
    values["lora__target_modules"] = LoraChoice().target_modules
    folder, log = runs("flat", **values)
    by_single_tensors(monkeypatch)
    other, single = runs("single", **values)
    flat, apart = weights(folder), weights(other)
    assert flat.keys() == apart.keys()
    for name, tensor in flat.items():  # where clipping did something the norm's last digit is another
        assert (tensor - apart[name]).norm() <= (0 if clip == 1000 else 2e-3) * apart[name].norm(), name
    norms = [[event.grad_norm for event in each.of("step")] for each in (log, single)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-6 if clip == 1000 else 1e-2)
    assert min(norms[0]) > 0.05, "what is shown is the norm before clipping, and clipping did something"
    if optim == "adamw_8bit":
        few, all_ = ((each.checkpoints / "step-000006" / "optimizer.json").read_text() for each in (folder, other))
        assert 2 <= few.count('"state1"') < 6 < 20 < all_.count('"state1"')


def test_a_saved_adapter_holds_each_tensor_once_and_a_restored_one_is_still_a_view(
    runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(
        StepTrainer, "create_optimizer", counting(StepTrainer.create_optimizer, lambda self: made.append(self))
    )
    folder, _ = runs.copy()
    path = folder.checkpoints / "step-000006" / "adapter" / "adapter_model.safetensors"
    assert path.stat().st_size < sum(tensor.nbytes for tensor in load_file(path).values()) + 20_000
    runs.work(folder, 2)  # takes up the last step, and is done
    trainer = made[-1]
    homes = {tensor.untyped_storage().data_ptr() for tensor in trainer.flat.tensors}
    assert trainer.flat.parameters
    assert all(p.untyped_storage().data_ptr() in homes for p in trainer.flat.parameters)
    saved = weights(folder)
    for name, parameter in trainer.model.model.named_parameters():
        if parameter.requires_grad:
            assert torch.equal(parameter, saved[name.replace(".default", "")]), name


def test_a_step_walks_no_modules(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[str] = []
    for name in ("named_modules", "train", "named_parameters"):
        counted = counting(getattr(nn.Module, name), lambda _self, name=name: walked.append(name))
        monkeypatch.setattr(nn.Module, name, counted)
    seen: dict[int, list[str]] = {}

    def at_step(event: Event) -> None:
        if event.kind == "step":
            seen[event.step] = list(walked)
            walked.clear()

    runs.work(runs.make(**RARELY), 1, at_step)
    assert "train" in seen[1], "the first step does, so this says something"
    assert [seen[step] for step in range(2, 7)] == [[]] * 5


@pytest.mark.parametrize("tokens_per_pass", [16, 10_000])
def test_looking_ahead_saves_the_work_and_changes_nothing(
    tokens_per_pass: int, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[bool] = []
    counted = counting(trainers.TextTrainer.tensors, lambda self: made.append(self.model.training))
    monkeypatch.setattr(trainers.TextTrainer, "tensors", counted)
    values = {"train__max_steps": 6, "train__tokens_per_pass": tokens_per_pass, "lora__lora_dropout": 0.1, **RARELY}
    values["data__eval_fraction"] = 0.5  # twenty rows, five steps an epoch
    ahead, count = runs("ahead", **values)[1], sum(made)
    made.clear()
    monkeypatch.setattr(trainers.TextTrainer, "look_ahead", lambda *_: None)
    late = runs("late", **values)[1]
    assert ahead.losses() == late.losses()
    assert len(ahead.losses()) == 6, "two epochs: also across the boundary between them"
    assert count == sum(made) > 0, "each pass was made once, whether ahead or not"


def test_a_packed_pass_is_the_rows_end_to_end_and_each_part_is_aligned() -> None:
    rows = TextRows()
    for length in (1, 7, 64, 57):
        rows.append(range(100, 100 + length), [-100, *range(101, 100 + length)])
    for chosen in ([0], [1, 0, 3], [2], [3, 2, 1, 0]):
        batch: dict[str, Any] = pack([rows.sequences(row)[0] for row in chosen], torch.device("cpu"))
        assert torch.equal(batch["input_ids"][0], torch.cat([rows.ids[row] for row in chosen]))
        assert batch["position_ids"][0].tolist() == [at for row in chosen for at in range(rows.length(row))]
        labels = [-100 if at == 0 else int(value) for row in chosen for at, value in enumerate(rows.labels[row])]
        assert batch["labels"][0].tolist() == labels
        ends = [0]
        for row in chosen:
            ends.append(ends[-1] + rows.length(row))
        assert batch["cu_seq_lens_q"].tolist() == ends
        assert batch["cu_seq_lens_q"].dtype == torch.int32
        begin = batch["input_ids"].data_ptr()
        assert all((batch[name].data_ptr() - begin) % 512 == 0 for name in ("labels", "position_ids", "cu_seq_lens_q"))
        assert batch["input_ids"].untyped_storage().data_ptr() == batch["cu_seq_lens_q"].untyped_storage().data_ptr()


class Judged(StepTrainer):
    """As much of a trainer as the judgement of a step needs."""

    def __init__(self, gradients: list[torch.Tensor], scale: float = 0.0) -> None:
        self.parameters = [nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
        self.flat = FlatParameters([self.parameters])
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient.clone() * (scale or 1)
        scaler = SimpleNamespace(get_scale=lambda: scale) if scale else None
        self.accelerator = SimpleNamespace(scaler=scaler)
        self.state = SimpleNamespace(global_step=0)
        self.notes: list[Any] = []
        guard = Guard(EventReporter(SimpleNamespace(write=self.notes.append)))
        self._steps: Any = SimpleNamespace(guard=guard)
        self.paces = Paces(Ranks())
        self.sampler: Any = SimpleNamespace(after=lambda _step: None)
        self.sums, self.clip_norm = [], 0.0

    def judged(self, loss: float = 1.0) -> torch.Tensor | None:
        assert self._judged(torch.tensor(loss, dtype=torch.float64), self.joined()) == pytest.approx(loss, nan_ok=True)
        (tensor,) = self.flat.tensors
        return tensor.grad


GRADIENTS = [torch.full((3, 5), 3.0), torch.full((300,), -0.5), torch.full((7,), 2.0)]
NORM = float(torch.nn.utils.get_total_norm(GRADIENTS))


@pytest.mark.parametrize("scale", [0.0, 1024.0])
def test_gradients_are_clipped_as_torch_does(scale: float) -> None:
    for limit in (0.0, 1.0, NORM * 2):
        trainer = Judged(GRADIENTS, scale)
        trainer.clip_norm = limit
        gradient = trainer.judged()
        assert gradient is not None
        assert trainer.grad_norm == pytest.approx(NORM, rel=1e-6)
        expected = limit if 0 < limit < NORM else NORM
        assert float(gradient.norm()) / (scale or 1) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_gradient_or_loss_leaves_no_gradient_at_all(bad: float) -> None:
    trainer = Judged([*GRADIENTS[:2], GRADIENTS[2] * bad])
    trainer.clip_norm = 1.0
    assert trainer.judged() is None
    trainer = Judged(GRADIENTS)
    assert trainer.judged(bad) is None
    assert [note.code for note in trainer.notes] == ["step.skipped"]


def test_what_a_scaler_finds_overflown_is_left_to_it_unclipped() -> None:
    trainer = Judged([*GRADIENTS[:2], GRADIENTS[2] * float("inf")], 1024.0)
    trainer.clip_norm = 1.0
    gradient = trainer.judged()
    assert gradient is not None
    assert gradient.isinf().any()
    assert gradient[0] == 3.0 * 1024
    assert [note.code for note in trainer.notes] == ["step.overflow"]


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_bad_loss_with_finite_gradients_is_skipped_by_the_real_scaler(bad: float) -> None:
    """What reaches the optimiser is the scaler's to judge; so it is shown what it skips."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(torch.zeros(()))  # makes the scale, as the first backward does
    trainer = Judged([torch.full((4,), 0.5)], 1024.0)
    trainer.accelerator.scaler = scaler
    adamw = torch.optim.AdamW(trainer.flat.tensors, lr=0.1)
    trainer.judged(bad)
    scaler.step(adamw)
    scaler.update()
    assert not trainer.parameters[0].any()
    assert [note.code for note in trainer.notes] == ["step.skipped"]


def test_an_optimiser_of_an_earlier_version_is_refused_in_one_line(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        by_single_tensors(earlier)
        folder, _ = runs(train__max_steps=2)
    with pytest.raises(RunError, match="earlier version") as caught:
        runs.work(folder, 2)
    assert "resume_from" in caught.value.hint


@pytest.mark.parametrize(
    ("method", "packing"), [("sft", True), ("sft", False), pytest.param("dpo", True, marks=pytest.mark.slow)]
)
def test_what_plan_and_estimate_say_of_fast_layers_is_what_runs(
    method: str, packing: bool, runs: Any, monkeypatch: Any
) -> None:
    """As on a card that runs our kernels: here their references stand in for them."""
    ran: list[Any] = []
    inner = decoder_layer.lora_mlp
    monkeypatch.setattr(decoder_layer, "lora_mlp", lambda *given: ran.append(given) or inner(*given))
    monkeypatch.setattr(surgery, "_refusal", lambda *_: "")
    folder, log = runs(method=method, train__packing=packing, train__max_steps=1, **RARELY)
    (plan,) = log.of("plan")
    config = folder.config()
    spec = find_model(config.model.source, config.model.name, config.model.revision)
    said = work_of(config, spec, 64, gpu=True).model.fast
    assert (plan.fast, bool(ran)) == (said, said)
    assert f"{2 if said else 0} of 2 layers fast" in plan.lines
    assert ("2 layers plain: batches are padded" in plan.lines) == (not said)


@pytest.mark.parametrize(("family", "changes", "packed"), [
    ("llama", {}, True), ("lfm2", {"layer_types": ["conv", "full_attention"]}, False), ("nemotron", {}, False),
])  # fmt: skip
def test_rows_lie_end_to_end_only_where_a_model_keeps_them_apart(
    family: str, changes: dict[str, Any], packed: bool, tmp_path: Path
) -> None:
    rows = TextRows()
    rows.append([1, 2, 3], [-100, 2, 3])
    loaded = LoadedModel(adapt(build(family, **changes)), SimpleNamespace(pad_token_id=0), torch.float32)
    made = make_trainer(RunConfig(), tmp_path, Trained(loaded.model), (loaded, loaded.tokenizer), rows)
    assert made.trainer.packed is packed
    assert any(line.startswith("passes: packed without" if packed else "passes: padded") for line in made.lines)
