"""Try with a head of scores: a classifier's probabilities and a reward model's score, as plain libraries give them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForSequenceClassification

from core.chat.child import Questions, answer
from core.chat.client import Answer, ChatClient
from core.chat.generator import ScoringModel, load_chat_model
from core.chat.messages import Ask, Piece, Setup
from core.contract.config import DataChoice, LoraChoice, ModelChoice, RunConfig
from core.contract.data import Example, Message
from core.contract.errors import Fault
from core.contract.methods import METHODS, Method
from core.contract.tasks import Outputs
from core.data.render.chat_tokens import cut_pair, load_tokenizer, tokenise
from core.data.render.renderer import renderer
from core.machine.cards import CardSet
from core.machine.locations import ASSETS, Locations
from core.model.adapters import Trained, add_adapter
from core.model.scores import ScoreHead, load_model
from core.runs.folder.run_yaml import dump_config

STARTER = ASSETS / "starter"
CHOICE = ModelChoice(quantization="none", dtype="float32")
LABELS = {"classify": Outputs(("bad", "good", "so-so")), "reward": Outputs(("reward",), "regression")}
RUN = "2026-11-20_2243_scores_k3f9"
SHORT = 24
"""Tokens at which texts are cut."""


def save_adapter(folder: Path, method: Method) -> Path:
    """An adapter with its head, all of it drawn, as a run saves it."""
    loaded = load_model(STARTER, CHOICE, torch.device("cpu"), head=ScoreHead(LABELS[method], seed=3))
    model = add_adapter(loaded.model, LoraChoice(r=4), seed=1, task=METHODS[method].task)
    trained, generator = Trained(model, outputs=LABELS[method]), torch.Generator().manual_seed(5)
    with torch.no_grad():
        for _, parameter in trained.named:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    trained.save(folder)
    return folder


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("heads")
    return {method: save_adapter(root / method, method) for method in ("classify", "reward")}


def loaded(adapters: dict[str, Path], method: str) -> ScoringModel:
    setup = {"folder": str(STARTER), "model": CHOICE, "data": DataChoice(), "home": "", "method": method}
    model = load_chat_model(Setup.model_validate({**setup, "trained": str(adapters[method]), "max_length": SHORT}))
    assert isinstance(model, ScoringModel)
    return model


@pytest.fixture(scope="module")
def models(adapters: dict[str, Path]) -> dict[str, ScoringModel]:
    """Each adapter over the starter, for all who ask it."""
    return {method: loaded(adapters, method) for method in adapters}


def asked(model: ScoringModel, *turns: tuple[str, str], second: str = "") -> Piece:
    ask = {"id": "a", "messages": [{"role": role, "content": said} for role, said in turns], "second": second}
    (piece,) = model.pieces(Ask.model_validate(ask), "tuned", lambda: False)
    return piece


def plain(adapter: Path, method: str, ids: tuple[int, ...]) -> list[float]:
    """The logits by transformers and peft alone, of the tokens of a row."""
    outputs = LABELS[method]
    base = AutoModelForSequenceClassification.from_pretrained(
        STARTER, num_labels=len(outputs.names), dtype=torch.float32
    )
    model = PeftModel.from_pretrained(base, adapter).eval()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long)).logits
    return [float(value) for value in (logits.softmax(-1) if outputs.names[1:] else logits)[0]]


@pytest.mark.parametrize(
    ("text", "second"),
    [("A fine bow.", ""), ("A fine bow. " * 40, ""), ("Is it a bow?", "It is a bow.")],
    ids=["short", "cut", "pair"],
)
def test_a_text_has_the_probabilities_that_plain_libraries_give_it(
    adapters: dict[str, Path], models: dict[str, ScoringModel], text: str, second: str
) -> None:
    turns = (Message(role="user", content=f"{text}\n\n{second}" if second else text),)
    row = Example(row=1, messages=(*turns, Message(role="assistant", content="bad")), label="bad", second=second)
    (item,) = tokenise(renderer(load_tokenizer(STARTER), DataChoice()), [row], "labels").items()
    ((tokens, _, _),) = item.cut(SHORT)
    piece = asked(models["classify"], ("system", "Be short."), ("user", text), second=second)
    assert [name for name, _ in piece.scores] == ["bad", "good", "so-so"]
    expected = plain(adapters["classify"], "classify", tokens.input_ids)
    assert [value for _, value in piece.scores] == pytest.approx(expected, rel=1e-4, abs=1e-6)
    best = max(piece.scores, key=lambda one: one[1])
    assert piece.text.startswith(f"{best[0]} {best[1]:.1%}")


def test_a_reward_is_that_of_the_conversation_as_pairs_are_laid_out(
    adapters: dict[str, Path], models: dict[str, ScoringModel]
) -> None:
    using, question = renderer(load_tokenizer(STARTER), DataChoice()), (Message(role="user", content="What is a bow?"),)
    pair = Example(row=1, messages=question, chosen="A stick with hair.", rejected="No idea.")
    prompt, chosen, _ = cut_pair(*using.pair(pair), SHORT)
    model = models["reward"]
    piece = asked(model, ("user", "What is a bow?"), ("assistant", "A stick with hair."))
    assert piece.scores == (
        ("reward", pytest.approx(plain(adapters["reward"], "reward", (*prompt, *chosen))[0], rel=1e-4)),
    )
    assert piece.text == f"{piece.scores[0][1]:.4g}"
    assert asked(model, ("user", "What is a bow?"), ("assistant", "No idea.")).scores != piece.scores


@pytest.mark.parametrize(
    ("method", "turns", "code"),
    [
        ("classify", [("user", " ")], "question.empty"),
        ("reward", [("user", "What is a bow?")], "question.answer"),
        ("reward", [("user", "What is a bow? " * 12), ("assistant", "A stick.")], "question.long"),
    ],
)
def test_what_cannot_be_scored_is_said(models: dict[str, ScoringModel], method: str, turns: Any, code: str) -> None:
    with pytest.raises(Fault) as caught:
        asked(models[method], *turns)
    assert caught.value.code == code


def test_an_adapter_without_names_is_refused(adapters: dict[str, Path], tmp_path: Path) -> None:
    for file in adapters["classify"].iterdir():
        if file.name != "labels.json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(Fault) as caught:
        loaded({"classify": tmp_path}, "classify")
    assert caught.value.code == "model.no_labels"


class AnsweringHere:
    """In place of the child that answers, in this process: what is sent is answered at once. A process of its own
    answers in ``test_chat_child``."""

    def __init__(self, _cards: CardSet, _locations: Locations) -> None:
        self._said: list[dict[str, Any]] = []
        self._model: Any = None
        self._questions = Questions(self)  # type: ignore[arg-type]

    def say(self, line: dict[str, Any]) -> None:
        self._said.append(json.loads(json.dumps(line)))

    def send(self, line: dict[str, Any]) -> None:
        if self._model:
            self._questions.hear(json.dumps(line))
            if not self._questions.asked.empty():  # else it was called off
                answer(self._model, self._questions, self)  # type: ignore[arg-type]
        else:
            self._model = load_chat_model(Setup.model_validate(line))
            self.say({"ready": True})

    def listen(self, _seconds: float = 0.0) -> Iterator[dict[str, Any]]:
        yield self._said.pop(0)

    def alive(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing runs."""


@pytest.fixture
def client(tmp_path: Path, adapters: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> ChatClient:
    """A run of classification with one checkpoint."""
    monkeypatch.setattr("core.chat.client._Child", AnsweringHere)
    locations = Locations(tmp_path).make()
    step = locations.runs / RUN / "checkpoints" / "step-000002"
    step.mkdir(parents=True)
    (step / "adapter").symlink_to(adapters["classify"])
    (step / "MANIFEST.json").write_text(json.dumps({"files": {}}))
    config = RunConfig().model_dump()
    config["model"].update(quantization="none", dtype="float32")
    config["method"] = "classify"
    (locations.runs / RUN / "run.yaml").write_text(dump_config(RunConfig.model_validate(config)), encoding="utf-8")
    (locations.runs / RUN / "events.jsonl").touch()
    return ChatClient(locations, RunConfig.model_validate(config), locations.runs / RUN, "last")


def test_a_run_answers_with_scores_on_the_side_that_was_trained(client: ChatClient) -> None:
    answers = list(client.ask([{"role": "user", "content": "A fine bow."}]))
    assert {answer.side for answer in answers} == {"tuned"}
    last: Answer = answers[-1]
    assert last.done
    assert last.text
    assert sum(value for _, value in last.scores) == pytest.approx(1)
    with pytest.raises(Fault) as caught:
        list(client.ask([{"role": "user", "content": ""}]))
    assert caught.value.code == "question.empty"
    assert list(client.ask([{"role": "user", "content": "A fine bow."}], second="A bad one."))[-1].scores != last.scores


@pytest.mark.parametrize("said", ['{"id2label": 3}', '{"problem_type": "poetry"}', "[", "[" * 100_000])
def test_names_that_nobody_wrote_so_are_refused(said: str, adapters: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(adapters["classify"], tmp_path / "adapter")
    (tmp_path / "adapter" / "labels.json").write_text(said)
    with pytest.raises(Fault) as caught:
        loaded({"classify": tmp_path / "adapter"}, "classify")
    assert caught.value.code == "model.no_labels"
