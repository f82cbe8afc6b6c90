"""How answers are drawn, where they stop, and which adapter gives them: the starter against plain transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from core.chat.client import ChatClient
from core.chat.generator import ChatModel, load_chat_model
from core.chat.messages import Ask, Setup
from core.chat.stops import UntilStop
from core.contract.config import RunConfig
from core.machine.locations import ASSETS, Locations

TEXT = "one STOP two\n\nthree"


def loaded(config: RunConfig, trained: str) -> ChatModel:
    setup = Setup(folder=str(ASSETS / "starter"), model=config.model, data=config.data, trained=trained, home="")
    model = load_chat_model(setup)
    assert isinstance(model, ChatModel)
    return model


@pytest.fixture(scope="module")
def model(config: RunConfig, adapters: list[str]) -> ChatModel:
    return loaded(config, adapters[0])


def asked(**more: Any) -> Ask:
    messages = [{"role": "user", "content": "How many strings does a violin have?"}]
    return Ask.model_validate({"id": "a", "messages": messages, "max_new_tokens": 24, **more})


def said(model: ChatModel, side: Any = "base", **more: Any) -> str:
    return "".join(model.stream(asked(**more), side, lambda: False))


def plain(model: ChatModel) -> tuple[Any, Any, torch.Tensor]:
    """The same without any of our parts: model, tokenizer, and the question's tokens."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(ASSETS / "starter")
    base = AutoModelForCausalLM.from_pretrained(ASSETS / "starter", dtype=torch.float32)
    turns = [message.model_dump(include={"role", "content"}) for message in asked().messages]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    return base, tokenizer, tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids


# ── temperature and top-p ────────────────────────────────────────────────────────────────────────────────────────────


def test_temperature_zero_is_transformers_greedy_answer_whatever_else_is_set(model: ChatModel) -> None:
    base, tokenizer, ids = plain(model)
    made = base.generate(ids, max_new_tokens=24, do_sample=False)
    greedy = tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True)
    assert said(model, top_p=0.3, seed=5) == said(model) == greedy


def test_a_drawn_answer_is_transformers_own_of_that_seed(model: ChatModel) -> None:
    base, tokenizer, ids = plain(model)
    torch.manual_seed(11)
    made = base.generate(ids, max_new_tokens=24, do_sample=True, temperature=1.5, top_p=0.9, top_k=0)
    drawn = tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True)
    assert said(model, temperature=1.5, top_p=0.9, seed=11) == drawn


def test_top_p_draws_from_the_fewest_likeliest_tokens_that_have_that_probability(model: ChatModel) -> None:
    """By its definition (Holtzman et al. 2019): the smallest set whose probability reaches p; and nothing beside it."""
    base, tokenizer, ids = plain(model)
    with torch.inference_mode():
        likely = (base(ids).logits[0, -1] / 2.0).softmax(-1).sort(descending=True)
    size = int((likely.values.cumsum(0) < 0.5).sum()) + 1
    nucleus = {tokenizer.decode([token], skip_special_tokens=True) for token in likely.indices[:size].tolist()}

    def firsts(top_p: float) -> set[str]:
        how = {"temperature": 2.0, "top_p": top_p, "max_new_tokens": 1}
        return {said(model, seed=seed, **how) for seed in range(40)}

    assert 1 < size < 200
    assert len(half := firsts(0.5)) > 1
    assert half <= nucleus
    assert not firsts(1.0) <= nucleus
    assert firsts(float(likely.values[0]) / 2) == {said(model, max_new_tokens=1)}, "the likeliest alone"


# ── stop sequences ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("stops", "shown"),
    [
        ((), TEXT), (("STOP",), "one "), (("\n\n",), "one STOP two"), (("four",), TEXT), (("three!",), TEXT),
        (("TOP t", "STOP two\n"), "one S"), (("two", "STOP"), "one "), (("o",), ""),
    ],
)  # fmt: skip
def test_a_text_ends_before_its_first_stop_however_it_comes_in_pieces(stops: tuple[str, ...], shown: str) -> None:
    for size in range(1, len(TEXT) + 1):
        until = UntilStop(stops)
        pieces = [until.take(TEXT[at : at + size]) for at in range(0, len(TEXT), size)]
        assert "".join(pieces) + until.rest() == shown, size
        assert until.ended == (shown != TEXT)


def test_a_stop_over_several_tokens_ends_the_answer_and_is_not_shown(model: ChatModel) -> None:
    whole = said(model)
    stop = whole[5:12]
    assert len(model._tokenizer(stop, add_special_tokens=False)["input_ids"]) > 1
    assert said(model, stop=[stop]) == whole[: whole.index(stop)]
    assert said(model, stop=["nowhere in it"]) == whole


# ── several adapters over one base ───────────────────────────────────────────────────────────────────────────────────


def test_every_adapter_answers_as_if_it_were_alone_and_the_base_stays(
    model: ChatModel, config: RunConfig, adapters: list[str]
) -> None:
    few = {"max_new_tokens": 8}
    base = said(model, **few)
    first = {folder: said(model, "tuned", trained=folder, **few) for folder in (*adapters, "")}
    assert len({base, *first.values()}) == len(adapters) + 1
    assert first[""] == first[adapters[0]]
    assert first[adapters[3]] == said(loaded(config, adapters[3]), "tuned", **few)
    assert {folder: said(model, "tuned", trained=folder, **few) for folder in adapters} == {
        folder: first[folder] for folder in adapters
    }, "also after those that had to go came back"
    assert said(model, **few) == base
    assert len(model._adapters) < len(adapters)


def test_a_client_turns_to_what_lies_over_its_base_only(
    chat_home: Locations, run_folder: Path, config: RunConfig
) -> None:
    def other(**changed: Any) -> RunConfig:
        return config.model_copy(update={key: getattr(config, key).model_copy(update=value)
                                         for key, value in changed.items()})  # fmt: skip

    def turns(other: RunConfig) -> bool:
        return ChatClient(chat_home, config, run_folder).turn_to(other, run_folder)

    assert turns(config)
    assert turns(other(train={"seed": 5}, data={"system_prompt": "Be brief."}))
    assert not turns(other(model={"dtype": "bfloat16"}))
    assert not turns(other(train={"learns": "everything"}))
    assert not turns(other(lora={"init_lora_weights": "loftq"}))
    assert not ChatClient(chat_home, config, None).turn_to(config, run_folder)
