"""Changes that make a run fit or use room that is left: single ones and useful pairs, each estimated whole, ranked.

They are ordered by what they cost the result, not by what they save:

    free        what an automatic choice would do otherwise, and weights in 4 bits
    time        recomputing, inputs in host memory
    rank        less can be learned; if need be in 4 bits
    data        rows are cut; if need be in 4 bits, or with the lowest rank where that cuts fewer
    streaming   layers' weights in host memory
    model       a smaller one of the catalogue; if need be in 4 bits, or with rows cut as well

and within one of these by rows cut and by time. Where a milder change fits, stronger ones that neither cut fewer rows
nor save much time are left out.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.contract.estimate import Estimate, Suggestion
from core.contract.optimisers import (
    EIGHT_BIT_BLOCK,
    EIGHT_BIT_FROM,
    OPTIMISERS,
    USUAL,
    optimiser_of,
)
from core.contract.tasks import DEFAULT_LEARNS, LEARNS
from core.contract.weight_forms import SMALLEST_WEIGHT_FORM, WEIGHT_FORMS
from core.estimate.duration import seconds_per_token
from core.estimate.estimate import Judged, estimate, judge
from core.estimate.fit import STREAMED, TILE, chosen
from core.estimate.inputs.cards import published_of
from core.estimate.inputs.model import SLOTS
from core.estimate.inputs.rows import rows_of
from core.estimate.inputs.work import gigabytes, streams
from core.estimate.learned import Learned
from core.machine.hardware import Machine, kinds
from core.models.catalog import catalogue
from core.models.positions import reach
from core.models.suited import put, suited

FREE, TIME, RANK, DATA, STREAM, MORE, MODEL = range(7)
"""Kinds of change, in their order. ``MORE`` is what learns: offered where there is room, and less of it where not."""
LENGTHS = (131072, 65536, 32768, 16384, 8192, 6144, 4096, 3072, 2048, 1536, 1024, 768, 512, 384, 256)
RANKS = (256, 128, 64, 32, 16, 8)
FASTER = 0.97
"""A change is offered for its speed up to this share of the time."""
MORE_CARDS = 0.9
"""More cards are proposed where they take at most this share of the time."""
SPARED = 0.9
"""The same of a stronger change where a milder one fits."""
CHECKPOINTING = {
    "auto": "activations kept as far as they fit",
    "budget": "activations recomputed where they do not fit",
    "offload": "activations recomputed, layer inputs in host memory",
    "none": "nothing recomputed",
}
Changes = dict[str, Any]


@dataclass(frozen=True)
class _Trial:
    """One config, judged; ``seconds`` is the counted time of all its tokens, to compare with other trials only."""

    judged: Judged
    seconds: float


@dataclass(frozen=True)
class _Trials:
    """Judges changes of one config, and remembers each. A change to what is chosen already is none."""

    config: RunConfig
    spec: ModelSpec
    facts: DataFacts | None
    machine: Machine
    learned: Learned | None
    tried: dict[object, _Trial] = field(default_factory=dict)

    def trial(self, changes: Changes, spec: ModelSpec | None = None) -> _Trial:
        spec, config = spec or self.spec, self.config
        changed = {key: value for key, value in changes.items() if chosen(self.config, key) != value}
        place = spec.name, frozenset(changed.items())
        if place not in self.tried:
            for key, value in changed.items():
                config = put(config, key, value)
            config, _ = suited(config, spec)
            judged = judge(config, spec, rows_of(config, self.facts), self.machine, self.learned)
            tokens = judged.rows.tokens_per_epoch or config.train.max_length
            seconds = tokens * seconds_per_token(judged.usual, judged.rows.seen, published_of(self.machine))
            self.tried[place] = _Trial(judged, seconds)
        return self.tried[place]

    @cached_property
    def base(self) -> _Trial:
        return self.trial({})

    def suggestion(self, changes: Changes, spec: ModelSpec | None = None) -> Suggestion:
        trial = self.trial(changes, spec)
        slower = trial.seconds / self.base.seconds if self.base.seconds else 1.0
        more = trial.judged.rows.cut - self.base.judged.rows.cut
        return Suggestion(
            changes={key: str(value) for key, value in changes.items()},
            text=f"{_what(self.config, changes, spec)}: {', '.join(_effects(self.base, trial, slower, more))}.",
            peak_bytes=trial.judged.peak,
            verdict=trial.judged.verdict,
            slower=round(slower, 4),
            rows_cut=more,
        )

    def mildest(self, ladder: Sequence[Changes], specs: Sequence[ModelSpec] = ()) -> Suggestion | None:
        """The first step of a ladder that fits, each step needing less than the one before; else, if the config as it
        is is too large, the first that is tight. ``specs``: the steps' models, where they change it."""
        last = len(ladder) - 1
        for enough in ("fits",), ("fits", "tight"):

            def good(step: int, enough: tuple[str, ...] = enough) -> bool:
                return self.trial(ladder[step], specs[step] if specs else None).judged.verdict in enough

            if ladder and good(last):
                first = bisect_left(range(last), True, key=good)
                return self.suggestion(ladder[first], specs[first] if specs else None)
            if self.base.judged.verdict != "too_large":
                break
        return None


@dataclass(frozen=True)
class CardChoice:
    """Cards that a run could work on: ``cards`` as ``train.cards`` has them, and what it would need on them."""

    cards: str
    machine: Machine
    figures: Estimate

    @property
    def seconds(self) -> float:
        """The middle of the estimated time; infinite where it does not fit, or nothing is known."""
        usable = self.figures.seconds if self.figures.verdict in ("fits", "tight") else None
        return sum(usable) / 2 if usable else math.inf


def card_choices(
    config: RunConfig, spec: ModelSpec, facts: DataFacts | None, machine: Machine, learned: Learned | None = None
) -> tuple[CardChoice, ...]:
    """Where the machine has several cards: one of each kind alone, all of a kind, and all of them."""
    of_a_kind = kinds(machine.gpus)
    alone = [[max(kind, key=lambda gpu: gpu.free_bytes or 0)] for kind in of_a_kind]
    sets = [*alone, *of_a_kind, list(machine.gpus)] if len(machine.gpus) > 1 else []
    choices = {",".join(str(gpu.index) for gpu in cards): None for cards in sets}
    return tuple(
        CardChoice(cards, job, estimate(put(config, "train.cards", cards), spec, facts, job, learned))
        for cards in choices
        for job in (machine.choosing(cards),)
    )


def best_cards(choices: Sequence[CardChoice]) -> CardChoice | None:
    """The quickest that fits; more cards only where that is worth it. None where no time is known."""
    best = None
    for choice in sorted(choices, key=lambda choice: choice.figures.cards):
        if choice.seconds < (
            math.inf
            if best is None
            else best.seconds * (MORE_CARDS if choice.figures.cards > best.figures.cards else 1)
        ):
            best = choice
    return best


def make_it_fit(
    config: RunConfig,
    spec: ModelSpec,
    facts: DataFacts | None,
    machine: Machine,
    learned: Learned | None = None,
    others: Sequence[ModelSpec] | None = None,
) -> tuple[Suggestion, ...]:
    """What makes a run fit that does not, the mildest first; empty where it fits or free memory is unknown.

    Args:
        others: models to fall back on; None: those of the catalogue.
    """
    config, _ = suited(config, spec)
    trials = _Trials(config, spec, facts, machine, learned)
    if trials.base.judged.verdict in ("fits", "unknown"):
        return ()
    ways: list[tuple[int, Suggestion]] = []
    for kind, ladder in _reductions(config, trials.spec, trials.base):
        if kind == STREAM and any(way.verdict == "fits" and way.rows_cut <= 0 for _, way in ways):
            continue
        made = trials.mildest(ladder)
        if made is not None and _is_of_use(made, [way for _, way in ways]):
            ways.append((kind, made))
    if (made := _smaller(trials, _alike(spec, catalogue() if others is None else others))) is not None:
        ways.append((MODEL, made))
    order = sorted(ways, key=lambda way: (way[1].verdict != "fits", way[0], way[1].rows_cut, way[1].slower))
    return tuple(made for _, made in order)


def use_the_room(
    config: RunConfig,
    spec: ModelSpec,
    facts: DataFacts | None,
    machine: Machine,
    learned: Learned | None = None,
    others: Sequence[ModelSpec] | None = None,
) -> tuple[Suggestion, ...]:
    """What a run that fits could do with room that is left: speed first, then more of the data, then more to learn."""
    config, _ = suited(config, spec)
    trials = _Trials(config, spec, facts, machine, learned)
    if trials.base.judged.verdict != "fits":
        return ()
    ways: list[tuple[int, Suggestion]] = []
    for kind, ladder in _gains(config, spec, facts, trials.base):
        made = trials.mildest(ladder)
        if made is None or (kind == DATA and made.rows_cut >= 0):  # longer, and no row fewer is cut
            continue
        same = any((made.peak_bytes, made.slower) == (way.peak_bytes, way.slower) for _, way in ways)
        if kind != FREE or (made.slower < FASTER and not same):
            ways.append((kind, made))
    alike = _alike(spec, catalogue() if others is None else others)
    larger = [other for other in reversed(alike) if other.shape.parameters > 1.3 * spec.shape.parameters]
    if (made := trials.mildest([_model(other) for other in larger], larger)) is not None:
        ways.append((MODEL, made))
    return tuple(made for _, made in sorted(ways, key=lambda way: (way[0], way[1].rows_cut, way[1].slower)))


def _reductions(config: RunConfig, spec: ModelSpec, base: _Trial) -> Iterator[tuple[int, list[Changes]]]:
    """Each kind of change that needs less memory, with its steps, the mildest first."""
    free, four, now = _free(config), _four(config), config.train.checkpointing
    starts = [free] if four == free else [free, four]
    for start in starts:
        yield FREE, [start] if start else []
    yield TIME, [{"train.checkpointing": way} for way in ("budget", "offload") if now not in ("auto", way)]
    smaller = [rank for rank in RANKS if rank < config.lora.r] if config.learns.adapter else []
    ranks = [{"lora.r": rank, "lora.lora_alpha": _alpha(config, rank)} for rank in smaller]
    for start in starts:
        yield RANK, [{**start, **rank} for rank in ranks]
    if config.train.learns != DEFAULT_LEARNS:
        adapter = {"train.learns": DEFAULT_LEARNS}
        yield MORE, [{**free, **adapter}, {**free, **adapter, "model.quantization": SMALLEST_WEIGHT_FORM.name}]
    lengths = _shorter(base)
    for start in (free, *({**free, **rank} for rank in ranks[-1:]), *starts[1:]):
        yield DATA, [{**start, **length} for length in lengths]
    yield STREAM, [{**free, STREAMED: count} for count in _streamed(config, spec, base)]


def _streamed(config: RunConfig, spec: ModelSpec, base: _Trial) -> list[int]:
    """Numbers of streamed layers that are more than now, a quarter of them at a time; none where none can stream."""
    layers, model = spec.shape.num_hidden_layers, base.judged.work.model
    if not streams(spec, config, model.gpu):
        return []
    now = model.streamed
    counts = {-(-layers * quarter // 4) for quarter in range(1, 5)}
    return sorted(count for count in counts if count > max(now, SLOTS))


def _gains(
    config: RunConfig, spec: ModelSpec, facts: DataFacts | None, base: _Trial
) -> Iterator[tuple[int, list[Changes]]]:
    """Each kind of gain with its steps, the greatest first."""
    free = _free(config)
    yield FREE, [free] if free else []
    if config.train.checkpointing in ("recompute", "offload"):
        yield FREE, [{"train.checkpointing": "none", "train.tokens_per_pass": 0}, {"train.checkpointing": "budget"}]
    if facts is not None and base.judged.rows.cut:  # without data longer rows may gain nothing
        limit, most = config.train.max_length, min(facts.longest, reach(config.model, spec, facts.longest))
        lengths = sorted({most, *(length for length in LENGTHS if length < most)}, reverse=True)
        yield DATA, [{"train.max_length": length} for length in lengths if length > limit]
    if not config.learns.adapter:
        return
    bits, order = config.model.form.bits, sorted(WEIGHT_FORMS.values(), key=lambda form: form.bits)
    yield MORE, [{"model.quantization": form.name} for form in order if form.bits > bits]
    ranks = [rank for rank in RANKS if config.lora.r < rank <= 4 * config.lora.r]
    yield MORE, [{"lora.r": rank, "lora.lora_alpha": _alpha(config, rank)} for rank in ranks]


def _smaller(trials: _Trials, alike: Sequence[ModelSpec]) -> Suggestion | None:
    """The largest of the smaller models that fits: as it is, else with ``_four``, else the smallest with rows cut."""
    others = [other for other in alike if other.shape.parameters < 0.9 * trials.spec.shape.parameters]
    four, tight = _four(trials.config), None
    for changes in ({}, four):
        made = trials.mildest([{**changes, **_model(other)} for other in others], others)
        if made is not None and made.verdict == "fits":
            return made
        tight = tight or made
    if tight is not None or not others:
        return tight
    lengths = _shorter(trials.base)
    return trials.mildest([{**four, **length, **_model(others[-1])} for length in lengths], [others[-1]] * len(lengths))


def _free(config: RunConfig) -> Changes:
    """What undoes choices by hand that the plan would make otherwise, or that keep our own layers away."""
    train, matrix = config.train, (EIGHT_BIT_FROM, EIGHT_BIT_BLOCK)
    larger = optimiser_of(train.optim, gpu=True).card_bytes(matrix, 4) > OPTIMISERS[USUAL].card_bytes(matrix, 4)
    wanted = {
        "train.checkpointing": "auto",
        "train.tokens_per_pass": 0,
        "train.optim": USUAL if larger else train.optim,
        "train.kernels": "auto",
        "train.packing": True,
        "train.memory_gib": 0.0,
        STREAMED: -1,
        TILE: -1,
    }
    return {key: value for key, value in wanted.items() if chosen(config, key) != value}


def _four(config: RunConfig) -> Changes:
    """The same, and weights in 4 bits."""
    learnt = SMALLEST_WEIGHT_FORM.name in config.learns.weight_forms
    larger = learnt and config.model.form.bits > SMALLEST_WEIGHT_FORM.bits
    return {**_free(config), **({"model.quantization": SMALLEST_WEIGHT_FORM.name} if larger else {})}


def _shorter(base: _Trial) -> list[Changes]:
    """Lengths at which rows would be cut, the longest first."""
    return [{"train.max_length": length} for length in LENGTHS if length < base.judged.work.model.row]


def _alpha(config: RunConfig, rank: int) -> int:
    """The alpha that keeps the adapter's scale: alpha / rank, or alpha / √rank with rsLoRA."""
    share = rank / config.lora.r
    return max(1, round(config.lora.lora_alpha * (share**0.5 if config.lora.use_rslora else share)))


def _alike(spec: ModelSpec, others: Sequence[ModelSpec]) -> list[ModelSpec]:
    """Other models, instruct if this one is, the nearest in size first; of one size the same family first."""
    kind = spec.instruct, spec.encoder
    alike = [other for other in others if (other.instruct, other.encoder) == kind and other.name != spec.name]
    size = spec.shape.parameters
    return sorted(alike, key=lambda one: (abs(one.shape.parameters - size), one.model_type != spec.model_type))


def _model(spec: ModelSpec) -> Changes:
    return {"model.source": spec.source, "model.name": spec.name, "model.revision": spec.revision}


def _is_of_use(made: Suggestion, milder: Sequence[Suggestion]) -> bool:
    """Whether it saves time or rows that no milder suggestion which fits saves."""
    fitting = [other for other in milder if other.verdict == "fits"]
    if not fitting:
        return True
    saves = made.slower < SPARED * min(other.slower for other in fitting)
    return made.verdict == "fits" and (saves or made.rows_cut < min(other.rows_cut for other in fitting))


def _what(config: RunConfig, changes: Changes, spec: ModelSpec | None) -> str:
    """What is changed, in words."""
    words: dict[str, Callable[[Any], str]] = {
        "train.checkpointing": lambda value: CHECKPOINTING[value],
        "train.tokens_per_pass": lambda _: "passes as large as fit",
        "train.optim": lambda _: "the optimiser in 8 bits",
        "train.kernels": lambda _: "fast kernels",
        "train.packing": lambda _: "rows packed without padding",
        "train.memory_gib": lambda _: "nine tenths of what is free",
        "train.max_length": lambda value: (
            f"examples {'cut at' if value < config.train.max_length else 'up to'} {value:,} tokens"
        ),
        STREAMED: lambda value: (
            "as many streamed layers as it takes" if value < 0 else f"{value} layers streamed from the machine's memory"
        ),
        "model.quantization": lambda value: f"weights in {WEIGHT_FORMS[value].bits} bits",
        "lora.r": lambda value: f"rank {value}",
        "train.learns": lambda value: f"{LEARNS[value].words} learns in place of {config.learns.words}",
    }
    parts = [f"{spec.title} in its place"] if spec is not None else []
    text = ", ".join([*parts, *(words[key](value) for key, value in changes.items() if key in words)])
    return text[:1].upper() + text[1:]


def _effects(base: _Trial, trial: _Trial, slower: float, more_cut: int) -> Iterator[str]:
    yield f"{gigabytes(trial.judged.peak)} in place of {gigabytes(base.judged.peak)}"
    if slower >= 2:
        yield f"{slower:.1f} times as long"
    elif slower >= 1.01:
        yield f"{slower - 1:.0%} slower"
    elif slower <= 0.99:
        yield f"{1 - slower:.0%} faster"
    if more_cut > 0:
        yield f"{more_cut:,} more rows are cut" if base.judged.rows.cut else f"{more_cut:,} rows are cut"
    elif more_cut < 0:
        yield f"{-more_cut:,} rows fewer are cut"
