"""Every method's loss and gradients equal those of TRL's own trainer, however the batch is cut and packed."""

import copy
import math
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from method_cases import BATCH, CPU, assert_alike, computed, drawn, padded, trainer_of
from torch import nn

from core.contract.config import LoraChoice, ModelChoice
from core.contract.methods import METHODS, Method
from core.model.adapters import Trained, add_adapter
from core.model.layers import surgery
from core.model.learners import TrainedWhole
from core.model.loading.load import load_base
from core.train.methods.answers import Answers, Constants
from core.train.methods.orpo import OrpoLoss
from core.train.step.rows import MarkedRows, Rows, rows_for

CASES: list[tuple[Method, dict[str, Any]]] = [
    *(("dpo", {"loss_type": kind, "label_smoothing": 0.1 if kind == "robust" else 0.0})
      for kind in METHODS["dpo"].losses),
    ("dpo", {"rpo_alpha": 0.7}),
    ("orpo", {}),
    ("simpo", {"beta": 2.0, "simpo_gamma": 0.5}),
    *(("cpo", {"loss_type": kind, "label_smoothing": 0.0 if kind != "sigmoid" else 0.2})
      for kind in METHODS["cpo"].losses),
    ("kto", {"desirable_weight": 1.5, "undesirable_weight": 0.8}),
    ("kto", {"loss_type": "apo_zero_unpaired", "desirable_weight": 1.0, "undesirable_weight": 1.0}),
    ("sft", {}),
    ("pretrain", {}),
]  # fmt: skip
NAMES = [f"{method} {' '.join(map(str, values.values()))}" for method, values in CASES]


def made_rows(method: Method, seed: int, count: int = BATCH) -> Rows:
    """Rows of lengths of their own."""
    draw, rows = torch.Generator().manual_seed(seed), rows_for(METHODS[method])
    for number in range(count):
        if isinstance(rows, MarkedRows):
            rows.append(drawn(draw), drawn(draw), number % 3 != 1)
        elif METHODS[method].answers > 1:
            rows.append(drawn(draw), drawn(draw), drawn(draw))  # type: ignore[union-attr, arg-type]
        else:
            prompt, answer = drawn(draw), drawn(draw)
            read = prompt if method == "pretrain" else [-100] * len(prompt)
            rows.append([*prompt, *answer], [*read, *answer])  # type: ignore[call-arg, union-attr]
    return rows


@pytest.fixture(scope="module")
def adapted(tiny_model: Path) -> Callable[..., Any]:
    """The tiny model with an adapter whose B is drawn at random, so that it differs from its reference."""
    models: dict[int, Any] = {}

    def make(seed: int, scale: float = 0.1) -> Any:
        if seed not in models:
            choice = ModelChoice(source="folder", name=str(tiny_model), quantization="none", dtype="float32")
            model = add_adapter(load_base(tiny_model, choice, CPU).model, LoraChoice(r=4, lora_alpha=8), seed)
            generator = torch.Generator().manual_seed(seed)
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.data = torch.randn(parameter.shape, generator=generator)
            models[seed] = model
        model = copy.deepcopy(models[seed])
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.data *= scale
        return model

    return make


# ── against TRL ──────────────────────────────────────────────────────────────────────────────────────────────────────


def contrasted(rows: Any, method: Method, values: dict[str, Any], model: Any) -> torch.Tensor:
    """The loss of TRL's ORPO or CPO trainer, of which only what its loss needs is made."""
    from trl.experimental.cpo import CPOTrainer
    from trl.experimental.orpo import ORPOTrainer

    trainer: Any = object.__new__(ORPOTrainer if method == "orpo" else CPOTrainer)
    simple = {"loss_type": "simpo", "cpo_alpha": 0.0} if method == "simpo" else {}
    settings = {"beta": 0.1, "loss_type": "sigmoid", "label_smoothing": 0.0, "cpo_alpha": 1.0, "simpo_gamma": 0.5,
                "alpha": 0.0, **values, **simple}  # fmt: skip
    accelerator = SimpleNamespace(device=CPU, gather_for_metrics=lambda value: value)
    trainer.__dict__.update(settings, is_encoder_decoder=False, padding_value=0, pad_token_id=0, aux_loss_enabled=False,
                            accelerator=accelerator)  # fmt: skip
    batch = {}
    for side in ("chosen", "rejected"):
        answers = getattr(rows, side)
        whole = [[*rows.prompts.values(row), *answers.values(row)] for row in range(len(rows))]
        labels = [[*[-100] * rows.prompts.length(row), *answers.values(row)] for row in range(len(rows))]
        batch |= {f"{side}_input_ids": padded(whole, 0), f"{side}_labels": padded(labels, -100),
                  f"{side}_attention_mask": padded([[1] * len(row) for row in whole], 0)}  # fmt: skip
    loss: torch.Tensor = trainer.get_batch_loss_metrics(model, batch)[0]
    return loss


def supervised(rows: Any, model: Any, folder: Path) -> torch.Tensor:
    """The loss of TRL's SFT trainer over rows that are tokens already."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    every = [rows.sequences(row)[0] for row in range(len(rows))]
    table = [{"input_ids": one.ids.tolist(), "labels": one.labels.tolist()} for one in every]
    recipe: dict[str, Any] = {"output_dir": str(folder), "use_cpu": True, "report_to": "none", "bf16": False,
                              "gradient_checkpointing": False,
                              "dataset_kwargs": {"skip_prepare_dataset": True}}  # fmt: skip
    trainer = SFTTrainer(model=model, args=SFTConfig(**recipe), train_dataset=Dataset.from_list(table),
                         processing_class=AutoTokenizer.from_pretrained(folder))  # fmt: skip
    loss: torch.Tensor = trainer.compute_loss(model, trainer.data_collator(table))
    return loss


def with_reference(
    rows: Any, method: Method, values: dict[str, Any], model: Any, folder: Path, reference: Any = None
) -> torch.Tensor:
    """The loss of TRL's DPO or KTO trainer."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer

    kind: Any = DPOTrainer if method == "dpo" else KTOTrainer

    class Untouched(kind):  # type: ignore[misc]
        def _prepare_dataset(self, dataset: Any, *_arguments: Any, **_options: Any) -> Any:
            return dataset

    every = range(len(rows))
    if method == "dpo":
        table = [{"prompt_ids": rows.prompts[row].tolist(), "chosen_ids": rows.chosen[row].tolist(),
                  "rejected_ids": rows.rejected[row].tolist()} for row in every]  # fmt: skip
        values = dict(values)
        weight = values.pop("rpo_alpha", 0.0)
        types = [values.pop("loss_type", "sigmoid"), *(["sft"] if weight else [])]
        values |= {"loss_type": types, "loss_weights": [1.0, weight] if weight else None}
    else:
        answers = [rows.answers[row].tolist() for row in every]
        table = [{"prompt_ids": rows.prompts[row].tolist(), "completion_ids": answers[row], "label": rows.good(row),
                  "KL_completion_ids": answers[row - 1]} for row in every]  # fmt: skip
    recipe: dict[str, Any] = {"output_dir": str(folder), "use_cpu": True, "report_to": "none", "beta": 0.1,
                              "per_device_train_batch_size": len(rows), "gradient_checkpointing": False,
                              "bf16": False, **values}  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(folder)
    trainer = Untouched(model=model, ref_model=reference, args=(DPOConfig if method == "dpo" else KTOConfig)(**recipe),
                        train_dataset=Dataset.from_list(table), processing_class=tokenizer)  # fmt: skip
    for name in [name for name in getattr(model, "peft_config", ()) if name != "default"]:
        model.delete_adapter(name)  # a copy of an adapter that it holds to be trained already
    loss: torch.Tensor = trainer.compute_loss(model, trainer.data_collator(table))
    return loss


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("method", "values"), CASES, ids=NAMES)
def test_loss_and_gradients_are_those_of_trl(
    adapted: Any, tiny_model: Path, method: Method, values: dict[str, Any], seed: int, one_thread: None
) -> None:
    rows, model = made_rows(method, seed), adapted(seed)
    theirs = copy.deepcopy(model)
    for module in theirs.modules():
        if hasattr(module, "config"):
            module.config._attn_implementation = "eager"
    theirs.train()
    if METHODS[method].reference:
        loss = with_reference(rows, method, values, theirs, tiny_model)
    elif METHODS[method].answers > 1:
        loss = contrasted(rows, method, values, theirs)
    else:
        loss = supervised(rows, theirs, tiny_model)
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters() if parameter.requires_grad}
    ours = computed(trainer_of(method, model, rows, 40, **values))
    assert_alike(ours, (float(loss.detach()), gradients), 1e-5)


@pytest.mark.parametrize("method", ["dpo", "kto"])
def test_where_every_weight_learns_the_reference_is_the_model_as_it_was(
    tiny_model: Path, method: Method, one_thread: None
) -> None:
    """As of TRL's trainer beside a model of its own; the weights change places once for many rows, and are back."""
    choice = ModelChoice(source="folder", name=str(tiny_model), quantization="none", dtype="float32")
    model = load_base(tiny_model, choice, CPU).model.requires_grad_(True)
    reference, trained = copy.deepcopy(model), TrainedWhole(model).keeping_start()
    torch.manual_seed(9)
    with torch.no_grad():
        for parameter in trained.parameters:
            parameter.add_(torch.randn_like(parameter) * 0.02)
    rows, theirs = made_rows(method, 9), copy.deepcopy(model).train()
    for module in [*theirs.modules(), *reference.modules()]:
        if hasattr(module, "config"):
            module.config._attn_implementation = "eager"
    values = {"desirable_weight": 1.0, "undesirable_weight": 1.0} if method == "kto" else {}
    loss = with_reference(rows, method, values, theirs, tiny_model, reference)
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    trainer = trainer_of(method, model, rows, 40, **values)
    trainer.trained = trained
    swaps: list[int] = []
    trainer.model.register_forward_pre_hook(lambda *_: swaps.append(torch.equal(*first_of(trained))))
    assert_alike(computed(trainer), (float(loss.detach()), gradients), 1e-5)
    turns = [one for one, _ in groupby(swaps)]
    assert turns == ([True, False] if method == "dpo" else [True, False, True, False]), "not once a micro-batch"


def first_of(trained: Trained) -> tuple[torch.Tensor, torch.Tensor]:
    """A parameter as it is and as it was."""
    return trained.parameters[0], trained.start[0]


# ── of ourselves ─────────────────────────────────────────────────────────────────────────────────────────────────────

EVERY = ["sft", "dpo", "orpo", "simpo", "cpo", "kto"]


@pytest.mark.parametrize(  # SimPO has the same trainer as CPO
    "method", [pytest.param(name, marks=pytest.mark.slow if name == "cpo" else ()) for name in EVERY]
)
def test_a_batch_is_the_same_however_it_is_cut_packed_and_computed(
    adapted: Any, method: Method, one_thread: None
) -> None:
    rows, model = made_rows(method, 4), adapted(4).double()
    values = {"rpo_alpha": 0.5} if method == "dpo" else {}
    wanted = computed(trainer_of(method, copy.deepcopy(model), rows, 10_000, **values))
    for tokens, packed in ((1, True), (60, True), (60, False)):
        again = computed(trainer_of(method, copy.deepcopy(model), rows, tokens, packed, **values))
        assert again[0] == pytest.approx(wanted[0], rel=1e-6), (tokens, packed)  # losses themselves are float32
        assert_alike((wanted[0], again[1]), wanted, 1e-6)
    swaps = surgery.plan(model, force=True)
    assert swaps.fast
    surgery.apply(model, swaps)
    fast = computed(trainer_of(method, model, rows, 60, **values))
    assert_alike((wanted[0], fast[1]), wanted, 1e-6)


@pytest.mark.parametrize("method", [name for name in EVERY if METHODS[name].reference])
def test_at_the_first_step_nothing_differs_from_the_reference(adapted: Any, method: Method, one_thread: None) -> None:
    """In bfloat16 too: policy and reference are computed by the same layers."""
    model = adapted(5, scale=0.0).to(torch.bfloat16)
    surgery.apply(model, surgery.plan(model, force=True))
    trainer = trainer_of(method, model, made_rows(method, 5), 30)
    loss, _ = computed(trainer)
    # Of marked answers three are good and two are bad, which weigh 1.5 so that both weigh as much.
    assert loss == pytest.approx(math.log(2) if METHODS[method].answers > 1 else 0.6, abs=1e-5)
    told = dict(zip(trainer.measures, trainer.sums, strict=True))
    assert float(told["margin"]) == pytest.approx(0.0, abs=1e-5)


def test_the_references_sums_are_computed_once_and_kept_in_a_checkpoint(adapted: Any, one_thread: None) -> None:
    rows, model = made_rows("dpo", 6), adapted(6)
    trainer = trainer_of("dpo", model, rows, 40)
    first = computed(trainer)
    state = trainer.extra_state()["reference"]
    assert not state.isnan().any()
    again = trainer_of("dpo", copy.deepcopy(model), rows, 40)
    again.restore_extra_state({**trainer.extra_state(), "rows": "of other rows"})
    assert again.extra_state()["reference"].isnan().all()
    again.restore_extra_state(trainer.extra_state())
    passes: list[int] = []
    again.model.register_forward_hook(lambda *_: passes.append(1))
    for parameter in again.trained.parameters:
        parameter.grad = None
    assert_alike(computed(again), first, 1e-6)
    assert len(passes) == len(again.cut(list(range(BATCH)))), "one a micro-batch, and none for the reference"


def test_an_adapter_that_goes_on_is_its_own_reference(adapted: Any, one_thread: None) -> None:
    rows, model = made_rows("dpo", 7), adapted(7)
    trainer = trainer_of("dpo", model, rows, 60)
    trainer.trained = trainer.trained.keeping_start()
    before = [parameter.detach().clone() for parameter in trainer.trained.parameters]
    assert computed(trainer)[0] == pytest.approx(math.log(2), abs=1e-6)
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.trained.parameters, strict=True))


def test_dropout_is_of_the_policy_and_not_of_the_adapter_that_it_is_compared_with(
    tiny_model: Path, one_thread: None
) -> None:
    choice = ModelChoice(source="folder", name=str(tiny_model), quantization="none", dtype="float32")
    lora = LoraChoice(r=4, lora_alpha=8, lora_dropout=0.5)
    model = add_adapter(load_base(tiny_model, choice, CPU).model, lora, 7)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.1)
    sums = []
    for seed in (1, 2):
        trainer = trainer_of("dpo", model.train(), made_rows("dpo", 7), 60)
        trainer.trained = trainer.trained.keeping_start()
        torch.manual_seed(seed)
        loss, _ = computed(trainer)
        assert loss != pytest.approx(math.log(2), abs=1e-6), "the policy has its dropout"
        sums.append(trainer.extra_state()["reference"])
    assert torch.equal(*sums)


def test_a_certain_answer_leaves_orpos_loss_and_gradients_finite() -> None:
    """A short one that is learned has the log-probability 0, or by rounding a little more."""
    sums = torch.tensor([[0.0, -3.0], [1e-6, 0.0], [-1e-9, -2.0]], requires_grad=True)
    answers = Answers(sums, torch.full((3, 2), 2), torch.zeros(3, 2))
    loss = OrpoLoss(0.1)(answers, Constants()).losses.sum()
    loss.backward()
    assert math.isfinite(loss)
    assert sums.grad is not None
    assert sums.grad.isfinite().all()


def test_a_prompt_with_another_rows_answer_is_no_longer_than_rows_may_be(adapted: Any, one_thread: None) -> None:
    """As in TRL: memory and the model's positions are planned for that much."""
    rows = MarkedRows()
    rows.append(list(range(4, 32)), [40], good=True)
    rows.append([50], list(range(60, 90)), good=False)
    trainer = trainer_of("kto", adapted(8), rows, 100, max_length=32)
    seen: list[tuple[int, ...]] = []
    honest = trainer.tensors
    trainer.tensors = lambda sequences: seen.append(tuple(map(len, sequences))) or honest(sequences)
    trainer.prelude(trainer.model, rows, [0, 1], 100)
    assert seen == [(32, 2), (29, 32, 31, 2)], "the reference reads both answers to a prompt at once"
    trainer.prelude(trainer.model, rows, [0, 1], 100)
    assert seen[2:] == [(32, 2), (32, 2)], "and a row's own but once"


def test_a_references_sums_are_the_same_beside_another_answer(adapted: Any, one_thread: None) -> None:
    rows, model = made_rows("kto", 9), adapted(9)
    beside, alone = (trainer_of("kto", copy.deepcopy(model), rows, tokens) for tokens in (200, 1))
    for trainer in (beside, alone):
        computed(trainer)
    sums = beside.extra_state()["reference"]
    assert not sums.isnan().any()
    torch.testing.assert_close(sums, alone.extra_state()["reference"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(beside.constants.kl, alone.constants.kl, rtol=1e-5, atol=1e-5)
