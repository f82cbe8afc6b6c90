"""FORMS: what a run can be exported as, a row each; a file in ``core/export/forms`` makes it."""

from dataclasses import dataclass
from typing import Literal

Form = Literal["adapter", "merged", "whole"]
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


FORMS: dict[Form, ExportForm] = {
    "adapter": ExportForm(what="A LoRA adapter", library="peft", tag="lora", whole=False),
    "merged": ExportForm(
        what="16-bit weights ({dtype}) with the adapter merged in,", library="transformers", tag="merged", whole=True
    ),
    "whole": ExportForm(
        what="Weights ({dtype}), all of them finetuned,", library="transformers", tag="full", whole=True
    ),
}
