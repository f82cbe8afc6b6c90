"""Every shipped recipe validates, applies, and names nothing but real knobs."""

import json

import pytest
import yaml

from core.contract.catalogue import Preset, PresetCard
from core.contract.config import DataChoice, LoraChoice, ModelChoice, RunConfig, TrainChoice
from core.contract.data import DataFacts
from core.contract.errors import ConfigError
from core.contract.knobs import knobs
from core.contract.methods import SETTINGS
from core.estimate import advise, estimate
from core.estimate.fit import chosen
from core.machine.hardware import Gpu, Machine
from core.machine.locations import PRESETS, REPOSITORY
from core.models.catalog import EVIDENCE, apply_preset, catalogue, evidence_key, preset, presets
from core.runs.folder.run_yaml import flat

KNOBS = knobs(RunConfig)


def test_all_files_are_listed_and_try_it_is_first() -> None:
    keys = [recipe.key for recipe in presets()]
    assert keys[0] == "try-it"
    assert set(keys) == {path.stem for path in (PRESETS / "recipes").glob("*.yaml")}
    assert {"chat-style", "follow-a-format", "domain-knowledge", "long-context", "preferences"} < set(keys)


@pytest.mark.parametrize("recipe", presets(), ids=lambda recipe: recipe.key)
def test_a_recipe_names_real_knobs_and_its_values_arrive(recipe: Preset) -> None:
    assert set(recipe.values) <= set(KNOBS)
    config = apply_preset(RunConfig(), recipe)
    assert (config.preset, config.with_method("sft").method) == (recipe.key, recipe.method)
    assert {key: chosen(config, key) for key in recipe.values} == recipe.values
    assert any(value != KNOBS[key].default for key, value in recipe.values.items()), "it repeats the defaults"
    assert recipe.goal.endswith(".")
    assert [fault for fault in config.problems() if not fault.startswith("data.path")] == []


GOALS = ["try-it", "chat-style", "follow-a-format", "domain-knowledge", "long-context"]
CARDS = (6, 8, 10, 12, 16, 24)
PROPOSALS = [(recipe, card) for recipe in presets() for card in recipe.cards]
GIB = 2**30


def test_every_goal_has_a_word_for_every_card_and_a_card_finds_its_own() -> None:
    for recipe in (preset(key) for key in GOALS):
        assert tuple(card.gib for card in recipe.cards) == CARDS
        sizes = [2, 5.9, 7.996, 11, 23.99, 31.8]
        found = [card.gib if (card := recipe.on(round(size * GIB))) else None for size in sizes]
        assert found == [None, 6, 8, 10, 24, 24]
        assert recipe.on(None) is None
    assert preset("preferences").on(8 * GIB) is None


def machine_of(gib: int) -> Machine:
    """A gaming card of this size whose desktop holds 0.7 GiB of it."""
    card = Gpu(0, "GPU-1", "NVIDIA GeForce RTX 3060", gib * GIB, int((gib - 0.7) * GIB), (8, 6))
    return Machine((card,), 8, 32 * GIB, 24 * GIB, 10**12, "Linux", wsl=False)


@pytest.mark.parametrize(("recipe", "card"), PROPOSALS, ids=lambda part: getattr(part, "gib", getattr(part, "key", "")))
def test_a_proposal_names_an_open_model_that_fits_its_card(recipe: Preset, card: PresetCard) -> None:
    config = apply_preset(RunConfig(), recipe, card)
    [spec] = [spec for spec in catalogue() if spec.key == card.model]
    assert (config.model.source, config.model.name, spec.gated) == ("hub", spec.name, False)
    assert {key: chosen(config, key) for key in card.values} == card.values
    assert config.train.max_length <= spec.shape.max_position_embeddings
    assert estimate(config, spec, None, machine_of(card.gib)).verdict == "fits"


@pytest.mark.parametrize("key", ["chat-style", "follow-a-format", "domain-knowledge", "long-context"])
@pytest.mark.parametrize("card", CARDS)
def test_a_preset_and_the_advice_on_it_are_of_one_mind(key: str, card: int) -> None:
    """For 2,000 rows of usual lengths there is nothing to warn of."""
    recipe = preset(key)
    config = apply_preset(RunConfig(), recipe, recipe.on(card * GIB))
    limit = config.train.max_length
    lengths = tuple(limit // 8 + (row * 7919) % (limit // 2) for row in range(2000))
    facts = DataFacts(rows=2000, lengths=lengths, trained=lengths, max_length=limit, longest=max(lengths), mean=1.0)
    [spec] = [spec for spec in catalogue() if spec.name == config.model.name]
    found = advise(config, spec, facts, None, None)
    assert [advice.code for advice in found if advice.level == "warning"] == []
    assert "rank_low" not in [advice.code for advice in found]


def test_every_line_of_evidence_was_measured_and_stands_as_it_was_measured() -> None:
    """What a preset claims is a row of the committed results: same values, within the card, the same figure."""
    claimed = {evidence_key(recipe, card): card for recipe, card in PROPOSALS if card.evidence}
    if not EVIDENCE.is_file():
        assert claimed == {}
        return
    said = yaml.safe_load(EVIDENCE.read_text("utf-8"))
    result = json.loads((REPOSITORY / said["results"]).read_text("utf-8"))
    rows = {row["name"]: row for row in result["rows"] if row["status"] == "measured"}
    assert set(claimed) <= set(said["rows"]) <= set(rows)
    assert result["device"].startswith("NVIDIA ")
    for name, card in claimed.items():
        row, seen = rows[name], rows[name]["measured"]
        peak = seen["peak_reserved_bytes"] + seen["context_bytes"]
        assert card.peak_bytes == peak <= card.gib * GIB
        assert row["capped_gib"] == card.gib
        assert row["model"] == card.model
        device = result["device"].removeprefix("NVIDIA ")
        assert (
            f"{peak / GIB:.1f} of {card.gib} GB, memory measured on an {device} capped to {card.gib} GB"
            in card.evidence
        )
    for recipe, card in PROPOSALS:
        row = rows.get(evidence_key(recipe, card))
        asked = apply_preset(RunConfig(), recipe, card).with_method("sft")  # what auto was, of the rows measured
        asked = asked.model_copy(update={"data": DataChoice()})
        assert row is None or _own(RunConfig.model_validate({**row["asked"], "data": {}})) == _own(asked)


def _own(config: RunConfig) -> dict[str, object]:
    """A config without the settings of other methods."""
    return {key: value for key, value in flat(config).items() if key not in {*SETTINGS} - {*config.learning.settings}}


def test_a_recipe_that_was_changed_has_no_evidence_any_more() -> None:
    recipe, card = PROPOSALS[0]
    key = evidence_key(recipe, card)
    assert key == evidence_key(recipe, card.model_copy(update={"evidence": "said", "peak_bytes": 1}))
    assert key != evidence_key(recipe, card.model_copy(update={"model": "qwen3-8b"}))
    assert key != evidence_key(recipe.model_copy(update={"values": {**recipe.values, "lora.r": 3}}), card)


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
    first, then = preset("long-context"), preset("chat-style")
    once = apply_preset(RunConfig(), then, then.on(8 * GIB))
    both = apply_preset(apply_preset(RunConfig(), first, first.on(24 * GIB)), then, then.on(8 * GIB))
    assert both == once, "a proposal for a card takes nothing along either"
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
