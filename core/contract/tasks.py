"""TASKS: what a model is trained to give, a row each: its head, and its names in libraries. LEARNS: what of it a run
trains, a row each; ``core.model.learners`` puts each onto a model, and all other code reads the row."""

from dataclasses import dataclass
from typing import Literal

from core.contract.forms import Form
from core.contract.weight_forms import WEIGHT_FORMS, WeightFormName

TaskName = Literal["language-model"]
DEFAULT_TASK: TaskName = "language-model"


@dataclass(frozen=True)
class Task:
    """One task."""

    title: str
    model_class: str
    """The class of transformers that builds a model with this head."""
    classes: str
    """The table in transformers from a config's class to the model's."""
    peft_type: str
    """peft's ``task_type``, which decides what of a head an adapter folder holds."""
    pipeline: str
    """The hub's ``pipeline_tag``."""


TASKS: dict[TaskName, Task] = {
    "language-model": Task(
        title="Language model",
        model_class="AutoModelForCausalLM",
        classes="MODEL_FOR_CAUSAL_LM_MAPPING",
        peft_type="CAUSAL_LM",
        pipeline="text-generation",
    ),
}

LearnsName = Literal["adapter", "adapter_embeddings", "everything"]
"""As ``train.learns`` has it in a config."""
DEFAULT_LEARNS: LearnsName = "adapter"


@dataclass(frozen=True)
class Learns:
    """What learns in a run."""

    title: str
    words: str
    """In a sentence about a run."""
    adapter: bool = True
    """Whether an adapter lies beside the base's projections."""
    ends: bool = False
    """Whether embedding and head learn."""
    base: bool = False
    """Whether the base's own weights change, so that the untrained model is no longer in memory."""
    weight_forms: tuple[WeightFormName, ...] = tuple(form.name for form in WEIGHT_FORMS.values())
    """How the base may be held."""
    folder: str = "adapter"
    """What a checkpoint holds of it, under this name."""
    holds: str = "the adapter, as peft saves it"
    rate_share: float = 1.0
    """Its usual learning rate over an adapter's (a tenth: Schulman et al. 2025, "LoRA without regret")."""
    forms: tuple[Form, ...] = ("adapter", "merged")
    """What it can be exported as; the first where nobody chose."""


LEARNS: dict[LearnsName, Learns] = {
    "adapter": Learns(title="Adapter (LoRA)", words="an adapter"),
    # peft's ``modules_to_save``: copies of embedding and head, trained in place of the base's.
    "adapter_embeddings": Learns(
        title="Adapter, embeddings and head",
        words="an adapter with embeddings and head",
        ends=True,
        holds="the adapter with embeddings and head, as peft saves them",
    ),
    "everything": Learns(
        title="Everything (full finetuning)",
        words="every weight",
        adapter=False,
        ends=True,
        base=True,
        weight_forms=("none",),
        folder="model",
        holds="all weights in 32 bits, as transformers saves them",
        rate_share=0.1,
        forms=("whole",),
    ),
}
