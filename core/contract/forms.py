"""FORMS: what a run can be exported as, a row each; a file in ``core/export/forms`` makes it."""

from dataclasses import dataclass
from typing import Literal

FinishedFrom = Literal["original", "trained_on"]
"""Which base an adapter is added to: the original 16-bit weights, or those that a quantised run trained beside."""
Quantisation = Literal["bf16", "f16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0"]
"""As llama.cpp names them."""
QUANTISATIONS: dict[Quantisation, float] = {
    "bf16": 16, "f16": 16, "q8_0": 8.5, "q6_k": 6.6, "q5_k_m": 5.7, "q4_k_m": 4.9, "q4_0": 4.6,
}  # fmt: skip
"""About how many bits a weight takes, with scales and the layers that are held finer."""
DEFAULT_QUANTISATION: Quantisation = "q4_k_m"
Option = Literal["weights", "quantisation", "importance"]
"""Fields of an export's request that only some forms read."""

Form = Literal["adapter", "merged", "whole", "gguf", "gguf_adapter", "script"]
DEFAULT_FORM: Form = "adapter"


@dataclass(frozen=True)
class ExportForm:
    """One form of an export."""

    what: str
    """The beginning of its model card; ``{dtype}`` is that of its weights."""
    library: str
    """The library that loads it, by its name on the hub."""
    tag: str
    whole: bool
    """Whether it holds the base model's weights and runs alone."""
    options: frozenset[Option] = frozenset()
    """What of a request it reads beside name and checkpoint."""
    needs: tuple[str, ...] = ()
    """Packages that it is made with, as they are imported, and that may be missing."""
    weights: bool = True
    """Whether it holds what was trained."""
    rows: bool = False
    """Whether it holds rows of the data."""
    scores: bool = True
    """Whether a model with a head of scores can be taken so."""


FORMS: dict[Form, ExportForm] = {
    "adapter": ExportForm(what="A LoRA adapter", library="peft", tag="lora", whole=False),
    "merged": ExportForm(
        what="16-bit weights ({dtype}) with the adapter merged in,",
        library="transformers",
        tag="merged",
        whole=True,
        options=frozenset({"weights"}),
    ),
    "whole": ExportForm(
        what="Weights ({dtype}), all of them finetuned,", library="transformers", tag="full", whole=True
    ),
    "gguf": ExportForm(
        what="The whole model as a GGUF file ({dtype}),",
        library="gguf",
        tag="gguf",
        whole=True,
        options=frozenset({"weights", "quantisation", "importance"}),
        needs=("gguf", "xllamacpp"),
        scores=False,
    ),
    "gguf_adapter": ExportForm(
        what="A LoRA adapter as a GGUF file",
        library="gguf",
        tag="lora",
        whole=False,
        needs=("gguf", "xllamacpp"),
        scores=False,
    ),
    "script": ExportForm(
        what="The rows of a run and a script that trains it again, on transformers, peft and TRL alone. The run was",
        library="trl",
        tag="script",
        whole=False,
        weights=False,
        rows=True,
    ),
}
