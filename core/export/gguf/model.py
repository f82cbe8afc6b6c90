"""A run's finished weights as one GGUF file, or its adapter as another: which tensors, under which names, in which
order of rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import torch

from core.contract.errors import ModelError
from core.contract.forms import Quantisation
from core.export.gguf.architectures import Architecture, Config, of
from core.export.gguf.metadata import facts_of, head_size, rope_tensors
from core.export.gguf.mixtures import MIXTURES, Chooser
from core.export.gguf.vocabulary import Vocabulary
from core.export.gguf.writer import Tensor, Weighing, write_gguf
from core.export.sources import MOST_ELEMENTS, ranges
from core.export.weights import FinishedWeights

_SKIPPED = "rotary_emb.inv_freq"
"""Old files hold these; they follow from the config."""
Progress = Callable[[int, int], None]
Check = Callable[[], None]


@dataclass(frozen=True)
class Description:
    """What is written about a model beside its weights: its config, tokenizer, chat template and name for people."""

    config: Config
    vocabulary: Vocabulary
    template: str = ""
    name: str = ""


@dataclass(frozen=True)
class Quantiser:
    """Which types are written, and how much each input of a matrix matters, by the matrix's name in the model."""

    quantisation: Quantisation
    weighings: Mapping[str, Weighing] = field(default_factory=dict)


def write_model(
    path: Path,
    told: Description,
    weights: FinishedWeights,
    how: Quantiser,
    on_tensor: Progress,
    check: Check,
) -> None:
    """Writes the whole model.

    Raises:
        ModelError: llama.cpp lacks the family, or a part of it.
    """
    architecture = of(told.config).name
    # llama.cpp drops blanks behind special tokens in models that are called Phi-3, and in these alone.
    name = re.sub("phi-?3", "Phi 3", told.name, flags=re.IGNORECASE)
    name = f"Phi-3 {name}" if told.vocabulary.strips else name
    facts = {
        "general.architecture": architecture,
        "general.type": "model",
        "general.name": name or architecture,
        "general.file_type": MIXTURES[how.quantisation].number,
        "general.quantization_version": gguf.GGML_QUANT_VERSION,
        **{f"{architecture}.{key}": value for key, value in facts_of(told.config).items()},
        **_tokenizer(told),
    }
    write_gguf(path, facts, planned(told.config, weights, how), on_tensor, check)


def planned(config: Config, weights: FinishedWeights, how: Quantiser) -> list[Tensor]:
    """The tensors to write, under llama.cpp's names and in its types."""
    architecture = of(config)
    names = Names(architecture, config)
    tied = bool(config.tie_word_embeddings)
    if architecture.tied and not tied:
        raise ModelError("gguf.part", family=config.model_type, part="a head beside the embedding")
    grouped = config.num_attention_heads != config.num_key_value_heads
    chooser = Chooser(MIXTURES[how.quantisation], config.num_hidden_layers, grouped, tied, bool(how.weighings))
    made = [
        Tensor(name, tuple(values.shape), "F32", partial(iter, [values]))
        for name, values in rope_tensors(config).items()
    ]
    for entry in weights.entries.values():
        if entry.name.endswith(_SKIPPED) or (tied and entry.name == "lm_head.weight"):
            continue
        name, shape = names.of(entry.name), entry.shape
        if name == "token_embd.weight" and shape[0] != config.vocab_size:
            raise ModelError("gguf.part", family=config.model_type, part=f"an embedding of {shape[0]:,} rows")
        rows = partial(_rows, weights, entry.name, names)
        made.append(Tensor(name, shape, chooser.type_of(name, shape), rows, how.weighings.get(entry.name)))
    return made


class Names:
    """A family's tensors: their names in GGUF, and the order of their rows there."""

    def __init__(self, architecture: Architecture, config: Config) -> None:
        known = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
        self._map = gguf.get_tensor_name_map(known[architecture.name], config.num_hidden_layers)
        self._architecture, self._config = architecture, config

    def of(self, name: str) -> str:
        """Its name in GGUF. Raises ModelError where llama.cpp has no such tensor."""
        found = self._map.get_name(name, try_suffixes=(".weight", ".bias"))
        if found is None:
            raise ModelError("gguf.part", family=self._config.model_type, part=name)
        return str(found)

    def unit(self, name: str) -> int:
        """Rows that belong together: those of one head where pairs are reordered, else single ones."""
        reordered = self._architecture.paired and (".q_proj." in name or ".k_proj." in name)
        return head_size(self._config) if reordered else 1

    def arranged(self, name: str, rows: torch.Tensor) -> torch.Tensor:
        """Rows ``[n · unit, ...]`` in llama.cpp's order: of a head, the first half beside the second."""
        if (unit := self.unit(name)) > 1:
            rows = rows.reshape(-1, 2, unit // 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)
        offset = self._architecture.norm_offset if name.endswith("norm.weight") else 0.0
        return rows + offset if offset else rows


def _rows(weights: FinishedWeights, name: str, names: Names) -> Iterator[torch.Tensor]:
    unit, shape = names.unit(name), weights.entries[name].shape
    for start, stop in ranges((shape[0] // unit, unit, *shape[1:]), MOST_ELEMENTS):
        yield names.arranged(name, weights.rows(name, start * unit, stop * unit))


def _tokenizer(told: Description) -> dict[str, Any]:
    """The tokenizer's facts by their keys; those that are left out are as llama.cpp has them by default."""
    one = told.vocabulary
    facts: dict[str, Any] = {
        "model": one.model,
        "pre": one.rule,
        "tokens": list(one.tokens),
        "token_type": list(one.types),
        "add_bos_token": one.begins,
        "add_eos_token": one.ends,
        **{f"{name}_token_id": number for name, number in one.special.items()},
    }
    facts |= {"scores": list(one.scores)} if one.scores else {}
    facts |= {"merges": list(one.merges)} if one.merges else {}
    facts |= {} if one.prefix is None else {"add_space_prefix": one.prefix}
    made = {f"tokenizer.ggml.{key}": value for key, value in facts.items()}
    return made | ({"tokenizer.chat_template": told.template} if told.template else {})
