"""Heads of scores: a row of logits for each text, from a decoder's last token or an encoder's own head; and the losses
over them, in transformers' terms (``problem_type``)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import transformers
from torch import nn

from core.contract.catalogue import ModelSpec
from core.contract.config import ModelChoice
from core.contract.errors import ModelError
from core.contract.tasks import TASKS, Outputs, Problem
from core.contract.weight_forms import DEFAULT_ARITHMETIC
from core.kernels.reference import wide
from core.model.attention.packed import NAME, bounds_mask
from core.model.encoders import surgery as encoder_surgery
from core.model.encoders.forward import classify_logits
from core.model.encoders.load import load_classifier, new_classifier
from core.model.layers import surgery
from core.model.layers.loss import TrainedModel
from core.model.layers.peft_bnb import base_causal_model
from core.model.loading.load import LoadedModel, freeze, load_base, resolve_dtype, tokenizer_of
from core.model.loading.random_weights import random_config, random_model
from core.models.checks.folder import read_config_json
from core.models.encoders import ENCODERS, encoder_of

_TASK = TASKS["sequence-classification"]
MOST_SAID = 3
"""Labels in a line of text, the likeliest ones."""
_WHOLE_FROM = 10_000
"""Numbers from here on are said without what is behind the point."""
_CARRIED = ("is_quantized", "is_loaded_in_4bit", "is_loaded_in_8bit", "quantization_method", "hf_quantizer")
"""What transformers' loading leaves on a model, and peft and saving read."""


Scores = tuple[tuple[str, float], ...]
"""Name and value of each score, in the head's order."""


@dataclass(frozen=True)
class _Kind:
    """``losses(logits, targets, weights)`` a row; ``shown(logits)``: probabilities, or the numbers themselves;
    ``said(scores)``: these as a line of text."""

    losses: Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
    shown: Callable[[torch.Tensor], torch.Tensor]
    said: Callable[[Scores], str]


def _several(logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    targets = targets.to(logits.dtype)
    return F.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights, reduction="none").mean(1)


def _numbers(logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    errors = (logits - targets.to(logits.dtype).view_as(logits)).square()
    return (errors if weights is None else errors * weights).mean(1)


def _percentages(scores: Scores) -> str:
    best = sorted(scores, key=lambda one: -one[1])[:MOST_SAID]
    more = " · …" if len(scores) > MOST_SAID else ""
    return " · ".join(f"{name} {value:.1%}" for name, value in best) + more


def _figures(scores: Scores) -> str:
    said = {name: f"{value:,.0f}" if abs(value) >= _WHOLE_FROM else f"{value:.4g}" for name, value in scores}
    return " · ".join(said.values() if len(said) == 1 else (f"{name} {figure}" for name, figure in said.items()))


KINDS: dict[Problem, _Kind] = {
    "single_label_classification": _Kind(
        lambda logits, targets, weights: F.cross_entropy(logits, targets, weight=weights, reduction="none"),
        lambda logits: logits.softmax(-1),
        _percentages,
    ),
    "multi_label_classification": _Kind(_several, torch.sigmoid, _percentages),
    "regression": _Kind(_numbers, lambda logits: logits, _figures),
}


def row_losses(
    logits: torch.Tensor, targets: torch.Tensor, problem: Problem, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """Each row's loss ``[rows]``; without weights their mean is the loss of transformers' own classifier.

    Args:
        logits: ``[rows, classes]``.
        targets: ``[rows]`` int64 for one label; ``[rows, classes]`` of 0 and 1 for several; numbers for a regression.
        weights: ``[classes]``: of each class, of each class's rows that have it, or of each number.
    """
    return KINDS[problem].losses(logits, targets, None if weights is None else weights.to(logits.dtype))


def shown(logits: torch.Tensor, problem: Problem) -> torch.Tensor:
    """``[rows, classes]``: probabilities that sum to 1, one probability a label, or the numbers."""
    return KINDS[problem].shown(logits)


class ScoreHead(NamedTuple):
    """A head of scores: what they are, and the seed that a new one is drawn from."""

    outputs: Outputs
    seed: int = 0


def swap_layers(
    model: nn.Module, kernels: surgery.Mode, packed: bool, dtype: torch.dtype, arithmetic: str = DEFAULT_ARITHMETIC
) -> Any:
    """Swaps a model's layers for fast ones where they can be; the plan of it, with ``lines()`` and ``fast``.

    Args:
        packed: rows come packed; an encoder that is given padded rows packs them.
        dtype: what products are computed in.
        arithmetic: in what those with frozen weights are (``core.contract.weight_forms``).
    """
    if encoder_of(base_causal_model(model).config) is None:
        swaps = surgery.plan(model, kernels, packed=packed, arithmetic=arithmetic)
        surgery.apply(model, swaps)
        return swaps
    packing = encoder_surgery.plan(model, None if kernels == "auto" else False, dtype, packed)
    encoder_surgery.apply(model, packing)
    return packing


def with_scores(model: Any, outputs: Outputs, seed: int) -> Any:
    """A loaded language model with a head of scores in place of its own: transformers' class for sequence
    classification over the same layers.

    The head ``[scores, D]`` is float32 without a bias, drawn as transformers draws it (from ``seed`` alone).

    Raises:
        ModelError: transformers has no such class for this type of model.
    """
    scored: Any = getattr(transformers, _TASK.classes).get(type(model.config), None)
    if scored is None:
        raise ModelError("model.no_scores", kind=model.config.model_type)
    config = model.config
    for name, value in outputs.settings().items():
        setattr(config, name, value)
    with torch.device("meta"):
        new = scored(config)
    setattr(new, new.base_model_prefix, model.base_model)
    weight = model.get_input_embeddings().weight
    drawn = torch.empty(len(outputs.names), config.get_text_config().hidden_size)
    drawn.normal_(0.0, config.get_text_config().initializer_range, generator=torch.Generator().manual_seed(seed))
    head = nn.Linear(drawn.shape[1], drawn.shape[0], bias=False, device="meta")
    head.weight = nn.Parameter(drawn.to(weight.device), requires_grad=False)
    setattr(new, _TASK.head, head)
    for name in _CARRIED:
        if hasattr(model, name):
            setattr(new, name, getattr(model, name))
    new.name_or_path = model.name_or_path
    return new.train(model.training)


def load_model(
    folder: Path, choice: ModelChoice, device: torch.device, head: ScoreHead | None = None, **options: Any
) -> LoadedModel:
    """A model for its task: without ``head`` a language model, with one a language model or an encoder that scores.

    An encoder's weights are float32; ``dtype`` is then what its products are computed in.

    Args:
        options: further ones of ``load_base``.

    Raises:
        ModelError, MachineError: as ``load_base``; or there is no such head for this type of model.
    """
    if head is None or str(read_config_json(folder).get("model_type")) not in ENCODERS:
        loaded = load_base(folder, choice, device, **options)
        if head:
            loaded = replace(loaded, model=with_scores(loaded.model, *head))
            loaded.model.config.pad_token_id = loaded.tokenizer.pad_token_id
        return loaded
    tokenizer = tokenizer_of(folder)
    model = load_classifier(folder, head.outputs, device, head.seed)
    freeze(model)
    model.name_or_path = choice.name if choice.source == "hub" else str(folder)
    if tokenizer.num_special_tokens_to_add(pair=True) > tokenizer.num_special_tokens_to_add(pair=False):
        model.config.sep_token_id = tokenizer.sep_token_id  # where the second of two texts begins
    return LoadedModel(
        model, tokenizer, resolve_dtype(choice.dtype, device), "weights read by transformers, in 32 bits"
    )


def products_dtype(name: str, device: torch.device) -> torch.dtype | None:
    """What an encoder's products are computed in under this dtype of a config; None: its weights' own, float32."""
    dtype = resolve_dtype(name, device)
    return None if dtype == torch.float32 else dtype


def random_for(
    spec: ModelSpec, choice: ModelChoice, device: torch.device, head: ScoreHead | None, seed: int
) -> LoadedModel:
    """The same with random weights of this shape, for measurements.

    Raises:
        ModelError: there is no such head for this type of model.
        MachineError: it does not fit in memory.
    """
    if head is not None and spec.encoder:
        model = new_classifier(random_config(spec), device, seed)
        freeze(model)
        return LoadedModel(model, None, resolve_dtype(choice.dtype, device), f"weights: random, {spec.title}'s shape")
    streamed = max(0, choice.streamed_layers)
    loaded = random_model(
        spec, device, quantization=choice.quantization, dtype=choice.dtype, seed=seed, streamed=streamed
    )
    return replace(loaded, model=with_scores(loaded.model, *head)) if head else loaded


class ScoreModel(TrainedModel):
    """Of a model for sequence classification, with or without peft's wrapper.

    Args:
        dtype: what an encoder's products are computed in; None: its weights'.
    """

    def __init__(
        self, model: nn.Module, trained: Sequence[nn.Parameter] = (), dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(model, trained)
        self._dtype = dtype
        self.packs = encoder_of(base_causal_model(model).config) is not None
        """Whether rows must come packed."""

    def forward(self, **batch: Any) -> torch.Tensor:
        """Logits ``[rows, scores]`` in float32 (float64 for a float64 head).

        Args:
            batch: packed or padded rows, as ``core.train.step.batches`` makes them; an encoder's are packed.
        """
        batch.pop("labels", None)
        if self.packs:
            return classify_logits(self.model, batch, self._dtype)
        base = base_causal_model(self.model)
        last = _last_tokens(batch, base.config.pad_token_id)
        if "cu_seq_lens_q" in batch and base.config._attn_implementation == NAME:
            batch["attention_mask"] = bounds_mask(batch["input_ids"].device)
        states = base.base_model(**batch, use_cache=False).last_hidden_state
        pooled = states.flatten(0, 1).index_select(0, last)
        head = getattr(base, _TASK.head)
        with torch.autocast(pooled.device.type, enabled=False):
            logits: torch.Tensor = head(pooled.to(next(head.parameters()).dtype))
        return logits.to(wide(logits.dtype))


@dataclass(frozen=True)
class Scored:
    """What a head of scores gives one text: a probability of each label, or numbers."""

    scores: Scores
    problem: Problem

    @property
    def text(self) -> str:
        """As a line: the likeliest labels first ("positive 97.3% · negative 2.7%"), or the numbers."""
        return KINDS[self.problem].said(self.scores)


def score(model: nn.Module, ids: Sequence[int], outputs: Outputs, dtype: torch.dtype | None = None) -> Scored:
    """The scores of one text.

    Args:
        model: as ``ScoreModel`` takes it, its layers swapped or not; to be in evaluation mode.
        ids: its tokens, one at least, laid out and cut as in training.
        outputs: the names of the scores.
        dtype: what an encoder's products are computed in.
    """
    device = next(model.parameters()).device
    batch: dict[str, Any] = {"input_ids": torch.tensor([list(ids)], dtype=torch.long, device=device)}
    config = base_causal_model(model).config
    if encoder_of(config) is None and config._attn_implementation != NAME:
        batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    else:
        bounds = torch.tensor([0, len(ids)], dtype=torch.int32, device=device)
        batch["position_ids"] = torch.arange(len(ids), device=device)[None]
        batch |= {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": len(ids), "max_length_k": len(ids)}
    with torch.no_grad():
        scores = shown(ScoreModel(model, dtype=dtype)(**batch), outputs.problem)[0]
    values = (scores.double() * outputs.scale + outputs.mean).tolist()
    return Scored(tuple(zip(outputs.names, values, strict=True)), outputs.problem)


def _last_tokens(batch: Mapping[str, Any], pad_id: int | None) -> torch.Tensor:
    """Where, of all tokens of a batch, each row is pooled: int64 ``[rows]``, as transformers' classifiers do at a row's
    last token that is not the padding's, which may be the end token too, or one that it shares with another row."""
    ids, shared = batch["input_ids"], batch.get("key_tokens")
    bounds = batch.get("cu_seq_lens_q" if shared is None else "cu_seq_lens_k")
    if shared is not None:
        ids = ids.flatten().index_select(0, shared)
    if bounds is None:
        bounds = torch.arange(0, ids.numel() + 1, ids.shape[1], device=ids.device)
        kept = batch["attention_mask"].flatten() > 0
    else:
        kept = torch.ones_like(ids.flatten(), dtype=torch.bool)
    lengths, places = bounds.diff().long(), torch.arange(ids.numel(), device=ids.device)
    if pad_id is not None:
        kept = kept & (ids.flatten() != pad_id)
    first = bounds[:-1].long().repeat_interleave(lengths, output_size=ids.numel())
    # Float64 counts exactly.
    last = torch.segment_reduce(torch.where(kept, places, first).double(), "max", lengths=lengths, unsafe=True)
    return last.long() if shared is None else shared.index_select(0, last.long())
