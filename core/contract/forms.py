"""FORMS: what a run can be taken home as, a row each; a file in ``core/export/forms`` makes it."""

from dataclasses import dataclass
from typing import Literal

Form = Literal["adapter", "merged"]
DEFAULT_FORM: Form = "adapter"


@dataclass(frozen=True)
class ExportForm:
    """One form of an export."""

    what: str
    """What it is, as its card begins; ``{dtype}`` is that of its weights."""
    library: str
    """The library that loads it, by its name on the hub."""
    tag: str
    whole: bool
    """Whether it holds the base model's weights: such a one runs alone, and takes twice the base's parameters."""


FORMS: dict[Form, ExportForm] = {
    "adapter": ExportForm(what="A LoRA adapter", library="peft", tag="lora", whole=False),
    "merged": ExportForm(
        what="16-bit weights ({dtype}) with the adapter merged in,", library="transformers", tag="merged", whole=True
    ),
}
