"""One text's scores, against transformers' own classifiers; and how they are said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import encoder_cases
import model_tiny
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from core.contract.config import ModelChoice
from core.contract.tasks import Outputs
from core.data.render.labelled import labelled_ids
from core.model.encoders import surgery
from core.model.scores import Scored, ScoreHead, load_model, score, with_scores

NAMES = Outputs(("bad", "good", "so-so"))
IDS = (1, 7, 40, 12, 9, 33)


def model_of(kind: str) -> Any:
    if kind == "llama":
        return with_scores(model_tiny.build("llama"), NAMES, seed=3).eval()
    model = encoder_cases.build(encoder_cases.config_of(kind.partition(" ")[0])).eval()
    if kind.endswith("swapped"):
        surgery.apply(model, surgery.plan(model))
    return model


@pytest.mark.parametrize("kind", ["llama", "bert", "bert swapped", "distilbert", "deberta-v2"])
def test_the_scores_of_one_text_are_those_of_transformers(kind: str) -> None:
    model = model_of(kind)
    plain = {"attention_mask": torch.ones(1, len(IDS), dtype=torch.long)}
    said = score(model, IDS, NAMES)
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([IDS]), **plain).logits.softmax(-1)[0]
    assert [name for name, _ in said.scores] == list(NAMES.names)
    torch.testing.assert_close(torch.tensor([value for _, value in said.scores]), expected, rtol=1e-5, atol=1e-6)
    assert sum(value for _, value in said.scores) == pytest.approx(1)


def test_several_labels_have_a_probability_each_and_numbers_are_as_they_come() -> None:
    model = model_of("llama")
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([IDS])).logits[0]
    several = score(model, IDS, Outputs(NAMES.names, "multi_label_classification"))
    numbers = score(model, IDS, Outputs(NAMES.names, "regression"))
    assert [value for _, value in several.scores] == pytest.approx(logits.sigmoid().tolist(), rel=1e-5)
    assert [value for _, value in numbers.scores] == pytest.approx(logits.tolist(), rel=1e-4, abs=1e-6)


def test_scores_are_said_in_a_line() -> None:
    one, many = (("bad", 0.027), ("good", 0.973)), tuple((f"label {n}", n / 10) for n in range(5))
    assert Scored(one, "single_label_classification").text == "good 97.3% · bad 2.7%"
    assert Scored(many, "multi_label_classification").text == "label 4 40.0% · label 3 30.0% · label 2 20.0% · …"
    assert Scored((("reward", -1.23456),), "regression").text == "-1.235"
    assert Scored((("length", 12.5), ("price", 3.0)), "regression").text == "length 12.5 · price 3"


@pytest.mark.parametrize("swapped", [False, True])
def test_the_second_of_two_texts_is_told_to_a_model_that_tells_them_apart(swapped: bool, tmp_path: Path) -> None:
    folder = encoder_cases.save_tiny(tmp_path / "bert", "bert")
    loaded = load_model(folder, ModelChoice(quantization="none"), torch.device("cpu"), head=ScoreHead(NAMES, 2))
    model, tokenizer = loaded.model.eval(), AutoTokenizer.from_pretrained(folder)
    plain = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3)
    plain.load_state_dict(model.state_dict())
    if swapped:
        surgery.apply(model, surgery.plan(model))
    for texts in (("w3 w4 w5", "w6 w7"), ("w3 w4",)):
        inputs = tokenizer(*texts, return_tensors="pt")
        assert bool(inputs["token_type_ids"].any()) == (len(texts) > 1)
        with torch.no_grad():
            expected = plain.eval()(**inputs).logits.softmax(-1)[0]
        ids = labelled_ids(tokenizer, (texts[0], *texts[1:], "")[:2], 40)
        assert list(ids) == inputs["input_ids"][0].tolist()
        assert [value for _, value in score(model, ids, NAMES).scores] == pytest.approx(expected.tolist(), rel=1e-5)
