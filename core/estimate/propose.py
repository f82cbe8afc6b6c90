"""The proposal: settings chosen from the rows, the model and the machine, each with its reason.

``SETTINGS`` has a row a setting: its rule, from a ``Case`` to a value and a reason of ``BECAUSE``. A case is settled
row by row, so that a later rule counts with what stands before it. What a person set stays, and the rules after it
follow it. Under a goal its own values stand, but for what the data and the machine decide. Sources:

- LoRA Without Regret (Schulman et al. 2025, Thinking Machines): an adapter on every layer does as well as full
  finetuning at ten times its rate while its rank holds the data, and loses by large batches.
- QLoRA (Dettmers et al. 2023, arXiv:2305.14314, tables 9 and 10): 2e-4 up to 13B, 1e-4 from 33B, 16 rows a step, the
  constant rate warmed up over 3 % of the steps.
- The guides of Unsloth and TRL: 2e-4, ranks 16 to 32 and more for much data, alpha the rank or twice it, one to three
  epochs, 16 rows a step; TRL's guide of LoRA Without Regret: fewer than 32.
- Malladi et al. 2022 (arXiv:2205.10782): with Adam the rate goes with the square root of the rows a step.
- Muennighoff et al. 2023 (arXiv:2305.16264): up to four epochs over a text are nearly as good as new text.
- DPO and its kin overfit: one to three epochs (Tunstall et al. 2023, arXiv:2310.16944).
- BERT (Devlin et al. 2019, arXiv:1810.04805): 2e-5 to 5e-5, two to four epochs, a tenth of warm-up.
- Biderman et al. 2024 (arXiv:2405.09673): new knowledge wants high ranks.
- The starter's rate and scale are those of our preset "Try it", whose run is measured at every demo.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from core.contract.catalogue import ModelSpec, Preset
from core.contract.config import RunConfig
from core.contract.config.positions import ROPE_SCALINGS
from core.contract.data import DataFacts, DataReport
from core.contract.estimate import Proposed
from core.contract.methods import METHODS
from core.contract.optimisers import optimiser_of
from core.data.deal.split import held_out_rows
from core.estimate.by_fit import Asked, proposed
from core.estimate.estimate import judge
from core.estimate.fit import chosen
from core.estimate.inputs.rows import rows_of, table_of, total_steps
from core.estimate.reasons import BECAUSE
from core.estimate.suggest import LENGTHS
from core.models.catalog import apply_preset, presets
from core.models.positions import limited, reach, scaling_for
from core.models.suited import put, suited

MANY, MUCH = 10_000, 100_000
WHOLE_SHARE, NEARLY = 0.99, 1.25
"""The share of the rows that is to be whole; and how much longer a limit may be to have all of them so."""
FINE, COARSE, FINE_TO = 64, 256, 1024
"""Lengths are rounded up to multiples."""
ROWS, FEW_ROWS, FEWEST_ROWS, MOST_ROWS = 16, 8, 4, 32
"""Rows a step."""
ENOUGH_STEPS, LEAST_STEPS, MANY_STEPS = 100, 50, 1000
BATCH, LEAST_RANK = 4, 8
USUAL_RATE, MOST_RATE, ENCODER_RATE = 2e-4, 5e-4, 3e-5
TINY, TINY_TIMES, LARGE = 50e6, 15, 30e9
"""Parameters of a model as small as the starter, how many times the usual rate it takes, and of a large model."""
WARM_UP, ENCODER_WARM_UP, LEAST_WARM, MOST_WARM = 0.03, 0.1, 5, 100
Said = tuple[Any, str, dict[str, object]]
"""A value, the key of its reason, and what stands in that."""
EPOCHS: dict[str, tuple[tuple[float, float, str], ...]] = {
    "answers": ((200, 5, "few"), (2_000, 3, "some"), (20_000, 2, "some"), (math.inf, 1, "many")),
    "compared": ((200, 3, "compared"), (2_000, 2, "compared"), (math.inf, 1, "many")),
    "labels": ((500, 4, "few"), (20_000, 3, "some"), (200_000, 2, "some"), (math.inf, 1, "many")),
    "tokens": ((1e5, 4, "texts"), (1e6, 3, "texts"), (2e7, 2, "texts"), (math.inf, 1, "texts")),
}
"""Below so many rows (of raw text: tokens) so many epochs, and why, by what is learned from."""
LEADING = ("model.rope_scaling", "model.rope_factor")
"""What a person may set beside these settings that some of them follow."""
GOALS_OWN = ("method", "model.quantization", "data.train_on", "data.template")
"""What a goal decides beside the adapter and the training."""


@dataclass(frozen=True, kw_only=True)
class Given(Asked):
    """What a proposal depends on."""

    facts: DataFacts
    spec: ModelSpec
    report: DataReport


@dataclass(frozen=True)
class Case:
    """What is settled so far; ``config`` with the method that trains, and what follows from the model."""

    given: Given
    config: RunConfig
    own: frozenset[str]
    goal: Preset | None

    @property
    def rows(self) -> int:
        """Rows to train on, under any limit of length."""
        return self.given.facts.rows - held_out_rows(self.given.facts.rows, self.config.data)

    @property
    def steps(self) -> int:
        """Optimiser steps of the whole run."""
        return total_steps(put(self.config, "train.max_steps", 0), self.rows)

    @property
    def tokens(self) -> int:
        """Tokens of all rows."""
        facts = self.given.facts
        return round(sum(facts.lengths) * facts.rows / max(1, len(facts.lengths)))

    @property
    def raw_text(self) -> bool:
        """Whether it learns texts, not answers."""
        texts = "text" in (self.given.report.layout, *self.config.learning.layouts)
        return texts or self.config.data.train_on == "everything"

    @property
    def tiny(self) -> bool:
        """Whether the model is as small as the starter."""
        return is_tiny(self.given.spec)

    def fits(self, key: str, value: Any) -> bool:
        """Whether a run with this value fits, as far as the machine says."""
        given = self.given
        config = suited(put(self.config, key, value), given.spec)[0]
        judged = judge(config, given.spec, rows_of(config, given.facts), given.machine, given.learned)
        return judged.verdict in ("fits", "unknown")


# ── the rules ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _length(case: Case) -> Said:
    lengths, spec = table_of(case.given.facts).whole, case.given.spec
    model, made, needed = case.config.model, spec.shape.max_position_embeddings, covering(case.given.facts)
    most = reach(model, spec, min(needed, lengths.sorted[-1]))
    wanted = min(needed, most)
    smaller = [length for length in LENGTHS if length < wanted]
    length = next((length for length in (wanted, *smaller) if case.fits("train.max_length", length)), wanted)
    cut = lengths.cut(length)
    why = "fits" if length < wanted else "all" if not cut else "model" if wanted == most else "most"
    share = f"{math.floor(1000 * (1 - cut / len(lengths))) / 10:g}%"
    facts: dict[str, object] = {"share": share, "title": spec.title}
    if length > made and limited(spec):
        longest = min(length, lengths.sorted[-1])
        name, factor = scaling_for(model, spec, longest)
        scaling = f"{ROPE_SCALINGS[name].title} {factor:g}"
        why, facts = "scaled", {"made": f"{made:,}", "longest": f"{longest:,}", "scaling": scaling}
    return length, f"length.{why}", facts


def _epochs(case: Case) -> Said:
    method, rows = case.config.learning, case.rows
    compared = method.answers > 1 or method.marked
    kind = "labels" if method.labelled else "compared" if compared else "tokens" if case.raw_text else "answers"
    amount = case.tokens if kind == "tokens" else rows
    epochs, why = next((epochs, why) for below, epochs, why in EPOCHS[kind] if amount < below)
    return epochs, f"epochs.{why}", {"rows": f"{rows:,}", "tokens": f"{case.tokens:,}"}


def _rows(case: Case) -> tuple[int, str]:
    """Rows a step, so that there are enough steps and not too many; and why."""
    seen = case.rows * case.config.train.num_train_epochs
    if seen >= MANY_STEPS * MOST_ROWS:
        rows, why = MOST_ROWS, "many"
    elif seen >= ENOUGH_STEPS * ROWS:
        rows, why = ROWS, "usual"
    else:
        rows, why = FEW_ROWS if seen >= LEAST_STEPS * FEW_ROWS else FEWEST_ROWS, "few"
    return max(rows, case.config.learning.rows_at_least), why


def _batch(case: Case) -> Said:
    rows, times = _rows(case)[0], case.config.train.gradient_accumulation_steps
    held = "train.gradient_accumulation_steps" in case.own
    batch = max(1, rows // times) if held else min(BATCH, rows)
    return batch, "batch", {"rows": batch * times if held else rows}


def _accumulation(case: Case) -> Said:
    rows, why = _rows(case)
    key = "train.gradient_accumulation_steps"
    accumulation = max(1, round(rows / case.config.train.per_device_train_batch_size))
    steps = replace(case, config=put(case.config, key, accumulation)).steps
    rows = accumulation * case.config.train.per_device_train_batch_size
    return accumulation, f"rows.{why}", {"rows": rows, "steps": f"{steps:,}"}


def _rank(case: Case) -> Said:
    wanted = rank = rank_for(case.given.spec, case.rows, case.raw_text)
    while rank > LEAST_RANK and not case.fits("lora.r", rank):
        rank //= 2
    if not case.fits("lora.r", rank):
        rank = wanted  # a smaller rank would not help
    why = "fits" if rank < wanted else "texts" if case.raw_text else "much" if case.rows >= MANY else "usual"
    return rank, f"rank.{why}", {"rows": f"{case.rows:,}"}


def _alpha(case: Case) -> Said:
    return (2 * case.config.lora.r, "alpha.tiny", {}) if case.tiny else (case.config.lora.r, "alpha", {})


def _rate(case: Case) -> Said:
    config, spec = case.config, case.given.spec
    method = config.learning
    reasons = (
        ("encoder", spec.encoder), ("tiny", case.tiny), ("method", method.usual_rate is not None),
        ("whole", config.learns.rate_share != 1), ("large", spec.shape.parameters >= LARGE), ("rows", True),
    )  # fmt: skip
    why = next(why for why, holds in reasons if holds)
    return usual_rate(config, spec), f"rate.{why}", {"title": method.title, "rows": config.rows_per_step}


def _warm_up(case: Case) -> Said:
    steps, goal = case.steps, case.goal
    if case.given.spec.encoder:
        return round(ENCODER_WARM_UP * steps), "warm.encoder", {}
    most = max(1, steps // 10)
    if goal is not None and "train.warmup_steps" in goal.values and goal.values["train.warmup_steps"] <= most:
        return goal.values["train.warmup_steps"], "goal", {"goal": goal.title}
    wanted = min(MOST_WARM, max(LEAST_WARM, round(WARM_UP * steps)))
    return (wanted, "warm.share", {}) if wanted <= most else (most, "warm.few", {})


@dataclass(frozen=True)
class Setting:
    """A row of the table. ``refines``: also what a goal says of it follows the data and the machine."""

    key: str
    rule: Callable[[Case], Said]
    refines: bool = False


SETTINGS = (
    Setting("train.max_length", _length, refines=True),
    Setting("train.num_train_epochs", _epochs, refines=True),
    Setting("train.max_steps", lambda _: (0, "steps", {}), refines=True),
    Setting("train.per_device_train_batch_size", _batch, refines=True),
    Setting("train.gradient_accumulation_steps", _accumulation, refines=True),
    Setting("lora.r", _rank),
    Setting("lora.lora_alpha", _alpha),
    Setting("train.learning_rate", _rate),
    Setting("train.warmup_steps", _warm_up, refines=True),
)


# ── the proposal ─────────────────────────────────────────────────────────────────────────────────────────────────────


def propose(given: Given, own: Collection[str] = ()) -> tuple[RunConfig, tuple[Proposed, ...]]:
    """The config with every setting that nobody set as it is proposed; and what is proposed, with why.

    Args:
        own: dotted keys that a person set: these stay, and what follows from them follows them.
    """
    config = goal_taken(given.config, given, own)
    goal = goal_of(config)
    case = Case(given, _trained(config, given), frozenset(own), goal)
    method = case.config.trained_method
    told = goal is not None and config.method != "auto" and "method" not in case.own
    why = (
        BECAUSE["goal"].format(goal=goal.title)
        if told and goal
        else BECAUSE["method"].format(reason=METHODS[given.report.method].reason)
    )
    said = [Proposed(key="method", value=method if told else given.report.method, because=why)]
    decided = {} if goal is None else {**goal.values, **_of_card(goal, given)}
    for row in SETTINGS:
        short = goal is not None and bool(goal.for_samples)  # a goal for a first look is left as it is
        if (row.key.startswith("lora.") and not case.config.learns.adapter) or (short and row.key not in decided):
            continue
        value, reason, facts = row.rule(case)
        if goal is not None and row.key in decided and (short or not row.refines):
            value, reason, facts = decided[row.key], "goal", {"goal": goal.title}
        said.append(Proposed(key=row.key, value=value, because=BECAUSE[reason].format(**facts)))
        if row.key not in case.own:
            config = put(config, row.key, value)
            case = replace(case, config=_trained(config, given))
    return config, tuple(said)


def propose_model(given: Given, own: Collection[str] = (), here: bool = False) -> tuple[ModelSpec, Proposed]:
    """The model for these rows on this machine, and why; ``here``: of those that need not be downloaded."""
    config = goal_taken(given.config, given, own).with_method(given.report.method)
    if "train.max_length" not in own:
        config = put(config, "train.max_length", covering(given.facts))
    found = proposed(replace(given, config=config), here)
    why = BECAUSE[f"model.{found.why}"].format(goal=found.goal, gib=found.gib)
    return found.spec, Proposed(key="model.name", value=found.spec.name, because=why)


def covering(facts: DataFacts) -> int:
    """The length at which nearly all rows are whole, or all where that is not much more."""
    ordered = table_of(facts).whole.sorted
    most, all_ = rounded_up(ordered[math.ceil(WHOLE_SHARE * len(ordered)) - 1]), rounded_up(ordered[-1])
    return all_ if all_ <= NEARLY * most else most


def goal_of(config: RunConfig) -> Preset | None:
    """The goal that a person chose, if any."""
    return next((recipe for recipe in presets() if recipe.key == config.preset), None)


def goals_key(key: str) -> bool:
    """Whether a goal decides this setting, by its value or by leaving it as usual."""
    return key.startswith(("lora.", "train.")) or key in GOALS_OWN


def goal_taken(config: RunConfig, given: Given | None = None, own: Collection[str] = ()) -> RunConfig:
    """The config as its goal has it where nothing is a person's own; without one, or with one that cannot learn from
    these rows, as usual. Model, data and name stay."""
    goal = goal_of(config)
    if goal is not None and given is not None and not METHODS[goal.method].takes(given.report.layout):
        goal = None
    plain = put(config, "model.quantization", type(config.model)().quantization)
    plain = apply_preset(plain, goal or Preset(key="", title="", goal=""))
    for key, value in _of_card(goal, given).items() if goal is not None and given is not None else ():
        plain = put(plain, key, value)
    for key in filter(goals_key, own):
        plain = put(plain, key, chosen(config, key))
    return plain


def _of_card(goal: Preset, given: Given) -> dict[str, Any]:
    """The goal's values for a card of this size, where the model is the one that it names for it."""
    card = goal.on(given.machine.gpu.total_bytes if given.machine.gpu else None)
    return card.values if card is not None and card.model == given.spec.key else {}


def _trained(config: RunConfig, given: Given) -> RunConfig:
    return suited(config.with_method(given.report.method), given.spec)[0]


def rounded_up(tokens: int) -> int:
    """A length to choose: the next multiple."""
    step = FINE if tokens <= FINE_TO else COARSE
    return -(-tokens // step) * step


def is_tiny(spec: ModelSpec) -> bool:
    """Whether a model that writes is as small as the starter."""
    return spec.shape.parameters < TINY and not spec.encoder


def rank_for(spec: ModelSpec, rows: int, raw_text: bool) -> int:
    """A rank for so many rows, bounded by the model's size."""
    if raw_text:
        wanted = 64 if rows < MANY else 128 if rows < MUCH else 256
    else:
        wanted = 16 if rows < MANY else 64 if rows < MUCH else 128
    billions = spec.shape.parameters / 1e9
    return min(wanted, 64 if billions < 1 else 128 if billions < 5 else 256)


def usual_rate(config: RunConfig, spec: ModelSpec) -> float:
    """The usual learning rate of this method, of what learns, of so many rows a step, and of this model."""
    method, optimiser = config.learning, optimiser_of(config.train.optim, gpu=True)
    rate = method.usual_rate or min(MOST_RATE, USUAL_RATE * math.sqrt(config.rows_per_step / ROWS))
    rate = ENCODER_RATE if spec.encoder else rate * config.learns.rate_share
    if is_tiny(spec):
        rate = min(TINY_TIMES * rate, TINY_TIMES * USUAL_RATE)
    elif spec.shape.parameters >= LARGE:
        rate /= 2
    return float(f"{rate * optimiser.rate_share:.1g}")
