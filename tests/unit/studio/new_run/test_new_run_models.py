"""Models by fit: their groups, the one that is proposed and why, and how both are drawn; on made machines."""

import html
import time
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from made_window import asked_by

from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.estimate import estimate, resolve
from core.estimate.by_fit import GROUPS, Asked, Placed, known_models, placed, proposed
from core.machine.hardware import Gpu, Machine
from core.models.catalog import apply_preset, catalogue, preset, presets, starter
from core.models.suited import put
from studio.pages.new_run.model import list_view, model_view, proposal_view
from studio.pages.new_run.view import View
from studio.services.session import first

GIB = 1 << 30
CARDS = (6, 8, 12, 24)
LENGTHS = (512, 2048, 8192)
EACH_ONCE = ((512, 8), (2048, 6), (2048, 24), (8192, 12))
"""Each card and each length, models of every group, and tight ones on the card and with offload."""


def machine(gib: int | None, free: float | None = None, ram: float = 20) -> Machine:
    """A card of so many GB with all but one free, on a machine with so much memory free; None: no card."""
    held = 0 if gib is None else int((gib - 1 if free is None else free) * GIB)
    gpus = () if gib is None else (Gpu(0, "GPU-1", "Card", gib * GIB, held, (8, 6)),)
    return Machine(gpus, 8, 32 * GIB, int(ram * GIB), None, "Linux", False)


def changed(config: RunConfig, values: dict[str, Any]) -> RunConfig:
    for key, value in values.items():
        config = put(config, key, value)
    return config


def asked(gib: int | None, goal: str = "", *, ram: float = 20, bits: str = "nf4", **train: Any) -> Asked:
    config = apply_preset(RunConfig(), preset(goal)) if goal else RunConfig()
    values = {"model.quantization": bits, **{f"train.{key}": value for key, value in train.items()}}
    return Asked(changed(config, values), None, machine(gib, ram=ram))


def by_title(given: Asked) -> dict[str, Placed]:
    return {one.spec.title: one for one in placed(given, catalogue())}


def verdict(given: Asked, one: Placed, **train: Any) -> str:
    config = changed(given.config, {f"train.{key}": value for key, value in train.items()})
    return estimate(config, one.spec, given.facts, given.machine).verdict


@pytest.mark.parametrize(
    ("length", "gib"),
    [pytest.param(*case, marks=() if case in EACH_ONCE else pytest.mark.slow) for case in product(LENGTHS, CARDS)],
)
def test_a_group_is_the_planners_own_word(gib: int, length: int) -> None:
    """What fits, fits by the estimate that the summary shows; with offload is what does not fit without."""
    given = asked(gib, max_length=length)
    for one in placed(given, catalogue()):
        said = verdict(given, one)
        assert (one.group == "too_large") == (said == "too_large"), one.spec.title
        assert one.tight == (said == "tight"), one.spec.title
        assert not one.changes
        here = verdict(given, one, checkpointing="recompute")
        if one.group == "card":
            assert here == said, one.spec.title
        elif one.group == "offload":
            assert here != said == verdict(given, one, checkpointing="offload"), one.spec.title


def test_groups_stand_in_order_the_largest_that_fits_first_and_the_tight_last() -> None:
    listed = placed(asked(12), known_models())
    assert len({one.spec.name for one in listed}) == len(listed) >= 20, "every model is listed once"
    assert [one.group for one in listed] == sorted((one.group for one in listed), key=GROUPS.index)
    sizes = [one.spec.shape.parameters for one in listed if one.group == "card" and not one.tight]
    assert sizes == sorted(sizes, reverse=True)
    large = [one.spec.shape.parameters for one in listed if one.group == "too_large"]
    assert large == sorted(large)
    writing = [spec for spec in catalogue() if not spec.encoder]  # encoders need nothing of the host
    short = placed(Asked(RunConfig(), None, machine(6, free=5.5)), writing)
    assert {one.group for one in short if one.tight} == {"offload"}
    assert [one.tight for one in short if one.group == "offload"][-1], "what is tight stands last"


def test_encoders_are_listed_where_they_can_learn() -> None:
    """Also before the data is read, when the method is left to it; and trained whole, whatever stands in the fields."""
    for method, listed in {"auto": True, "classify": True, "sft": False, "reward": False}.items():
        given = replace(asked(12), config=asked(12).config.model_copy(update={"method": method}))
        found = [one for one in placed(given, catalogue()) if one.spec.encoder]
        assert bool(found) == listed, method
        assert all((one.group, one.tight) == ("card", False) for one in found)


def test_the_starter_fits_everywhere() -> None:
    small = Machine((), 2, 4 * GIB, 2 * GIB, None, "Linux", False)
    for where in (small, *(machine(gib) for gib in CARDS)):
        listed = placed(Asked(first().config, None, where), [starter()])
        assert (listed[0].group, listed[0].tight) == ("card", False)


def test_a_card_that_does_not_tell_its_memory_leaves_it_open() -> None:
    silent = Machine((Gpu(0, "GPU-1", "Card", None, None, (8, 6)),), 8, 32 * GIB, 20 * GIB, None, "Linux", True)
    given = Asked(RunConfig(), None, silent)
    assert {one.group for one in placed(given, catalogue())} == {"unknown"}
    assert (proposed(given).spec.source, proposed(given).why) == ("starter", "unknown")


@pytest.mark.parametrize(
    ("given", "group"),
    [
        (asked(12), ("card", False)),
        (asked(12, max_length=8192), ("offload", False)),
        (asked(12, max_length=8192, ram=1.5), ("card", True)),  # no memory for what would wait there
        (asked(12, max_length=32_768), ("offload", False)),  # in tiles
        (asked(12, max_length=131_072), ("too_large", False)),
        (asked(12, bits="none"), ("too_large", False)),
    ],
)
def test_length_bits_and_the_machines_memory_move_a_model_from_group_to_group(
    given: Asked, group: tuple[str, bool]
) -> None:
    one = by_title(given)["Qwen3 8B"]
    assert (one.group, one.tight) == group


def test_a_model_that_fits_only_with_our_choice_of_what_is_recomputed_brings_it_along() -> None:
    given = asked(8, checkpointing="none")
    titles = by_title(given)
    assert titles["Qwen3 0.6B"].changes == {}
    assert titles["Qwen3 4B"].changes == {"train.checkpointing": "auto"}
    assert verdict(given, titles["Qwen3 4B"]) != "fits"
    assert verdict(given, titles["Qwen3 4B"], checkpointing="auto") == "fits"


# ── the proposal ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("goal", [recipe.key for recipe in presets()])
@pytest.mark.parametrize("gib", CARDS)
def test_what_is_proposed_fits_with_all_that_it_changes(gib: int, goal: str) -> None:
    given = asked(gib, goal)
    proposal = proposed(given)
    config = changed(given.config, proposal.changes)
    assert estimate(config, proposal.spec, None, given.machine).verdict == "fits"
    assert proposal.changes["model.name"] == proposal.spec.name
    card = preset(goal).on(gib * GIB)
    fits = proposal.spec.source != "starter"  # full finetuning of any real model is too much for a small card
    assert proposal.why == ("goal" if card else "largest" if fits else "nothing")
    if card:
        assert (proposal.spec.key, proposal.gib, proposal.goal) == (card.model, card.gib, preset(goal).title)
        assert card.values.items() <= proposal.changes.items(), "a real model wants another rate than the built-in one"


@pytest.mark.parametrize(
    ("gib", "title"), [(6, "Qwen3 4B"), (8, "Mistral 7B v0.3"), (12, "Qwen3 8B"), (24, "Qwen3 14B")]
)
def test_without_a_goal_it_is_the_largest_all_rounder_that_fits_the_card(gib: int, title: str) -> None:
    given = asked(gib)
    proposal = proposed(given)
    assert (proposal.spec.title, proposal.why, proposal.group, proposal.tokens) == (title, "largest", "card", 2048)
    assert by_title(given)[title].group == "card"
    assert not proposal.spec.gated
    drawn = html.unescape(proposal_view(proposal, "starter"))
    assert f"</strong>, the largest all-rounder that fits your {gib} GB with room for 2,048 tokens." in drawn


def test_a_goal_whose_model_does_not_fit_is_not_followed() -> None:
    given = asked(8, "chat-style", max_length=131_072)
    assert proposed(given).why == "largest"
    busy = proposed(Asked(given.config, None, machine(8, free=1)))
    assert (busy.spec.source, busy.why) == ("starter", "nothing")


def test_without_a_card_the_small_ones_come_first_nothing_is_offloaded_and_the_built_in_one_is_proposed() -> None:
    listed = placed(asked(None), known_models())
    assert listed[0].spec.source == "starter"
    assert {one.group for one in listed} <= {"card", "too_large"}
    proposal = proposed(asked(None, "chat-style"))
    assert (proposal.spec.source, proposal.why) == ("starter", "cpu")
    assert "<button" not in proposal_view(proposal, "starter"), "it is chosen already"
    assert "Take it: Starter (built in)" in proposal_view(proposal, "Qwen/Qwen3-8B")


# ── as drawn ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_name_from_outside_is_text_in_the_list() -> None:
    evil = starter().model_copy(update={"name": '<img src=x>"', "title": "<b>", "licence": "", "source": "hub"})
    given = asked(None)
    drawn = str(list_view(placed(given, [evil]), "", proposed(given), given.machine))
    assert "<img" not in drawn
    assert "license unknown" in drawn
    assert "Fits this machine" in drawn
    assert asked_by(drawn) == [{"model.name": '<img src=x>"'}]


def test_all_models_are_judged_within_the_time_of_an_edit() -> None:
    """Over many rows too: their numbers are made once, and not for each model."""
    lengths = tuple(20 + number % 1500 for number in range(50_000))
    facts = DataFacts(rows=50_000, lengths=lengths, trained=lengths, max_length=2048, longest=1519, mean=769.5)
    given = Asked(apply_preset(RunConfig(), preset("chat-style")), facts, machine(12))
    specs = known_models()
    placed(given, specs[:1])
    began = time.process_time()
    placed(given, specs)
    all_of_them = time.process_time() - began
    began = time.process_time()
    proposed(given)
    one = time.process_time() - began
    assert all_of_them < 0.3
    assert one < 0.1


@pytest.mark.parametrize("goal", ["", "sort-texts", "chat-style"])
def test_an_encoder_is_proposed_where_texts_are_sorted_and_nowhere_else(goal: str) -> None:
    given = asked(12, goal)
    for method in ("classify", "sft", "reward"):
        wanted = replace(given, config=given.config.model_copy(update={"method": method}))
        offered = proposed(wanted)
        assert offered.spec.encoder == (method == "classify"), offered.spec.title
        listed = placed(wanted, known_models())
        assert any(one.spec.encoder for one in listed) == (method == "classify")
        spec, told = offered.spec, resolve(wanted.config, offered.spec, None, wanted.machine)[1]
        said = str(model_view(View(wanted.config, wanted.machine, spec=spec, resolved=tuple(told))))
        assert ("small enough to be trained whole." in said) == (method == "classify")
        drawn = str(list_view(listed, "starter", offered, wanted.machine, wanted.config.learning.encoders))
        assert ("listed for Classification only" in drawn) == (method != "classify")
