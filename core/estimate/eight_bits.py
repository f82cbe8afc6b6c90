"""Whether products with frozen weights can be computed in eight bits, and if not, why, in one line; and what "auto"
comes to::

    served here ─► proven (on this card, else before it was shipped) ─► tried on this card?  yes: the fastest
                                                                                             no: by published rates, and
                                                                                             tried before the first step
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.estimate import LayerTrial, Resolved
from core.contract.tasks import STARTS
from core.contract.weight_forms import ARITHMETICS, DEFAULT_ARITHMETIC, EIGHT_BIT, ArithmeticName, Evidence
from core.estimate.duration import seconds_per_token
from core.estimate.inputs.cards import oldest, published_of
from core.estimate.inputs.work import work_of
from core.estimate.learned import Learned
from core.machine.hardware import Machine
from core.machine.imports import version_of
from core.models.families import FAMILIES
from core.models.suited import put

KEY, AUTO = "train.arithmetic", "auto"
STEP = 16
"""What a matrix's sides are multiples of; a test holds this to ``core.kernels.eightbit``."""
LEAST_GAIN = 1.05
"""What is not so many times as fast as 16 bits is not worth its rounding."""
_SIXTEEN = ARITHMETICS[DEFAULT_ARITHMETIC].words


@dataclass(frozen=True)
class Chosen:
    """What "auto" comes to, and why; ``untried``: what a trial on this card has yet to compare, none where it is
    settled."""

    name: ArithmeticName
    reason: str
    untried: tuple[ArithmeticName, ...] = ()


def why_sixteen(config: RunConfig, spec: ModelSpec, machine: Machine) -> str:
    """Why the chosen 8-bit arithmetic does not serve this run; empty where it does."""
    return next(_reasons(config, spec, machine), "")


def served(config: RunConfig, spec: ModelSpec, machine: Machine) -> tuple[RunConfig, list[Resolved]]:
    """The config with 16 bits where the chosen eight do not serve, and the line that says why; else as it is."""
    why = why_sixteen(config, spec, machine) if config.train.arithmetic in EIGHT_BIT else ""
    if not why:
        return config, []
    line = Resolved(key=KEY, value=DEFAULT_ARITHMETIC, reason=why)
    return put(config, line.key, line.value), [line]


def choose(config: RunConfig, spec: ModelSpec, machine: Machine, learned: Learned, tokens: int) -> Chosen:
    """The fastest arithmetic that serves this run and is proven.

    Args:
        config: with all else resolved.
        tokens: of a usual micro-batch.
    """
    if machine.gpu is None:
        return Chosen(DEFAULT_ARITHMETIC, "8 bits are for graphics cards; the CPU computes in 32 bits")
    lacks = {name: why_sixteen(put(config, KEY, name), spec, machine) for name in EIGHT_BIT}
    able = tuple(name for name in EIGHT_BIT if not lacks[name])
    if not able:
        return Chosen(DEFAULT_ARITHMETIC, lacks[EIGHT_BIT[-1]])
    known = {name: evidence_of(name, machine.gpu.name, learned) for name in able}
    proven = tuple(name for name in able if known[name].allows)
    if not proven:
        return Chosen(DEFAULT_ARITHMETIC, _unproven(known))
    trial = learned.trial(layer_of(config, spec, machine, tokens))
    if trial is None:
        return _expected(config, spec, machine, tokens, {name: known[name] for name in proven}, able)
    times = {name: trial.milliseconds[name] for name in proven if name in trial.milliseconds}
    sixteen = trial.milliseconds.get(DEFAULT_ARITHMETIC, 0.0)
    if not times or not sixteen:
        return Chosen(DEFAULT_ARITHMETIC, "8-bit products could not be tried on this card")
    best, said = min(times, key=lambda name: times[name]), _times(trial, able)
    if sixteen < LEAST_GAIN * times[best]:
        return Chosen(DEFAULT_ARITHMETIC, f"{said}: 8 bits bring too little here")
    faster = f"{sixteen / times[best]:.1f} times as fast as 16 bits on this card"
    return Chosen(best, f"{faster} ({said}); {known[best].words}{_passed_over(trial, best, known)}")


def evidence_of(name: str, card: str, learned: Learned) -> Evidence:
    """What is known of an 8-bit arithmetic: by the newest proof on this card, else what it was shipped with."""
    if found := learned.proof(card, name):
        where = f"in the proof on this card ({found.steps} steps)"
        return Evidence(found.share, found.worst, found.spread, where)
    shipped = ARITHMETICS[name].evidence
    assert shipped is not None, name
    return shipped


def layer_of(config: RunConfig, spec: ModelSpec, machine: Machine, tokens: int) -> LayerTrial:
    """What a trial for this run holds for: card, driver, libraries, layer and micro-batch."""
    shape, card = spec.shape, machine.gpu
    sides = shape.hidden_size, shape.query_size, shape.key_size, shape.intermediate_size
    return LayerTrial(
        card=card.name if card else "cpu",
        driver=card.driver if card else "",
        versions=" ".join(f"{name} {version_of(name)}" for name in ("torch", "triton")),
        shape=f"{spec.model_type}-" + "x".join(map(str, sides)),
        quantization=config.model.quantization,
        dtype=config.model.dtype,
        rank=config.lora.r,
        tokens=tokens,
    )


def gain_of(trial: LayerTrial | None, arithmetic: str) -> float | None:
    """How many times as fast as in 16 bits a layer's products were in a trial; None where it does not say."""
    times = trial.milliseconds if trial else {}
    own, sixteen = times.get(arithmetic, 0.0), times.get(DEFAULT_ARITHMETIC, 0.0)
    return sixteen / own if own > 0 < sixteen else None


def _expected(
    config: RunConfig, spec: ModelSpec, machine: Machine, tokens: int, proven: dict[ArithmeticName, Evidence],
    able: Sequence[ArithmeticName],
) -> Chosen:  # fmt: skip
    """Without a trial: by the card's published rates, or those of a balanced card."""
    card, base = published_of(machine), work_of(put(config, KEY, DEFAULT_ARITHMETIC), spec, tokens, gpu=True)

    def seconds(name: str) -> float:
        work = work_of(put(config, KEY, name), spec, tokens, gpu=True)
        return seconds_per_token(work, work.model.row, card)

    sixteen, times = seconds_per_token(base, base.model.row, card), {name: seconds(name) for name in proven}
    best, told = min(times, key=lambda name: times[name]), "to be tried on it before the first step"
    rates = "this card's published rates" if card else "the rates of most cards"
    gain = sixteen / times[best]
    if gain < LEAST_GAIN:
        return Chosen(DEFAULT_ARITHMETIC, f"by {rates} 8 bits bring little here; {told}", tuple(able))
    words = f"up to {gain:.1f} times as fast as 16 bits by {rates}, {told}; {proven[best].words}"
    return Chosen(best, words, tuple(able))


def _unproven(known: dict[ArithmeticName, Evidence]) -> str:
    said = ", ".join(f"{name}: {evidence.words}" for name, evidence in known.items())
    return f"nothing faster is proven on this card ({said})"


def _times(trial: LayerTrial, able: Sequence[str]) -> str:
    """ "a layer's products take 11.1 ms in fp8, 14.2 ms in 16 bits"."""
    told = [(name, trial.milliseconds[name]) for name in able if name in trial.milliseconds]
    said = [f"{time:.3g} ms in {name}" for name, time in sorted(told, key=lambda item: item[1])]
    sixteen = trial.milliseconds.get(DEFAULT_ARITHMETIC, 0.0)
    return f"a layer's products take {', '.join([*said, f'{sixteen:.3g} ms in {_SIXTEEN}'])}"


def _passed_over(trial: LayerTrial, best: str, known: dict[ArithmeticName, Evidence]) -> str:
    """What was faster still, and is not proven."""
    times = trial.milliseconds
    faster = [name for name in known if not known[name].allows and times.get(name, times[best]) < times[best]]
    return "".join(f"; {name} is faster still, but not proven here: {known[name].words}" for name in faster)


def _reasons(config: RunConfig, spec: ModelSpec, machine: Machine) -> Iterator[str]:
    train, lora, card, row = config.train, config.lora, oldest(machine), ARITHMETICS[config.train.arithmetic]
    family = FAMILIES.get(spec.model_type)
    if card is None:
        yield f"{row.name} is for graphics cards; the CPU computes in 32 bits"
    elif card.compute_capability is not None and card.compute_capability < row.capability:
        yield f"{card.name} multiplies no {row.name}: that begins with compute capability {_dotted(row.capability)}"
    if not config.learns.adapter:
        yield f"{config.learns.words} learns, so no weight is frozen"
    if spec.encoder or family is None or not family.fast:
        yield f"Luthier has no fast layers for {spec.model_type} yet"
    if config.model.dtype == "float32":
        yield "the model is computed in 32 bits"
    if train.kernels == "plain" or not train.packing or lora.lora_dropout > 0 or lora.bias != "none":
        yield "the model's own layers run, not the fast ones (kernels, packing, dropout or biases)"
    if lora.use_dora:
        yield "DoRA scales each weight's rows anew at every step"
    if lora.has_start and STARTS[lora.init_lora_weights].taken_off:
        yield f"the start {lora.init_lora_weights} is taken from each weight"
    shape = spec.shape
    sides = shape.hidden_size, shape.query_size, shape.key_size, shape.intermediate_size
    if any(side % STEP for side in sides):
        yield f"matrices of {spec.title} have sides that are no multiples of {STEP}"


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
