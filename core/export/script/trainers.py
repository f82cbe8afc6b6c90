"""SCRIPTS: how each method is trained by plain libraries, a row each: the trainer, its settings, and what of a row it
takes. The names are TRL's and transformers' own."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from core.contract.config import RunConfig
from core.contract.methods import Method
from core.train.methods.kto import weights_of

Settings = dict[str, Any]
_PARTS = """    parts = split(*row["parts"])
    ids = [token for part in parts for token in part]
    labels = [token if number % 2 else -100 for number, part in enumerate(parts) for token in part]
    return {"input_ids": ids, "labels": labels}"""
_SIDES = """    prompt, chosen = split(row["prompt"], row["chosen"])
    _, rejected = split(row["prompt"], row["rejected"])
    return {"prompt_ids": prompt, "chosen_ids": chosen, "rejected_ids": rejected}"""
_SEQUENCES = """    made = {}
    for side in ("chosen", "rejected"):
        prompt, answer = split(row["prompt"], row[side])
        made[f"{side}_input_ids"] = prompt + answer
        made[f"{side}_labels"] = [-100] * len(prompt) + answer
        made[f"{side}_attention_mask"] = [1] * len(prompt + answer)
    return made"""
_REWARDED = """    prompt, chosen = split(row["prompt"], row["chosen"])
    _, rejected = split(row["prompt"], row["rejected"])
    return {"chosen_ids": prompt + chosen, "rejected_ids": prompt + rejected, "margin": row.get("margin", 0.0)}"""
_MARKED = """    prompt, answer = split(row["prompt"], row["completion"])
    return {"prompt_ids": prompt, "completion_ids": answer, "label": row["label"]}"""
_LABELLED = """    label = LABEL
    return {"input_ids": split(row["text"])[0], "labels": label}"""
_OF_PAIRS = "A row has a prompt and two answers, chosen and rejected, written as the chat template writes them."


@dataclass(frozen=True)
class Script:
    """One method's trainer."""

    name: str
    """Of the classes: ``NAMETrainer`` and ``NAMEConfig``."""
    about: str
    """What a row of the data has."""
    features: str
    """Lines of Python that make a row's features of it."""
    settings: Callable[[RunConfig, Any], Settings] = lambda _config, _rows: {}
    """From config and rows to settings of the loss."""
    module: str = "trl"
    config: str = ""
    """The class of its settings, where that has another name."""
    prepared: str = "def _prepare_dataset(self, dataset, *_, **__):\n        return dataset"
    """The method of the trainer that would tokenise rows, and does not."""
    besides: Settings = field(default_factory=lambda: {"max_length": None})
    """Settings that its rows need: they are cut already."""


def _dpo(config: RunConfig, _rows: Any) -> Settings:
    train, weight = config.train, config.train.rpo_alpha
    loss: Settings = {"loss_type": [config.loss_type, "sft"], "loss_weights": [1.0, weight]} if weight else {}
    return {"beta": config.beta, "loss_type": config.loss_type, "label_smoothing": train.label_smoothing, **loss}


def _kto(config: RunConfig, rows: Any) -> Settings:
    good, bad = weights_of(rows, (config.train.desirable_weight, config.train.undesirable_weight))
    weights = {"desirable_weight": good, "undesirable_weight": bad}
    return {"beta": config.beta, "loss_type": config.loss_type, **weights, **_limit(config)}


def _cpo(own: Callable[[RunConfig], Settings]) -> Callable[[RunConfig, Any], Settings]:
    return lambda config, _: {
        "beta": config.beta, **own(config), "label_smoothing": config.train.label_smoothing, **_limit(config)
    }  # fmt: skip


def _limit(config: RunConfig) -> Settings:
    return {"max_length": config.train.max_length}


_UNTOKENISED: Settings = {
    "features": _SEQUENCES,
    "prepared": "def tokenize_row(self, row, *_):\n        return {}",
    "besides": {},
}
_LEARNED = "A row's parts are read one after another, of which the second, the fourth and so on are learned."
SCRIPTS: dict[Method, Script] = {
    "sft": Script("SFT", _LEARNED, _PARTS),
    "pretrain": Script("SFT", _LEARNED, _PARTS),
    "dpo": Script("DPO", _OF_PAIRS, _SIDES, _dpo),
    "orpo": Script(
        "ORPO",
        _OF_PAIRS,
        settings=lambda config, _: {"beta": config.beta, **_limit(config)},
        module="trl.experimental.orpo",
        **_UNTOKENISED,
    ),
    "simpo": Script(
        "CPO",
        _OF_PAIRS,
        settings=_cpo(lambda config: {"loss_type": "simpo", "simpo_gamma": config.train.simpo_gamma, "cpo_alpha": 0.0}),
        module="trl.experimental.cpo",
        **_UNTOKENISED,
    ),
    "cpo": Script(
        "CPO",
        _OF_PAIRS,
        settings=_cpo(lambda config: {"loss_type": config.loss_type, "cpo_alpha": config.train.cpo_alpha}),
        module="trl.experimental.cpo",
        **_UNTOKENISED,
    ),
    "kto": Script(
        "KTO",
        "A row has a prompt, an answer (completion), and whether that is good (label).",
        _MARKED,
        _kto,
        prepared="def _prepare_dataset(self, dataset, *_, **__):\n"
        '        other = dataset["completion_ids"][-1:] + dataset["completion_ids"][:-1]\n'
        '        return dataset.add_column("KL_completion_ids", other)',
    ),
    "reward": Script(
        "Reward",
        _OF_PAIRS,
        _REWARDED,
        lambda config, _: {"center_rewards_coefficient": config.train.center_rewards_coefficient or None},
    ),
    "classify": Script(
        "",
        "A row has a text and its label.",
        _LABELLED,
        module="transformers",
        config="TrainingArguments",
        prepared="",
        besides={},
    ),
}
