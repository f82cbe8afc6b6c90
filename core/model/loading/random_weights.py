"""A model of a known shape with random weights, made on the device, for measurements.

Each matrix is drawn (normal, standard deviation 0.02, the usual initial scale) and quantised at once, so a 7B never
exists in 16 bits. Its seed depends on the model's seed and its index alone. Norms multiply by one, biases are zero.
What a shape leaves open (rotary base, softcaps, epsilon) is the model type's default in transformers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig

from core.contract.catalogue import ModelShape, ModelSpec
from core.contract.errors import ModelError
from core.contract.weight_forms import DEFAULT_WEIGHT_FORM
from core.model.attention import packed
from core.model.loading.assemble import Target, assemble, auto_class
from core.model.loading.load import LoadedModel, freeze, plain_words, resolve_dtype
from core.model.loading.streamed import assemble_streamed, streamed_line
from core.model.loading.tensor_stream import WORDS
from core.model.loading.together import ALONE, Together
from core.model.loading.weights import quiet_bars
from core.models.catalog import catalogue
from core.models.encoders import fields_of

STANDARD_DEVIATION = 0.02
TINY = ModelSpec(
    key="tiny", title="Tiny", source="starter", name="tiny", model_type="llama",
    shape=ModelShape(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, vocab_size=256, max_position_embeddings=4096,
    ),
)  # fmt: skip
"""For the CPU: every width is a multiple of NF4's block of 64."""
ALIASES = {
    "mistralai/mistral-7b-v0.3": "mistral-7b",
    "mistralai/mistral-nemo-base-2407": "mistral-nemo-12b",
    "llama-3-8b": "llama-3.1-8b",
    "meta-llama/meta-llama-3-8b": "llama-3.1-8b",
    "meta-llama/llama-3.1-8b": "llama-3.1-8b",
}
"""Other models with the shape of a catalogue entry."""


def random_model(
    name: str | ModelSpec,
    device: torch.device,
    *,
    quantization: str = DEFAULT_WEIGHT_FORM,
    dtype: str = "auto",
    layers: int = 0,
    seed: int = 0,
    attn_implementation: str = "",
    streamed: int = 0,
    together: Together = ALONE,
) -> LoadedModel:
    """A frozen random model of this shape, without a tokenizer.

    Args:
        name: a catalogue key or hub id, ``tiny``, or a model's own description.
        quantization: a name of ``core.contract.weight_forms``.
        dtype: as in ModelChoice.
        layers: decoder layers; 0: the shape's own number.
        attn_implementation: as ``load_base`` takes it.
        streamed: decoder layers whose weights stay in the machine's memory.
        together: this process among those of the machine that draw the same at once.

    Raises:
        ModelError: the shape is unknown.
        MachineError: the model does not fit in memory.
    """
    spec, word = find_shape(name) if isinstance(name, str) else name, resolve_dtype(dtype, device)
    config = random_config(spec, layers)
    packed.register()
    chosen = attn_implementation or packed.choose_attention(config)
    with plain_words(f"random:{spec.key}"), quiet_bars(lambda _done, _total: None):
        entries = dict(_entries(config, (device, word), seed))
        target = Target(device, word, quantization, chosen, streamed)
        build = partial(assemble_streamed, together=together) if streamed else assemble
        model, _report = build(config, entries, target, f"random:{spec.key}")
    freeze(model)
    line = f"weights: random, {spec.title}'s shape{streamed_line(model, together)}"
    return LoadedModel(model=model, tokenizer=None, dtype=word, line=line)


def find_shape(name: str) -> ModelSpec:
    """The catalogue entry of this key or hub id, in any case, or the tiny model.

    Raises:
        ModelError: there is none.
    """
    wanted = ALIASES.get(name.lower(), name.lower())
    for spec in (TINY, *_language_models()):
        if wanted in (spec.key.lower(), spec.name.lower()):
            return spec
    raise ModelError("model.random", name=name, known=", ".join(known_names()))


def known_names() -> list[str]:
    """Names for ``random:``, smallest first, without hub ids."""
    return [TINY.key, *(spec.key for spec in _language_models()), *(alias for alias in ALIASES if "/" not in alias)]


def _language_models() -> list[ModelSpec]:
    return [spec for spec in catalogue() if not spec.encoder]


def random_config(spec: ModelSpec, layers: int = 0) -> Any:
    """transformers' config of a shape; ``layers`` other than 0 replaces its number of layers."""
    shape = spec.shape.model_copy(update={"num_hidden_layers": layers}) if layers else spec.shape
    numbers = shape.model_dump(exclude={"gated_mlp", "other_embeddings"}) | {"pad_token_id": None}
    if spec.encoder:
        numbers = fields_of(spec.model_type, shape)
    # Without default special tokens, which may lie outside a smaller vocabulary.
    return AutoConfig.for_model(spec.model_type, **{"bos_token_id": None, "eos_token_id": None, **numbers})


@dataclass(frozen=True)
class _Drawn:
    """An entry whose parameter is drawn on request."""

    shape: torch.Size
    place: tuple[torch.device, torch.dtype]
    seed: int
    fill: float | None
    """A constant value; None: drawn."""

    def __getitem__(self, _index: Any) -> torch.Tensor:
        device, dtype = self.place
        if self.fill is not None:
            return torch.full(self.shape, self.fill, device=device, dtype=dtype)
        generator = torch.Generator(device).manual_seed(self.seed)
        return torch.empty(self.shape, device=device, dtype=dtype).normal_(0.0, STANDARD_DEVIATION, generator=generator)

    def get_dtype(self) -> str:
        """The dtype's name in safetensors, which transformers asks for."""
        return WORDS[self.place[1]]


def _entries(config: Any, place: tuple[torch.device, torch.dtype], seed: int) -> Iterator[tuple[str, _Drawn]]:
    with torch.device("meta"):
        skeleton = auto_class().from_config(config)
    # A tied weight is listed once, under its first name, as in a file.
    for number, (name, parameter) in enumerate(skeleton.named_parameters()):
        yield name, _Drawn(parameter.shape, place, (seed << 20) + number, _fill(skeleton, name))


def _fill(skeleton: nn.Module, name: str) -> float | None:
    module, _, kind = name.rpartition(".")
    if kind == "bias":
        return 0.0
    if "norm" not in module.rpartition(".")[2]:
        return None
    # Gemma's norms multiply by one plus their weight.
    return 0.0 if type(skeleton.get_submodule(module)).__name__.startswith("Gemma") else 1.0
