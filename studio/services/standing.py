"""What is proposed for a draft, beside what a person set.

``own`` are the dotted keys that a person set; all others follow the proposal. What its last application changed is
kept, so that the page can say it and take it back.
"""

from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from core.contract.config import ModelChoice, RunConfig
from core.contract.estimate import Proposed
from core.estimate.fit import chosen
from core.estimate.propose import goal_taken, goals_key
from core.models.suited import put
from core.runs.folder.run_yaml import flat

Why = Literal["file", "reading", "goal", "method", "model", "own"]
CAUSES: tuple[Why, ...] = get_args(Why)
"""What a proposal is made for, by its parts; the first that differs is why there is a new one."""
Value = str | int | float | bool
PENDING = "chosen, and its rows not counted yet"
"""The model's part of a cause until the rows have been counted for the model that was proposed."""


class _Kept(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Change(_Kept):
    """A setting that a proposal changed."""

    key: str
    old: Value
    new: Value


class Standing(_Kept):
    """The proposal that stands: what it was made for, its settings, and what it changed because of ``why``."""

    cause: dict[str, str] = {}
    rows: tuple[Proposed, ...] = ()
    changed: tuple[Change, ...] = ()
    why: Why = "file"
    stamp: int = 0
    """Told apart from those before it: a window that sends another one has not been told of this one yet."""
    here: bool = False
    """Whether only models that need not be downloaded are proposed: the hub did not give the first one."""

    def is_for(self, path: str) -> bool:
        """Whether it was made for the rows of this file, as the model counts them that it proposes."""
        return self.cause.get("file", "").startswith(f"({path!r}, ") and self.cause.get("model") != PENDING

    def of(self, key: str) -> Value | None:
        """What is proposed for a setting; None where nothing is."""
        return next((row.value for row in self.rows if row.key == key), None)


def own_of(config: RunConfig) -> frozenset[str]:
    """The settings that differ from what nobody touched: of a draft that does not say which a person set."""
    plain, now = flat(goal_taken(config)), flat(config)
    model = {"model.name"} if config.model.name != ModelChoice().name else set()
    return frozenset({key for key in now if goals_key(key) and now[key] != plain[key]} | model)


def every_setting(config: RunConfig) -> frozenset[str]:
    """The settings of a run that is run again, or of another program's recipe: they count as set."""
    return frozenset(flat(config))


def touched(own: frozenset[str], standing: Standing | None, values: Mapping[str, Any]) -> frozenset[str]:
    """The keys that are a person's own after these values were set: what is set to the proposal follows it again."""
    follows = {key for key, value in values.items() if standing is not None and value == standing.of(key)}
    return (own | values.keys()) - follows


def caught_up(config: RunConfig, standing: Standing, own: Collection[str]) -> RunConfig:
    """The config of a window that had not been told of the last changes when it sent its fields, with them."""
    for change in standing.changed:
        if change.key not in own and chosen(config, change.key) == change.old:
            config = with_value(config, change.key, change.new)
    return config


def kept(config: RunConfig, draft: RunConfig, own: Collection[str]) -> RunConfig:
    """The config of a window with what a person set before as the draft has it: a proposal on its way may have written
    over it there."""
    for key in filter(goals_key, own):
        config = put(config, key, chosen(draft, key))
    return config


def with_value(config: RunConfig, key: str, value: Any) -> RunConfig:
    """The config with one value changed; of a model's name with its source, and at no revision."""
    if key != "model.name":
        return put(config, key, value)
    named = {"name": value, "source": source_of(value), "revision": ""}
    return config.model_copy(update={"model": config.model.model_copy(update=named)})


def source_of(name: str) -> str:
    """Where a model of this name comes from."""
    return "starter" if name == "starter" else "folder" if name.startswith(("/", "~")) else "hub"
