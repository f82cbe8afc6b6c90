"""Another program's recipe in place of a data file: its settings in the fields, and what of it is lost."""

from dataclasses import replace
from pathlib import Path

from core.contract.config import DataChoice, RunConfig
from core.machine.yaml_text import shown
from core.runs.recipes.reading import read_recipe
from studio.pages.new_run.words import say
from studio.services.session import Session
from studio.shell.markup import Markup, tag

RECIPE_ENDINGS = (".yaml", ".yml", ".toml")


def is_recipe(path: str | Path) -> bool:
    """Whether a file of this name is read as a recipe: no data has such a name."""
    return Path(path).suffix.lower() in RECIPE_ENDINGS


def taken_over(path: Path, base: Session, fields: set[str]) -> tuple[Session, Markup]:
    """A session with a recipe's values where the page has ``fields`` for them, else the usual ones, and what became of
    it. Where it names no data that is here, and no model, these stay.

    Raises:
        ConfigError: it is no recipe that is known, or cannot be read.
    """
    found = read_recipe(path)
    kept = {key: value for key, value in found.values.items() if key in {*fields, "model.source"}}
    default = RunConfig()
    data = DataChoice() if "data.path" in kept else base.config.data
    fresh = replace(base, config=default.model_copy(update={"model": base.config.model, "data": data}))
    lost = [(one.key, one.value, one.why) for one in found.left if one.decides]
    for one in found.mapped:
        if one.ours not in kept and one.ours != "model.revision":
            part, _, name = one.ours.rpartition(".")
            usual = getattr(getattr(default, part) if part else default, name)
            if (tuple(one.value) if isinstance(one.value, list) else one.value) != usual:
                lost.append((one.ours, one.value, say("recipe.no_field")))
    head = tag("p", say("recipe.taken", program=found.recipe.title, count=len(kept)))
    rows = (tag("li", tag("code", f"{key}: {shown(value)}"), f" {why}") for key, value, why in lost)
    summary = tag("summary", say("recipe.lost", count=len(lost)))
    rest = tag("details", summary, tag("ul", *rows), class_="hint") if lost else Markup()
    return fresh.with_values(kept), tag("div", head, rest, class_="recipe", role="status")
