"""Encoders on packed rows give what transformers gives on padded ones: logits and every gradient, every family."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from encoder_cases import CASES, LENGTHS, build, config_of, gradients, packed_batch, padded_batch, rows_of
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification

from core.contract.errors import ModelError
from core.contract.tasks import Outputs
from core.model.encoders import blocks, surgery
from core.model.encoders.forward import classify_logits
from core.model.encoders.load import load_classifier, new_classifier
from core.model.layers.checkpointing import set_checkpointing
from core.model.layers.surgery import undo
from core.model.scores import row_losses, shown
from core.models.encoders import ENCODERS, encoder_of, longest_row

FAMILIES = pytest.mark.parametrize(("family", "changes"), CASES, ids=lambda part: str(part))
CPU = torch.device("cpu")


def swapped(model: Any, fused: bool | None = True) -> Any:
    plan = surgery.plan(model, fused)
    assert not plan.refusal
    surgery.apply(model, plan)
    return model


def agree(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], bound: float) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        # A key's bias shifts all logits of a query alike: its gradient is nothing but rounding, of the weight's size.
        scale = wanted[name.replace("bias", "weight")] if name.endswith(("key.bias", "k_lin.bias")) else value
        assert scale.norm() > 0, name
        assert (found[name] - value).norm() <= bound * scale.norm(), name


@pytest.mark.parametrize(
    ("dtype", "bound"),
    [pytest.param(torch.float32, 1e-5, marks=pytest.mark.slow), (torch.float64, 1e-10)],
    ids=["32", "64"],
)
@FAMILIES
def test_packed_rows_give_what_transformers_gives_padded(
    family: str, changes: dict[str, Any], dtype: torch.dtype, bound: float
) -> None:
    config, rows = config_of(family, **changes), rows_of()
    # ModernBERT's eager attention computes its softmax in float32, whatever the dtype.
    plain = build(config, "eager" if ENCODERS[family].relative else "sdpa").to(dtype).train()
    ours = swapped(build(copy.deepcopy(config)).to(dtype).train())
    wanted, found = plain(**padded_batch(rows)).logits, classify_logits(ours, packed_batch(rows))
    assert found.dtype == dtype
    assert (found - wanted).norm() <= bound * wanted.norm()
    expected = gradients(plain, wanted)
    assert len(expected) == len([p for p in plain.parameters() if p.requires_grad])
    agree(gradients(ours, found), expected, bound)


@FAMILIES
def test_swapped_layers_leave_padded_batches_and_keys_alone_and_can_be_undone(
    family: str, changes: dict[str, Any]
) -> None:
    model, rows = build(config_of(family, **changes)).eval(), rows_of()
    wanted, keys = model(**padded_batch(rows)).logits, list(model.state_dict())
    modules = list(model.modules())
    padded = classify_logits(model, packed_batch(rows))
    plan = surgery.plan(model)
    applied = surgery.apply(model, plan)
    assert plan.lines()[0] == "3 of 3 layers packed without padding, torch's layer norm"
    assert surgery.plan(model).lines() == ("rows are padded: swapped already",)
    assert list(model.state_dict()) == keys
    assert torch.equal(model(**padded_batch(rows)).logits, wanted)
    packed = classify_logits(model, packed_batch(rows))
    torch.testing.assert_close(packed, padded, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(wanted, padded, rtol=1e-5, atol=1e-5)
    undo(applied)
    assert all(one is other for one, other in zip(model.modules(), modules, strict=True))


@pytest.mark.parametrize("family", ["bert", "modernbert", "deberta-v2"])
def test_rows_do_not_see_each_other(family: str) -> None:
    model, rows = swapped(build(config_of(family)).double()), rows_of()
    together = classify_logits(model, packed_batch(rows))
    alone = torch.cat([classify_logits(model, packed_batch([row])) for row in rows])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)
    others = [row.flip(0) if number == 2 else row for number, row in enumerate(rows)]
    changed = classify_logits(model, packed_batch(others))
    keep = torch.arange(len(rows)) != 2
    torch.testing.assert_close(changed[keep], together[keep], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(changed[2], together[2])


@pytest.mark.parametrize("family", ENCODERS)
def test_dropout_is_drawn_by_the_seed(family: str) -> None:
    config = config_of(family, dropout=True)
    if family == "modernbert":  # its own defaults are zero
        config = config_of(family, dropout=True, attention_dropout=0.1, mlp_dropout=0.1)
    model, batch = swapped(build(config).train()), packed_batch(rows_of())
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(classify_logits(model, batch))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.allclose(drawn[0], drawn[2])
    assert torch.equal(classify_logits(model.eval(), batch), classify_logits(model, batch))


def test_two_parts_of_a_row_are_told_apart() -> None:
    model, rows = build(config_of("bert")), rows_of()
    kinds = [(torch.arange(len(row)) > len(row) // 2).long() for row in rows]
    batch = {**packed_batch(rows), "token_type_ids": torch.cat(kinds)[None]}
    padded = classify_logits(model, batch)
    swapped(model)
    torch.testing.assert_close(classify_logits(model, batch), padded, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(classify_logits(model, packed_batch(rows)), padded)


def test_the_head_keeps_its_precision_under_autocast() -> None:
    model, batch = swapped(build(config_of("bert"))), packed_batch(rows_of())
    seen: list[torch.dtype] = []
    model.bert.encoder.layer[0].output.dense.register_forward_hook(lambda _m, _i, out: seen.append(out.dtype))
    model.classifier.register_forward_hook(lambda _m, _i, out: seen.append(out.dtype))
    logits = classify_logits(model, batch, torch.bfloat16)
    assert seen == [torch.bfloat16, torch.float32]
    exact = classify_logits(model, batch)
    assert 0 < (logits - exact).norm() <= 0.05 * exact.norm()


@pytest.mark.parametrize(
    ("family", "targets"), [("bert", ["query", "value"]), ("distilbert", ["q_lin"]), ("modernbert", ["Wqkv", "Wo"])]
)
def test_an_encoder_may_learn_by_an_adapter(family: str, targets: list[str]) -> None:
    model = get_peft_model(
        build(config_of(family)),
        LoraConfig(task_type="SEQ_CLS", r=2, target_modules=targets, init_lora_weights=False, lora_dropout=0.0),
    ).double()  # a gradient is a small rest of large parts: in float32 processors differ by more than the rule
    rows = rows_of()
    wanted = model(**padded_batch(rows)).logits
    expected = gradients(model, wanted)
    found = classify_logits(swapped(model), packed_batch(rows))
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    assert any("lora_A" in name for name in expected)
    agree(gradients(model, found), expected, 1e-9)


@pytest.mark.parametrize("family", ["bert", "modernbert", "deberta-v2"])
def test_recomputed_layers_give_the_same_gradients(family: str) -> None:
    config = config_of(family, dropout=True)
    model, batch = swapped(build(config).train()), packed_batch(rows_of())
    torch.manual_seed(1)
    kept = gradients(model, classify_logits(model, batch))
    lines = set_checkpointing(model, "recompute")
    torch.manual_seed(1)
    agree(gradients(model, classify_logits(model, batch)), kept, 1e-6)
    assert lines == ("activations: recomputed in 3 plain layers",)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (config_of("electra", embedding_size=32), "no packed form for model type electra"),
        (config_of("bert", is_decoder=True), "it is set up as a decoder"),
        (config_of("deberta-v2", conv_kernel_size=3), "it has a convolution over its rows"),
    ],
    ids=["electra", "decoder", "convolution"],
)
def test_what_cannot_be_packed_is_said_and_padded(config: Any, why: str) -> None:
    model, rows = build(config).eval(), rows_of()
    plan = surgery.plan(model)
    assert plan.lines() == (f"rows are padded: {why}",)
    assert not surgery.apply(model, plan).swapped
    found = classify_logits(model, packed_batch(rows))
    torch.testing.assert_close(found, model(**padded_batch(rows)).logits, rtol=1e-5, atol=1e-5)


def test_eager_attention_is_no_reason_to_mix_rows() -> None:
    model = build(config_of("bert"), "eager")
    assert surgery.plan(model).lines() == ("rows are padded: its attention is eager, not luthier_packed",)


def test_like_lengths_share_a_block() -> None:
    found = blocks.groups(LENGTHS)
    assert [[LENGTHS[row] for row in rows] for rows in found] == [[1, 2, 3, 9, 14], [30, 31]]
    assert sorted(row for rows in found for row in rows) == list(range(len(LENGTHS)))


def test_positions_of_the_longest_row_are_the_last_ones() -> None:
    roberta, bert = config_of("roberta", pad_token_id=1, max_position_embeddings=514), config_of("bert")
    assert (longest_row(roberta), longest_row(bert)) == (512, 40)
    model, rows = swapped(build(roberta)), [torch.full((512,), 5)]
    assert torch.isfinite(classify_logits(model, packed_batch(rows))).all()


@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification", "regression"])
def test_losses_are_those_of_transformers(problem: Any) -> None:
    labels = Outputs(("bad", "so so", "good"), problem)
    config = config_of("bert", **labels.settings())
    model, rows = build(config), rows_of()
    logits = model(**padded_batch(rows)).logits
    targets = torch.rand(len(rows), 3)
    if problem != "regression":
        targets = (targets > 0.5).float()
    if problem == "single_label_classification":
        targets = targets.argmax(1)
    wanted = model(**padded_batch(rows), labels=targets).loss
    losses = row_losses(logits, targets, problem)
    assert losses.shape == (len(rows),)
    torch.testing.assert_close(losses.mean(), wanted)
    assert shown(logits, problem).shape == logits.shape
    assert Outputs.of(config.to_dict()) == labels


def test_weights_make_a_class_count_more() -> None:
    logits, targets, weights = torch.randn(4, 2), torch.tensor([0, 1, 1, 0]), torch.tensor([1.0, 3.0])
    plain = row_losses(logits, targets, "single_label_classification")
    weighted = row_losses(logits, targets, "single_label_classification", weights)
    torch.testing.assert_close(weighted / plain, weights[targets])


@pytest.mark.parametrize("family", ["bert", "distilbert", "deberta-v2"])
def test_a_classifier_is_saved_as_transformers_reads_it(family: str, tmp_path: Path) -> None:
    labels = Outputs(("no", "yes"))
    model, rows = swapped(build(config_of(family, **labels.settings()))).eval(), rows_of()
    model.save_pretrained(str(tmp_path))
    read = AutoModelForSequenceClassification.from_pretrained(str(tmp_path), attn_implementation="eager").eval()
    assert read.config.id2label == {0: "no", 1: "yes"}
    assert read.config.problem_type == "single_label_classification"
    ours = classify_logits(model, packed_batch(rows))
    torch.testing.assert_close(read(**padded_batch(rows)).logits, ours, rtol=1e-5, atol=1e-5)
    again = load_classifier(tmp_path, None, CPU)
    assert all(torch.equal(one, model.state_dict()[name]) for name, one in again.state_dict().items())


def test_a_head_that_does_not_fit_is_drawn_by_the_seed(tmp_path: Path) -> None:
    build(config_of("bert", num_labels=5)).save_pretrained(str(tmp_path))
    labels = Outputs(("no", "yes"))
    one, same, other = (load_classifier(tmp_path, labels, CPU, seed) for seed in (1, 1, 2))
    assert one.classifier.out_features == 2
    assert torch.equal(one.classifier.weight, same.classifier.weight)
    assert not torch.equal(one.classifier.weight, other.classifier.weight)
    torch.testing.assert_close(one.bert.state_dict(), other.bert.state_dict())


def test_weights_that_are_missing_outside_the_head_are_a_fault(tmp_path: Path) -> None:
    build(config_of("bert", num_hidden_layers=2)).save_pretrained(str(tmp_path))
    config = config_of("bert")
    config.architectures = ["BertForSequenceClassification"]
    config.save_pretrained(str(tmp_path))
    with pytest.raises(ModelError, match=r"encoder\.layer\.2"):
        load_classifier(tmp_path, None, CPU)


def test_drawn_weights_come_from_the_seed() -> None:
    config = config_of("bert")
    torch.manual_seed(0)
    state = torch.random.get_rng_state()
    one, two = new_classifier(config, CPU, 1), new_classifier(config, CPU, 2)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not torch.equal(one.classifier.weight, two.classifier.weight)
    assert encoder_of(config) is ENCODERS["bert"]
