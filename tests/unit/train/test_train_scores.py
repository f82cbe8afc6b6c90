"""Reward models and classification: losses and gradients against TRL's and transformers', what a run measures."""

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import encoder_cases
import pytest
import torch
from memory_faults import Fault, with_trainer
from method_cases import BATCH, CPU, Result, assert_alike, computed, drawn, padded, trainer_of

from core.contract.config import LoraChoice, ModelChoice
from core.contract.events import Finished
from core.contract.methods import METHODS, Method
from core.contract.tasks import Outputs, Problem
from core.model.adapters import add_adapter
from core.model.layers import surgery
from core.model.layers.checkpointing import checkpointing_layers
from core.model.scores import ScoreHead, load_model
from core.models.outputs import read_outputs
from core.runs.record.outcome import by_merit, measured_at
from core.train.methods.scores import macro_f1
from core.train.step.rows import LabelRows, PairRows, Rows

OUTPUTS: dict[Problem, Outputs] = {
    "single_label_classification": Outputs(("bad", "fair", "good"), "single_label_classification"),
    "multi_label_classification": Outputs(("cheap", "quick", "small"), "multi_label_classification"),
    "regression": Outputs(("stars",), "regression"),
}
SEEDS = [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]


def pairs(seed: int) -> PairRows:
    rows, draw = PairRows(), torch.Generator().manual_seed(seed)
    for number in range(BATCH):
        rows.append(drawn(draw), drawn(draw), drawn(draw), [None, 0.5, 2.0][number % 3])
    return rows


def labelled(problem: Problem, seed: int) -> LabelRows:
    outputs, draw = OUTPUTS[problem], torch.Generator().manual_seed(seed)
    rows, names = LabelRows(outputs), outputs.names
    labels: dict[Problem, list[Any]] = {
        "single_label_classification": [[names[place % len(names)]] for place in (0, 1, 1, 0, 2)],
        "multi_label_classification": [names[:2], (), names[1:], names, names[:1]],
        "regression": [[f"{number - 1.5}"] for number in range(BATCH)],
    }
    for each in labels[problem]:
        rows.append(drawn(draw), each)
    return rows


@pytest.fixture(scope="module")
def scored(tiny_model: Path) -> Callable[..., Any]:
    """The tiny model with a head of scores and an adapter whose B is drawn."""
    made: dict[Any, Any] = {}

    def make(outputs: Outputs, seed: int) -> Any:
        if (outputs, seed) not in made:
            choice = ModelChoice(source="folder", name=str(tiny_model), quantization="none", dtype="float32")
            model = load_model(tiny_model, choice, CPU, ScoreHead(outputs, seed)).model
            task = METHODS["classify"].task
            model = add_adapter(model, LoraChoice(r=4, lora_alpha=8), seed, task=task)
            generator = torch.Generator().manual_seed(seed)
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.data = 0.1 * torch.randn(parameter.shape, generator=generator)
            made[outputs, seed] = model
        return copy.deepcopy(made[outputs, seed])

    return make


def eager(model: Any) -> Any:
    for module in model.modules():
        if hasattr(module, "config"):
            module.config._attn_implementation = "eager"
    model.config.pad_token_id = model.get_base_model().config.pad_token_id = 0
    return model.train()


def gradients(model: Any, loss: torch.Tensor) -> Result:
    loss.backward()
    grads = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.requires_grad}
    return float(loss.detach()), grads


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("centre", [0.0, 0.3])
def test_a_reward_models_loss_and_gradients_are_those_of_trl(
    scored: Any, centre: float, seed: int, one_thread: None
) -> None:
    from trl import RewardTrainer

    rows, model = pairs(seed), scored(Outputs(("reward",), "regression"), seed)
    theirs = eager(copy.deepcopy(model))
    trainer: Any = object.__new__(RewardTrainer)
    accelerator = SimpleNamespace(gather=lambda value: value, gather_for_metrics=lambda value: value)
    names = ("num_tokens", "min_reward", "mean_reward", "max_reward", "accuracy", "margin")
    metrics: dict[str, Any] = {"train": {name: [] for name in names}}
    args = SimpleNamespace(center_rewards_coefficient=centre or None)
    trainer.__dict__.update(model=theirs, args=args, accelerator=accelerator, _metrics=metrics, _total_train_tokens=0,
                            _tp_size=1)  # fmt: skip
    whole = [[*rows.prompts.values(row), *side.values(row)] for side in (rows.chosen, rows.rejected)
             for row in range(BATCH)]  # fmt: skip
    batch = {"input_ids": padded(whole), "attention_mask": padded([[1] * len(one) for one in whole]),
             "margin": torch.tensor(rows.margins.values(range(BATCH))).nan_to_num()}  # fmt: skip
    wanted = gradients(theirs, trainer.compute_loss(theirs, batch))
    ours = trainer_of("reward", model, rows, 40, center_rewards_coefficient=centre)
    assert_alike(computed(ours), wanted, 1e-5)
    told = dict(zip(ours.measures, (float(value) / BATCH for value in ours.sums), strict=True))
    assert told["accuracy"] == pytest.approx(metrics["train"]["accuracy"][0])
    assert told["margin"] == pytest.approx(metrics["train"]["margin"][0], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("problem", OUTPUTS)
def test_a_classifiers_loss_and_gradients_are_those_of_transformers(
    scored: Any, problem: Problem, seed: int, one_thread: None
) -> None:
    rows, model = labelled(problem, seed), scored(OUTPUTS[problem], seed)
    theirs = eager(copy.deepcopy(model))
    ids = [rows.ids.values(row) for row in range(BATCH)]
    labels = rows.targets(range(BATCH))
    mask = padded([[1] * len(one) for one in ids])
    loss = theirs(input_ids=padded(ids), attention_mask=mask,
                  labels=labels.squeeze(1) if problem == "regression" else labels).loss  # fmt: skip
    assert_alike(computed(trainer_of("classify", model, rows, 40)), gradients(theirs, loss), 1e-5)


def test_a_row_that_ends_with_the_padding_is_pooled_where_transformers_pools_it(scored: Any, one_thread: None) -> None:
    """Many models pad with their end token, with which rows end; one row here is nothing else."""
    rows, model = LabelRows(OUTPUTS["single_label_classification"]), scored(OUTPUTS["single_label_classification"], 4)
    texts = [[5, 9, 0], [7, 8, 6, 0], [0, 0], [11, 0, 12]]
    for text in texts:
        rows.append(text, ["fair"])
    theirs = eager(copy.deepcopy(model)).eval()
    mask = padded([[1] * len(one) for one in texts])
    wanted = theirs(input_ids=padded(texts), attention_mask=mask).logits
    for packed in (True, False):
        trainer = trainer_of("classify", model, rows, 100, packed)
        logits = trainer.model(**trainer.micro_batch(rows, range(4)).tensors)
        torch.testing.assert_close(logits, wanted, rtol=1e-5, atol=1e-6)


def test_an_answer_of_nothing_but_padding_is_pooled_in_the_prompt(scored: Any, one_thread: None) -> None:
    """Which both answers share, where it ends with the end token too."""
    rows, model = PairRows(), scored(Outputs(("reward",), "regression"), 4)
    for prompt, chosen, rejected in (([5, 9, 0], [7, 0], [0]), ([8, 6, 0, 0], [0], [0, 0]), ([0, 0], [0], [0]),
                                     ([11], [0], [12, 0])):  # fmt: skip
        rows.append(prompt, chosen, rejected)
    theirs = eager(copy.deepcopy(model)).eval()
    texts = [one.ids.tolist() for row in range(4) for one in rows.sequences(row)]
    wanted = theirs(input_ids=padded(texts), attention_mask=padded([[1] * len(one) for one in texts])).logits
    for packed in (True, False):
        trainer = trainer_of("reward", model, rows, 100, packed)
        scores = trainer.model(**trainer.micro_batch(rows, range(4)).tensors)
        torch.testing.assert_close(scores, wanted, rtol=1e-5, atol=1e-6)


CASES: list[tuple[Method, Callable[[], Rows], dict[str, Any]]] = [
    ("reward", lambda: pairs(4), {}),
    *(("classify", lambda problem=problem: labelled(problem, 4), {"class_weights": "balanced"}) for problem in OUTPUTS),
]  # type: ignore[misc]


@pytest.mark.parametrize(("method", "rows", "values"), CASES, ids=["reward", *OUTPUTS])
def test_a_batch_is_the_same_however_it_is_cut_packed_and_computed(
    scored: Any, method: Method, rows: Any, values: dict[str, Any], one_thread: None
) -> None:
    rows = rows()
    outputs = rows.outputs if isinstance(rows, LabelRows) else Outputs(("reward",), "regression")
    model = scored(outputs, 4).double()
    wanted = computed(trainer_of(method, copy.deepcopy(model), rows, 10_000, **values))
    for tokens, packed in ((1, True), (60, True), (60, False)):
        again = computed(trainer_of(method, copy.deepcopy(model), rows, tokens, packed, **values))
        assert_alike(again, wanted, 1e-6)
    swaps = surgery.plan(model, force=True)
    assert swaps.fast
    surgery.apply(model, swaps)
    assert_alike(computed(trainer_of(method, model, rows, 60, **values)), wanted, 1e-6)


def test_balanced_weights_let_every_label_weigh_as_much(scored: Any) -> None:
    rows = LabelRows(OUTPUTS["single_label_classification"])
    for label in ("bad", "bad", "bad", "fair", "good", "good"):
        rows.append([5, 6], [label])
    trainer = trainer_of("classify", scored(rows.outputs, 1), rows, 100, class_weights="balanced")
    assert trainer.weights.tolist() == pytest.approx([6 / 9, 6 / 3, 6 / 6])
    several = labelled("multi_label_classification", 1)  # 3, 3 and 2 of five rows have a label
    trainer = trainer_of("classify", scored(several.outputs, 1), several, 100, class_weights="balanced")
    assert trainer.weights.tolist() == pytest.approx([2 / 3, 2 / 3, 3 / 2])
    every = LabelRows(several.outputs)
    for label in ("quick", "small", "quick"):
        every.append([5, 6], ["cheap", label])
    trainer = trainer_of("classify", scored(every.outputs, 1), every, 100, class_weights="balanced")
    assert trainer.weights.tolist() == pytest.approx([1 / 3, 1 / 2, 2]), "a label of every row is learned too"


def test_macro_f1_is_the_mean_over_labels_that_were_there_or_given() -> None:
    right, wrong, missed = (torch.tensor(values) for values in ([2, 0, 0], [1, 0, 3], [0, 0, 0]))
    assert macro_f1(right, wrong, missed) == pytest.approx((4 / 5 + 0) / 2)


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_learns_to_sort_texts_and_says_how_well(runs: Any) -> None:
    values = {
        "method": "classify", "train__sample_rows": 1, "data__eval_fraction": 0.3, "train__max_steps": 30,
        "train__eval_steps": 15, "lora__target_modules": LoraChoice().target_modules,
    }  # fmt: skip
    folder, log = runs(**values)
    assert isinstance(log.said[-1], Finished), log.said[-1]
    (plan,) = log.of("plan")
    assert (plan.labels, plan.problem) == (("bird", "cat", "dog"), "single_label_classification")
    told = log.of("evaluation")
    assert len(told[0].confusion) == 3
    assert sum(map(sum, told[0].confusion)) == told[0].rows
    last = told[-1]
    right = sum(line[place] for place, line in enumerate(last.confusion))
    assert last.accuracy == pytest.approx(right / last.rows)
    assert last.accuracy == 1.0
    assert last.macro_f1 == 1.0
    assert (last.loss or 1) < 0.3 < (told[0].loss or 0)
    assert last.mean_error is None
    (sample,) = log.of("sample")[-1:]
    assert sample.text.startswith(sample.right), sample
    assert sample.right in sample.prompt, "the animal is named in the text"
    assert 0 not in {event.step for event in log.of("sample")}, "an untrained head is not asked"
    assert not log.of("note")
    newest = folder.newest_checkpoint()
    assert newest is not None
    assert read_outputs(newest / "adapter") == Outputs(("bird", "cat", "dog"))
    assert {one.best_by for one in told} == {"accuracy"}
    best = measured_at(by_merit(folder)[0])
    assert best is not None
    assert best.told == ("accuracy", max((one.accuracy or 0) for one in told if one.step)), "the best is the most right"
    assert math.isfinite(last.seconds)


def test_labels_are_counted_once_where_memory_runs_out_in_an_evaluation(
    runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"method": "classify", "data__eval_fraction": 0.3, "train__max_steps": 1}
    _, undisturbed = runs.undisturbed(**values)
    fault = Fault((1, 4))
    hook = lambda *_: None if torch.is_grad_enabled() else fault()  # noqa: E731
    with_trainer(monkeypatch, lambda made: checkpointing_layers(made.model)[1].register_forward_hook(hook))
    _, log = runs(**values)
    assert len(fault.raised) == 2
    for ours, whole in zip(log.of("evaluation"), undisturbed.of("evaluation"), strict=True):
        assert ours.confusion == whole.confusion
        assert ours.loss == pytest.approx(whole.loss, rel=1e-5)
        assert ours.accuracy == pytest.approx(whole.accuracy)


def test_large_numbers_are_learned_near_zero_and_said_as_they_are(runs: Any, tmp_path: Path) -> None:
    data = tmp_path / "prices.jsonl"
    rows = [
        {"text": f"a {('small', 'big')[n % 2]} house {n}", "label": 200_000.5 + 100_000 * (n % 2)} for n in range(60)
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    values = {
        "method": "classify", "data__path": str(data), "data__layout": "classification", "data__eval_fraction": 0.3,
        "train__max_steps": 60, "train__eval_steps": 60, "train__sample_rows": 1, "train__learning_rate": 3e-3,
        "lora__target_modules": LoraChoice().target_modules,
    }  # fmt: skip
    folder, log = runs(**values)
    first, *_, last = log.of("evaluation")
    assert first.mean_error > 40_000 > 30_000 > last.mean_error
    assert last.loss < 0.7 < first.loss
    outputs = read_outputs((folder.newest_checkpoint() or Path()) / "adapter")
    assert outputs.mean == pytest.approx(250_000, rel=0.1)
    assert outputs.scale == pytest.approx(50_000, rel=0.1)
    (sample,) = log.of("sample")[-1:]
    assert 100_000 < float(sample.text.replace(",", "")) < 400_000
    assert float(sample.right) in (200_000.5, 300_000.5)
    further = runs.make("further", **values | {"train__max_steps": 1}, resume_from=str(folder.path))
    log = runs.work(further)
    assert log.of("evaluation")[0].mean_error == pytest.approx(last.mean_error, rel=1e-3)


def test_numbers_near_zero_are_scores_as_they_are() -> None:
    rows = labelled("regression", 1)
    assert rows.standardised() is rows.outputs


@pytest.mark.parametrize("family", ["bert", pytest.param("deberta-v2", marks=pytest.mark.slow)])
def test_an_encoder_is_trained_whole_and_goes_on_after_a_kill(runs: Any, family: str, tmp_path: Path) -> None:
    """From a folder without a head to a checkpoint that plain transformers reads."""
    from transformers import AutoModelForSequenceClassification

    model = encoder_cases.save_tiny(tmp_path / family, family, max_position_embeddings=80)
    rows = [{"text": f"w{number % 7} w{20 + number % 2} w{number % 11}", "label": ("odd", "even")[number % 2]}
            for number in range(40)]  # fmt: skip
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    values = {
        "method": "classify", "model__name": str(model), "data__path": str(data), "data__layout": "classification",
        "train__learns": "everything", "train__learning_rate": 2e-3, "train__max_steps": 20, "train__eval_steps": 10,
        "train__save_steps": 4,
    }  # fmt: skip
    folder, log = runs(**values)
    assert isinstance(log.said[-1], Finished), log.said[-1]
    last = log.of("evaluation")[-1]
    assert last.accuracy == last.macro_f1 == 1.0, log.of("evaluation")
    assert any("packed without padding" in line for line in log.of("plan")[0].lines)
    newest = folder.newest_checkpoint()
    assert newest is not None
    plain = AutoModelForSequenceClassification.from_pretrained(newest / "model")
    assert plain.config.id2label == {0: "even", 1: "odd"}
    killed = runs.make("killed", **values)
    runs.work(killed, 1, lambda event: event.kind == "step" and event.step == 10)
    runs.work(killed, 2)
    again = AutoModelForSequenceClassification.from_pretrained((killed.newest_checkpoint() or Path()) / "model")
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), again.parameters(), strict=True))
