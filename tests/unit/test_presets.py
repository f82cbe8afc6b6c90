"""Every shipped recipe validates, applies, and names nothing but real knobs."""

from __future__ import annotations

import pytest

from core.catalog import apply_preset, preset, presets
from core.contract.catalogue import Preset
from core.contract.config import DataChoice, LoraChoice, ModelChoice, RunConfig, TrainChoice
from core.contract.errors import ConfigError
from core.contract.knobs import knobs
from core.locations import PRESETS

KNOBS = knobs(RunConfig)


def value_of(config: RunConfig, key: str) -> object:
    part, field = key.split(".")
    return getattr(getattr(config, part), field)


def test_all_files_are_listed_and_try_it_is_first() -> None:
    keys = [recipe.key for recipe in presets()]
    assert keys[0] == "try-it"
    assert set(keys) == {path.stem for path in (PRESETS / "recipes").glob("*.yaml")}
    assert {"chat-style", "follow-a-format", "domain-knowledge", "long-context", "preferences"} < set(keys)


@pytest.mark.parametrize("recipe", presets(), ids=lambda recipe: recipe.key)
def test_a_recipe_names_real_knobs_and_its_values_arrive(recipe: Preset) -> None:
    assert set(recipe.values) <= set(KNOBS)
    config = apply_preset(RunConfig(), recipe)
    assert (config.preset, config.method) == (recipe.key, recipe.method)
    assert {key: value_of(config, key) for key in recipe.values} == recipe.values
    assert recipe.goal.endswith(".")
    assert [fault for fault in config.problems() if not fault.startswith("data.path")] == []


@pytest.mark.parametrize("recipe", presets(), ids=lambda recipe: recipe.key)
def test_a_recipe_states_only_what_differs_or_matters(recipe: Preset) -> None:
    """A recipe that repeats every default is a form, not a recipe."""
    assert any(value != KNOBS[key].default for key, value in recipe.values.items())


def test_no_recipe_claims_what_was_not_measured() -> None:
    assert [recipe.key for recipe in presets() if recipe.evidence] == []


def test_a_recipe_replaces_the_one_before_and_keeps_what_was_chosen() -> None:
    chosen = RunConfig(
        name="mine",
        model=ModelChoice(source="hub", name="Qwen/Qwen3-4B", quantization="none"),
        data=DataChoice(path="rows.jsonl", columns={"prompt": "question"}, system_prompt="Be brief."),
        lora=LoraChoice(r=3),
        train=TrainChoice(seed=5),
    )
    long = apply_preset(apply_preset(chosen, preset("domain-knowledge")), preset("long-context"))
    assert long == apply_preset(chosen, preset("long-context"))
    assert (long.name, long.model) == (chosen.name, chosen.model)
    assert (long.data.path, long.data.columns, long.data.system_prompt) == (
        chosen.data.path, chosen.data.columns, "Be brief."
    )  # fmt: skip
    assert long.data.train_on == "answers"


def test_try_it_is_short() -> None:
    config = apply_preset(RunConfig(), preset("try-it"))
    assert config.train.max_steps * config.rows_per_step * config.train.max_length <= 150_000
    assert config.model.quantization == "nf4"


def test_an_unknown_recipe_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="try-it"):
        preset("nonsense")


@pytest.mark.parametrize(
    "values", [{"train.no_such": 1}, {"train": 1}, {"nowhere.r": 1}, {"lora.r": 0}, {"name.x": 2}], ids=str
)
def test_a_bad_recipe_is_refused(values: dict[str, object]) -> None:
    bad = Preset(key="bad", title="Bad", goal="None.", values=values)
    with pytest.raises(ConfigError, match="bad"):
        apply_preset(RunConfig(), bad)
