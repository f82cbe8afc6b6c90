"""The two forms for llama.cpp: the whole model as one GGUF file, quantised, and the adapter as a GGUF LoRA."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path

from core.contract.errors import ModelError
from core.contract.forms import Quantisation
from core.contract.tasks import LEARNS, Learns
from core.export.gguf.adapter import write_adapter
from core.export.gguf.metadata import facts_of, notes_of, read_config
from core.export.gguf.model import Check, Description, Progress, Quantiser, planned, write_model
from core.export.gguf.proof.check import Tried, Verified, affordable, verify
from core.export.gguf.proof.material import Material, material_of, within
from core.export.gguf.proof.streamed import Streamed, weighings_of
from core.export.gguf.vocabulary import vocabulary_of
from core.export.guides.modelfile import own_template
from core.export.guides.talk import Talk, talk_of
from core.export.parts import Parts
from core.export.weights import FinishedWeights, finished
from core.machine.disk import folder_bytes

UNQUANTISED: Quantisation = "f16"
"""Of the base model that an adapter is tried with."""
_BASE = ".base.part"
_HEADER_BYTES = 16 << 20
"""More than metadata and vocabulary take."""


class Written:
    """What is written of a run, each part made once."""

    def __init__(self, parts: Parts) -> None:
        assert parts.run
        self.parts, self._run = parts, parts.run.folder

    @cached_property
    def weights(self) -> FinishedWeights:
        """The finished ones."""
        parts = self.parts
        return finished(parts.base, parts.trained, parts.learns, parts.weights, parts.dtype)

    @cached_property
    def told(self) -> Description:
        """What stands beside the weights. Raises ModelError where GGUF cannot hold it."""
        talk, model = self._talk, read_config(self.parts.base, self.parts.model)
        vocabulary = vocabulary_of(talk.tokenizer, model.vocab_size, talk.ids, bool(talk.template.source))
        # A runtime puts the start token before a chat: where the template writes none, training had none.
        vocabulary = replace(vocabulary, begins=talk.begins)
        return Description(model, vocabulary, own_template(talk), self.parts.base_name)

    @cached_property
    def material(self) -> Material:
        """What it is tried on."""
        return material_of(self._run.path, self._run.config(), self._talk)

    @cached_property
    def _talk(self) -> Talk:
        return talk_of(self.parts.base, self._run.config())


def unchanged(base: Path) -> FinishedWeights:
    """The base model's own weights."""
    whole: Learns = LEARNS["everything"]
    return finished(base, base, whole)


def model_bytes(base: Path, quantisation: Quantisation) -> int:
    """How large the whole model's file will be. Raises ModelError where llama.cpp lacks the family, or a part of it."""
    config = read_config(base)
    facts_of(config)
    tensors = planned(config, unchanged(base), Quantiser(quantisation))
    return sum(tensor.bytes for tensor in tensors) + _HEADER_BYTES


def adapter_bytes(base: Path, adapter: Path) -> int:
    """How much an adapter takes, with the base model that it is tried with."""
    return 2 * folder_bytes(adapter) + model_bytes(base, UNQUANTISED)


def make_model(parts: Parts, draft: Path, progress: Progress, check: Check) -> str:
    """Writes the whole model's file; returns the name of its type."""
    written = Written(parts)
    told, weighings = written.told, {}
    if parts.importance:
        rows = within(written.material.seen, affordable(written.weights))
        if not rows:
            raise ModelError("gguf.rows")
        model = Streamed(told.config, written.weights, check)
        weighings = dict(weighings_of(model, [row.ids for row in rows]))
    how = Quantiser(parts.quantisation, weighings)
    write_model(draft / _file(parts), told, written.weights, how, progress, check)
    return parts.quantisation.upper()


def try_model(parts: Parts, draft: Path, check: Check) -> Verified:
    """Compares the file with the weights that it was written of."""
    written = Written(parts)
    own, kind = unchanged(parts.base), parts.quantisation
    tried = Tried(draft / _file(parts), written.told.config, written.weights, own, kind)
    return _with_notes(verify(tried, written.material, check), written.told)


def make_adapter(parts: Parts, draft: Path, progress: Progress, check: Check) -> str:
    """Writes the adapter's file."""
    config = read_config(parts.base)
    write_adapter(draft / "adapter.gguf", config, parts.base, parts.trained, progress, check)
    return ""


def try_adapter(parts: Parts, draft: Path, check: Check) -> Verified:
    """Writes the base model as a GGUF file, compares both together with the finished weights, and removes it."""
    written, own, place = Written(parts), unchanged(parts.base), draft / _BASE
    try:
        write_model(place, written.told, own, Quantiser(UNQUANTISED), lambda *_: None, check)
        tried = Tried(place, written.told.config, written.weights, own, UNQUANTISED, draft / "adapter.gguf")
        return _with_notes(verify(tried, written.material, check), written.told)
    finally:
        place.unlink(missing_ok=True)


def _file(parts: Parts) -> str:
    return f"model-{parts.quantisation.upper()}.gguf"


def _with_notes(verified: Verified, told: Description) -> Verified:
    notes = (*notes_of(told.config), *told.vocabulary.notes)
    return Verified(verified.checks, (*verified.warnings, *notes))
