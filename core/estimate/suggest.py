"""MAKE IT FIT, and USE THE ROOM: single changes and useful pairs of them, each estimated whole, ranked.

Every suggestion is judged by the same arithmetic as the run itself, so what is said to fit does fit by the estimate.
They stand in the order of what they cost the result, not of what they save:

    free        what an automatic choice would do otherwise, and 4 bits of what is kept (memory, time)
    time        recomputing, inputs in host memory                                     (slower by x)
    rank        less can be learned, if need be in 4 bits
    data        rows are cut, if need be in 4 bits, or with the lowest rank where that cuts fewer
    model       a smaller one of the catalogue, the last resort; if need be in 4 bits, or with rows cut as well

and within one of these by rows cut and by time. Where a milder change fits, stronger ones are left out that neither
cut fewer rows nor save much time. So more memory never makes the first suggestion cut more rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.contract.estimate import Suggestion
from core.contract.weight_forms import SMALLEST_WEIGHT_FORM, WEIGHT_FORMS
from core.estimate.duration import seconds_per_token
from core.estimate.fit import chosen, put, usual_tokens
from core.estimate.inputs.cards import BALANCED, published
from core.estimate.inputs.rows import rows_of
from core.estimate.judge import Judged, gigabytes, judge
from core.estimate.learned import Learned
from core.machine.hardware import Machine

__all__ = ["Kind", "Trial", "make_it_fit", "use_the_room"]

Kind = int
FREE, TIME, RANK, DATA, MORE, MODEL = range(6)
"""``MORE`` to learn is only offered where there is room."""
LENGTHS = (32768, 16384, 8192, 6144, 4096, 3072, 2048, 1536, 1024, 768, 512, 384, 256)
RANKS = (256, 128, 64, 32, 16, 8)
SMALLER = 2
FASTER = 0.97
"""A change that is offered for its speed takes no more than this share of the time."""
SPARED = 0.9
"""So is a stronger change where a milder one fits."""
Changes = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """One config, judged; ``seconds`` is the time for all its tokens by counting, on a scale of its own."""

    judged: Judged
    seconds: float
    rows_cut: int
    rows: int


@dataclass(frozen=True)
class _Asker:
    """Judges changes of one config, and remembers what it is compared with."""

    config: RunConfig
    spec: ModelSpec
    facts: DataFacts | None
    machine: Machine
    learned: Learned | None
    tried: dict[object, Trial] = field(default_factory=dict)
    """Every trial so far by what it changes: ladders share steps, and a change to what is chosen already is none."""

    def trial(self, changes: Changes, spec: ModelSpec | None = None) -> Trial:
        spec, config = spec or self.spec, self.config
        for key, value in changes.items():
            config = put(config, key, value)
        place = (
            spec.name,
            frozenset(change for change in changes.items() if chosen(self.config, change[0]) != change[1]),
        )
        if place not in self.tried:
            self.tried[place] = self._tried(config, spec)
        return self.tried[place]

    def _tried(self, config: RunConfig, spec: ModelSpec) -> Trial:
        rows = rows_of(config, self.facts)
        found = judge(config, spec, rows, self.machine, self.learned)
        work = found.work.at(usual_tokens(found.config, rows, found.work.tokens))
        card = published(self.machine.gpu.name) if self.machine.gpu else None
        tokens = rows.tokens_per_epoch or config.train.max_length
        return Trial(found, tokens * seconds_per_token(work, rows.seen, card or BALANCED), rows.cut, rows.train)

    def suggestion(self, base: Trial, changes: Changes, spec: ModelSpec | None = None) -> Suggestion:
        found = self.trial(changes, spec)
        slower = found.seconds / base.seconds if base.seconds else 1.0
        more = found.rows_cut - base.rows_cut
        text = _text(base, found, slower, more, _words(self.config, changes, spec))
        return Suggestion(
            changes={key: str(value) for key, value in changes.items()},
            text=text,
            peak_bytes=found.judged.peak,
            verdict=found.judged.verdict,
            slower=round(slower, 4),
            rows_cut=more,
        )

    def mildest(self, base: Trial, ladder: Sequence[tuple[Changes, ModelSpec | None]]) -> Suggestion | None:
        """The first step of a ladder that fits, each needing less than the one before; else the first that is tight."""
        if not ladder:
            return None
        made: dict[int, Suggestion] = {}

        def good(step: int) -> bool:
            if step not in made:
                made[step] = self.suggestion(base, *ladder[step])
            return made[step].verdict in enough

        enough, last = {"fits"}, len(ladder) - 1
        if not good(last):
            enough = {"fits", "tight"} if base.judged.verdict == "too_large" else set()
            if not good(last):
                return None
        first = bisect_left(range(last), True, key=good)
        good(first)
        return made[first]


def make_it_fit(
    config: RunConfig,
    spec: ModelSpec,
    facts: DataFacts | None,
    machine: Machine,
    learned: Learned | None = None,
    others: Sequence[ModelSpec] | None = None,
) -> tuple[Suggestion, ...]:
    """What makes a run fit that does not, the mildest first; empty where it fits, or where nothing is told of memory.

    Args:
        others: models to fall back on; None: those of the catalogue.
    """
    asker = _Asker(config, spec, facts, machine, learned)
    base = asker.trial({})
    if base.judged.verdict in ("fits", "unknown"):
        return ()
    found: list[tuple[Kind, Suggestion]] = []
    for kind, ladder in _ladders(config, base):
        made = asker.mildest(base, [(changes, None) for changes in ladder])
        if made is not None and _is_of_use(made, [other for _, other in found]):
            found.append((kind, made))
    smaller = _by_size(spec, _known(others))[0]
    found += [(MODEL, made) for made in _smaller(asker, base, smaller, 1 if found else SMALLER)]
    return tuple(made for _, made in sorted(found, key=_cost))


def use_the_room(
    config: RunConfig,
    spec: ModelSpec,
    facts: DataFacts | None,
    machine: Machine,
    learned: Learned | None = None,
    others: Sequence[ModelSpec] | None = None,
) -> tuple[Suggestion, ...]:
    """What a run that fits could do with room that is left: faster first, then more of the data, then more to learn."""
    asker = _Asker(config, spec, facts, machine, learned)
    base = asker.trial({})
    if base.judged.verdict != "fits":
        return ()
    found: list[tuple[Kind, Suggestion]] = []
    for kind, ladder in _gains(config, spec, facts, base):
        made = asker.mildest(base, [(changes, None) for changes in ladder])
        if made is None or (kind == DATA and made.rows_cut >= 0):  # as many rows are cut as before, only later
            continue
        if kind != FREE or (made.slower < FASTER and _is_new(made, found)):
            found.append((kind, made))
    larger = _by_size(spec, _known(others))[1]
    models = [(_model(other), other) for other in reversed(larger)]
    if (most := asker.mildest(base, models)) is not None:
        found.append((MODEL, most))
    return tuple(made for _, made in sorted(found, key=lambda item: (item[0], item[1].rows_cut, item[1].slower)))


def _smaller(asker: _Asker, base: Trial, others: Sequence[ModelSpec], most: int) -> list[Suggestion]:
    """Smaller models, the largest first: as they are, else with what costs no result, else the smallest, rows cut."""
    four = _four(asker.config)
    tight: list[Suggestion] = []
    for changes in ({}, four):
        found = _in_its_place(asker, base, others, most, changes)
        if any(made.verdict == "fits" for made in found):
            return found
        tight = tight or found
    if tight:
        return tight
    ladder = [({**four, **length, **_model(others[-1])}, others[-1]) for length in _shorter(base)] if others else []
    made = asker.mildest(base, ladder)
    return [] if made is None else [made]


def _in_its_place(
    asker: _Asker, base: Trial, others: Sequence[ModelSpec], most: int, changes: Changes
) -> list[Suggestion]:
    found: list[Suggestion] = []
    left = list(others)
    while left and len(found) < most:
        made = asker.mildest(base, [({**changes, **_model(other)}, other) for other in left])
        if made is None:
            break
        found.append(made)
        left = left[[other.name for other in left].index(made.changes["model.name"]) + 1 :]
    return found


def _ladders(config: RunConfig, base: Trial) -> Iterator[tuple[Kind, list[Changes]]]:
    """For each kind of change its steps, the mildest first."""
    train, free = config.train, _free(config)
    yield FREE, [free] if free else []
    four = _four(config)
    yield FREE, [four] if four != free else []
    yield (
        TIME,
        [{"train.checkpointing": way} for way in ("budget", "offload") if train.checkpointing not in ("auto", way)],
    )
    ranks = [{"lora.r": rank, "lora.lora_alpha": _alpha(config, rank)} for rank in RANKS if rank < config.lora.r]
    lengths = _shorter(base)
    yield RANK, [{**free, **rank} for rank in ranks]
    if four != free:
        yield RANK, [{**four, **rank} for rank in ranks]
    yield DATA, [{**free, **length} for length in lengths]
    if ranks:
        yield DATA, [{**free, **ranks[-1], **length} for length in lengths]
    if four != free:
        yield DATA, [{**four, **length} for length in lengths]


def _free(config: RunConfig) -> Changes:
    """Choices by hand that the plan would make otherwise, and what keeps our own layers away."""
    changes: Changes = {}
    train = config.train
    if train.checkpointing != "auto":
        changes["train.checkpointing"] = "auto"
    if train.tokens_per_pass:
        changes["train.tokens_per_pass"] = 0
    if train.optim == "adamw_torch":
        changes["train.optim"] = "adamw_8bit"
    if train.kernels == "plain":
        changes["train.kernels"] = "auto"
    if not train.packing and config.learning.packs:
        changes["train.packing"] = True
    if train.memory_gib:
        changes["train.memory_gib"] = 0.0
    return changes


def _four(config: RunConfig) -> Changes:
    """The same, and weights in 4 bits: all that costs time and memory, and no result."""
    larger = config.model.form.bits > SMALLEST_WEIGHT_FORM.bits
    return {**_free(config), **({"model.quantization": SMALLEST_WEIGHT_FORM.name} if larger else {})}


def _shorter(base: Trial) -> list[Changes]:
    """Lengths at which rows would be cut, the longest first."""
    return [{"train.max_length": length} for length in LENGTHS if length < base.judged.work.model.row]


def _gains(
    config: RunConfig, spec: ModelSpec, facts: DataFacts | None, base: Trial
) -> Iterator[tuple[Kind, list[Changes]]]:
    """For each kind of gain its steps, the greatest first."""
    free = _free(config)
    yield FREE, [free] if free else []
    if config.train.checkpointing in ("recompute", "offload"):
        yield FREE, [{"train.checkpointing": "none", "train.tokens_per_pass": 0}, {"train.checkpointing": "budget"}]
    if facts is not None and base.rows_cut:  # without data nobody knows whether longer rows would be of any use
        limit, most = config.train.max_length, min(facts.longest, spec.shape.max_position_embeddings)
        lengths = sorted({most, *(length for length in LENGTHS if length < most)}, reverse=True)
        yield DATA, [{"train.max_length": length} for length in lengths if length > limit]
    bits, order = config.model.form.bits, sorted(WEIGHT_FORMS.values(), key=lambda form: form.bits)
    yield MORE, [{"model.quantization": form.name} for form in order if form.bits > bits]
    ranks = [rank for rank in RANKS if config.lora.r < rank <= 4 * config.lora.r]
    yield MORE, [{"lora.r": rank, "lora.lora_alpha": _alpha(config, rank)} for rank in ranks]


def _alpha(config: RunConfig, rank: int) -> int:
    """The strength that keeps the adapter's scale as it is: alpha / rank, or alpha / √rank where that is chosen."""
    share = rank / config.lora.r
    return max(1, round(config.lora.lora_alpha * (share**0.5 if config.lora.use_rslora else share)))


def _known(others: Sequence[ModelSpec] | None) -> Sequence[ModelSpec]:
    if others is not None:
        return others
    from core.models.catalog import catalogue

    return catalogue()


def _by_size(spec: ModelSpec, others: Sequence[ModelSpec]) -> tuple[list[ModelSpec], list[ModelSpec]]:
    """Smaller ones, the largest first, and larger ones, the smallest first; of one size those of the same family."""
    size = spec.shape.parameters
    alike = [other for other in others if other.instruct == spec.instruct and other.name != spec.name]
    near = sorted(alike, key=lambda other: (abs(other.shape.parameters - size), other.model_type != spec.model_type))
    return [o for o in near if o.shape.parameters < 0.9 * size], [o for o in near if o.shape.parameters > 1.3 * size]


def _model(spec: ModelSpec) -> Changes:
    return {"model.source": spec.source, "model.name": spec.name, "model.revision": spec.revision}


def _is_of_use(made: Suggestion, milder: Sequence[Suggestion]) -> bool:
    """Whether it saves time, or rows from being cut, that no milder suggestion which fits saves."""
    fitting = [other for other in milder if other.verdict == "fits"]
    if not fitting:
        return True
    saves = made.slower < SPARED * min(other.slower for other in fitting)
    return made.verdict == "fits" and (saves or made.rows_cut < min(other.rows_cut for other in fitting))


def _is_new(made: Suggestion, found: Sequence[tuple[Kind, Suggestion]]) -> bool:
    """Whether it comes to anything that none of these comes to."""
    return all((made.peak_bytes, made.slower) != (other.peak_bytes, other.slower) for _, other in found)


def _cost(item: tuple[Kind, Suggestion]) -> tuple[float, ...]:
    kind, made = item
    return made.verdict != "fits", kind, made.rows_cut, made.slower, made.peak_bytes


def _words(config: RunConfig, changes: Changes, spec: ModelSpec | None) -> str:
    said: dict[str, Callable[[Any], str]] = {
        "train.checkpointing": lambda value: _WAYS[value],
        "train.tokens_per_pass": lambda _: "passes as large as fit",
        "train.optim": lambda _: "the optimiser in 8 bits",
        "train.kernels": lambda _: "fast kernels",
        "train.packing": lambda _: "rows packed without padding",
        "train.memory_gib": lambda _: "nine tenths of what is free",
        "train.max_length": lambda value: (
            f"examples {'cut at' if value < config.train.max_length else 'up to'} {value:,} tokens"
        ),
        "model.quantization": lambda value: f"weights in {WEIGHT_FORMS[value].bits} bits",
        "lora.r": lambda value: f"rank {value}",
    }
    parts = [f"{spec.title} in its place"] if spec is not None else []
    parts += [said[key](value) for key, value in changes.items() if key in said]
    text = ", ".join(parts)
    return text[:1].upper() + text[1:]


_WAYS = {
    "auto": "activations kept as far as they fit",
    "budget": "activations recomputed where they do not fit",
    "offload": "activations recomputed, layer inputs in host memory",
    "none": "nothing recomputed",
}


def _text(base: Trial, found: Trial, slower: float, more_cut: int, words: str) -> str:
    parts = [f"{words}: {gigabytes(found.judged.peak)} in place of {gigabytes(base.judged.peak)}"]
    if slower >= 2:
        parts.append(f"{slower:.1f} times as long")
    elif slower >= 1.01:
        parts.append(f"{slower - 1:.0%} slower")
    elif slower <= 0.99:
        parts.append(f"{1 - slower:.0%} faster")
    if more_cut > 0:
        parts.append(f"{more_cut:,} more rows are cut" if base.rows_cut else f"{more_cut:,} rows are cut")
    elif more_cut < 0:
        parts.append(f"{-more_cut:,} rows fewer are cut")
    return ", ".join(parts) + "."
