"""Models by fit, each judged by the estimate (``judge``) under the page's choices; and the proposed one, with why.

A model *fits the card* where a plan fits that keeps everything on it, recomputed where needed; it *fits with offload*
where layer inputs must be kept in the machine's memory, and *streamed* where weights must be. A tight one is never
proposed, nor one that streams.

Proposed is what the chosen goal names for a card of this size, where that fits; else the largest that fits of those
which goals name: they are all-rounders, which a catalogue's largest need not be.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from core.contract.catalogue import ModelSpec, Preset
from core.contract.config import RunConfig, TrainChoice
from core.contract.data import DataFacts
from core.estimate.estimate import Judged, judge
from core.estimate.fit import has_room
from core.estimate.inputs.rows import Rows, rows_of
from core.estimate.learned import Learned
from core.estimate.terms import pinned_bytes
from core.machine.hardware import Machine
from core.models.catalog import cached_models, catalogue, presets, starter
from core.models.suited import put, suited, unsuited

Group = Literal["card", "offload", "streamed", "too_large", "unknown"]
GROUPS: tuple[Group, ...] = get_args(Group)
Why = Literal["goal", "largest", "nothing", "cpu", "unknown", "here"]
_DISK_TIMES = 1.2
"""Of a download, what the disk must have free."""
_PLACES = {"fits": 0, "tight": 1, "too_large": 2, "unknown": 3}


@dataclass(frozen=True)
class Asked:
    """What a verdict depends on, beside the model: the page's choices, the rows, and the machine."""

    config: RunConfig
    facts: DataFacts | None
    machine: Machine
    learned: Learned | None = None


@dataclass(frozen=True)
class Placed:
    """A model in its group. ``changes`` are the settings that choosing it makes besides."""

    spec: ModelSpec
    group: Group
    tight: bool
    peak_bytes: int
    changes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Proposal:
    """The one that is proposed, and why; ``changes`` are the fields' values with it, by dotted key.

    ``goal`` is the goal's title and ``gib`` the card's size that was thought of; ``evidence`` what was measured of it.
    """

    spec: ModelSpec
    why: Why
    group: Group = "card"
    changes: dict[str, Any] = field(default_factory=dict)
    goal: str = ""
    gib: int = 0
    tokens: int = 0
    """The longest example that there is room for; 0 where the rows are known and all fit."""
    evidence: str = ""


# ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def known_models() -> list[ModelSpec]:
    """Every model of the list: the built-in one, those in the cache, and the catalogue."""
    specs = {spec.name: spec for spec in (*cached_models(), *catalogue())}
    return [starter(), *specs.values()]


def placed(asked: Asked, specs: Sequence[ModelSpec]) -> list[Placed]:
    """The models that can be trained so, by group, tight ones last; on a card the largest that fit first.

    Without a card time decides, so there the smallest are first; of what is too large they always are.
    """
    configs = {spec.name: suited(asked.config, spec)[0] for spec in specs if unsuited(asked.config, spec) is None}
    limits = {config.train.max_length: config for config in configs.values()}
    rows = {limit: rows_of(config, asked.facts) for limit, config in limits.items()}  # of most models the same

    def order(one: Placed) -> tuple[int, bool, int]:
        size = one.spec.shape.parameters
        largest_first = asked.machine.gpu is not None and one.group in ("card", "offload")
        return GROUPS.index(one.group), one.tight, -size if largest_first else size

    fitting = ((replace(asked, config=configs[spec.name]), spec) for spec in specs if spec.name in configs)
    return sorted((_place(one, spec, rows[one.config.train.max_length]) for one, spec in fitting), key=order)


def _place(asked: Asked, spec: ModelSpec, rows: Rows) -> Placed:
    """A model under the page's choice of recomputation, or under the automatic one where only that fits."""
    own, changes = asked.config.train.checkpointing, {}
    judged = _judged(asked, spec, rows, own)
    if own != "auto" and judged.verdict in ("tight", "too_large"):
        ours = _judged(asked, spec, rows, "auto")
        if _PLACES[ours.verdict] < _PLACES[judged.verdict]:
            judged, changes = ours, {"train.checkpointing": "auto"}
    if judged.host_missing and (here := _judged(asked, spec, rows, "recompute")).verdict != "too_large":
        judged = here
    if judged.verdict in ("unknown", "too_large"):
        return Placed(spec, "unknown" if judged.verdict == "unknown" else "too_large", False, judged.peak)
    if judged.work.model.streamed:
        return Placed(spec, "streamed", judged.verdict == "tight", judged.peak, changes)
    group: Group = "card"
    if pinned_bytes(judged.work):
        here = _judged(asked, spec, rows, "recompute")
        if _PLACES[here.verdict] > _PLACES[judged.verdict]:
            group = "offload"
            if not has_room(judged.work, asked.machine):  # for the inputs there
                judged, group = here, "card" if here.verdict == "tight" else "too_large"
    return Placed(spec, group, group != "too_large" and judged.verdict == "tight", judged.peak, changes)


def _judged(asked: Asked, spec: ModelSpec, rows: Rows, checkpointing: str) -> Judged:
    return judge(put(asked.config, "train.checkpointing", checkpointing), spec, rows, asked.machine, asked.learned)


# ── the proposal ─────────────────────────────────────────────────────────────────────────────────────────────────────


def proposed(asked: Asked, here: bool = False) -> Proposal:
    """The model proposed for this goal on this machine; the built-in one where no other fits. ``here``: of those that
    need not be downloaded."""
    card, recipes = asked.machine.gpu, presets()
    if card is None:
        return Proposal(starter(), "cpu")
    if card.free_bytes is None or card.total_bytes is None:
        return Proposal(starter(), "unknown")
    specs = {spec.key: spec for spec in catalogue() if spec.cached or not here}
    goal = next((recipe for recipe in recipes if recipe.key == asked.config.preset), None)
    if asked.config.learning.encoders and (goal is None or goal.method != asked.config.method):
        goal = next((recipe for recipe in recipes if recipe.method == asked.config.method), goal)
    all_rounders = {card.model for recipe in recipes for card in recipe.cards} & specs.keys()
    taken = _of_goal(asked, goal, specs, card.total_bytes)
    taken = taken or _largest(_with_room(asked), [specs[key] for key in all_rounders], card.total_bytes)
    return replace(taken, why="here") if here else taken


def _with_room(asked: Asked) -> Asked:
    """As for rows of usual length at least: a model beside which only these short ones fit leaves no room for more."""
    length = max(TrainChoice().max_length, asked.config.train.max_length)
    return replace(asked, config=put(asked.config, "train.max_length", length), facts=None)


def _of_goal(asked: Asked, goal: Preset | None, specs: dict[str, ModelSpec], total_bytes: int) -> Proposal | None:
    """The goal's model for this card with its values, where it fits."""
    card = goal.on(total_bytes) if goal else None
    if goal is None or card is None or card.model not in specs:
        return None
    config, spec = asked.config, specs[card.model]
    for key, value in card.values.items():
        config = put(config, key, value)
    if unsuited(config, spec) or not _has_room(asked.machine, spec):
        return None
    wanted = replace(asked, config=suited(config, spec)[0])
    ours = _place(wanted, spec, rows_of(wanted.config, asked.facts))
    if ours.tight or ours.group in ("streamed", "too_large"):
        return None
    changes = {"model.name": ours.spec.name, **card.values, **ours.changes}
    return Proposal(ours.spec, "goal", ours.group, changes, goal.title, card.gib, _tokens(wanted), card.evidence)


def _largest(asked: Asked, specs: Sequence[ModelSpec], total_bytes: int) -> Proposal:
    """The largest that fits on the card, else with offload, else the built-in one."""
    rows, gib, tokens = rows_of(asked.config, asked.facts), round(total_bytes / 2**30), _tokens(asked)
    writing = (spec for spec in specs if not spec.encoder and not unsuited(asked.config, spec))
    writing = (spec for spec in writing if _has_room(asked.machine, spec))
    by_size = sorted(writing, key=lambda spec: -spec.shape.parameters)
    fitting = [one for one in (_place(asked, spec, rows) for spec in by_size) if not one.tight]
    for group in ("card", "offload"):
        if one := next((one for one in fitting if one.group == group), None):
            changes = {"model.name": one.spec.name, **one.changes}
            return Proposal(one.spec, "largest", one.group, changes, gib=gib, tokens=tokens)
    return Proposal(starter(), "nothing", changes={"model.name": "starter"}, gib=gib, tokens=tokens)


def _has_room(machine: Machine, spec: ModelSpec) -> bool:
    """Whether the disk takes the model and what a run writes; a model that is here needs nothing."""
    free = machine.disk_free_bytes
    return spec.cached or free is None or _DISK_TIMES * spec.download_bytes <= free


def _tokens(asked: Asked) -> int:
    known = asked.facts is not None and bool(asked.facts.lengths)
    return 0 if known else asked.config.train.max_length
