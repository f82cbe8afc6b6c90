"""Whether products with frozen weights can be computed in eight bits, and if not, why, in one line."""

from collections.abc import Iterator

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.estimate import Resolved
from core.contract.tasks import STARTS
from core.contract.weight_forms import ARITHMETICS, DEFAULT_ARITHMETIC
from core.machine.hardware import Machine
from core.models.families import FAMILIES
from core.models.suited import put

STEP = 16
"""What a matrix's sides are multiples of; a test holds this to ``core.kernels.eightbit``."""


def why_sixteen(config: RunConfig, spec: ModelSpec, machine: Machine) -> str:
    """Why the chosen 8-bit arithmetic does not serve this run; empty where it does."""
    return next(_reasons(config, spec, machine), "")


def served(config: RunConfig, spec: ModelSpec, machine: Machine) -> tuple[RunConfig, list[Resolved]]:
    """The config with 16 bits where the chosen eight do not serve, and the line that says why; else as it is."""
    why = "" if config.train.arithmetic == DEFAULT_ARITHMETIC else why_sixteen(config, spec, machine)
    if not why:
        return config, []
    line = Resolved(key="train.arithmetic", value=DEFAULT_ARITHMETIC, reason=why)
    return put(config, line.key, line.value), [line]


def _reasons(config: RunConfig, spec: ModelSpec, machine: Machine) -> Iterator[str]:
    train, lora, card, row = config.train, config.lora, machine.gpu, ARITHMETICS[config.train.arithmetic]
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
