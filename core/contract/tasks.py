"""TASKS: what a model is trained to give, a row each: its head, and its names in libraries. LEARNS: what of it a run
trains, a row each; ``core.model.learners`` puts each onto a model, and all other code reads the row. STARTS: where a
fresh adapter begins other than at no change, a row each; makers are ``BEGINNINGS`` in ``core.model.adapters``."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from core.contract.forms import Form
from core.contract.weight_forms import WEIGHT_FORMS, WeightFormName

TaskName = Literal["language-model", "sequence-classification"]
DEFAULT_TASK: TaskName = "language-model"
Problem = Literal["single_label_classification", "multi_label_classification", "regression"]
"""What a head of scores gives, in transformers' terms: one label of several, any number of labels, or numbers."""
OUTPUTS_FILE = "labels.json"
"""Beside an adapter: the names of its head's scores, which peft does not keep."""


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
    scores: bool = False
    """Whether a text as a whole gets scores, instead of a next token."""
    head: str = ""
    """The decoder's head that is trained beside an adapter, as transformers names it."""


@dataclass(frozen=True)
class Outputs:
    """The scores of a head by name, in their order."""

    names: tuple[str, ...]
    problem: Problem = "single_label_classification"
    mean: float = 0.0
    scale: float = 1.0
    """A number is ``mean + scale · score``: a head learns numbers near 0."""

    def settings(self) -> dict[str, Any]:
        """Fields of a transformers config, and ``label_mean`` and ``label_scale`` of numbers that are not the scores
        themselves."""
        scaled = {"label_mean": self.mean, "label_scale": self.scale} if (self.mean, self.scale) != (0.0, 1.0) else {}
        return {
            "num_labels": len(self.names),
            "id2label": dict(enumerate(self.names)),
            "label2id": {name: number for number, name in enumerate(self.names)},
            "problem_type": self.problem,
            **scaled,
        }

    @staticmethod
    def of(config: Mapping[str, Any]) -> "Outputs":
        """From such fields, as a config.json or ``OUTPUTS_FILE`` has them; transformers writes two labels where a model
        names none."""
        said = {int(number): str(name) for number, name in (config.get("id2label") or {}).items()}
        names = tuple(said[number] for number in sorted(said)) or ("LABEL_0", "LABEL_1")
        usual: Problem = "single_label_classification" if names[1:] else "regression"
        mean, scale = float(config.get("label_mean", 0.0)), float(config.get("label_scale", 1.0))
        return Outputs(names, config.get("problem_type") or usual, mean, scale)


REWARD = Outputs(("reward",), "regression")
"""Of a model that says how good an answer is."""

TASKS: dict[TaskName, Task] = {
    "language-model": Task(
        title="Language model",
        model_class="AutoModelForCausalLM",
        classes="MODEL_FOR_CAUSAL_LM_MAPPING",
        peft_type="CAUSAL_LM",
        pipeline="text-generation",
    ),
    "sequence-classification": Task(
        title="Sequence classification",
        model_class="AutoModelForSequenceClassification",
        classes="MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
        peft_type="SEQ_CLS",
        pipeline="text-classification",
        scores=True,
        head="score",
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
    encoders: bool = False
    """Whether encoders can learn so, whose head of scores is new."""
    base: bool = False
    """Whether the base's own weights change, so that the untrained model is no longer in memory."""
    weight_forms: tuple[WeightFormName, ...] = tuple(form.name for form in WEIGHT_FORMS.values())
    """How the base may be held."""
    folder: str = "adapter"
    """What a checkpoint holds of it, under this name."""
    holds: str = "the adapter, as peft saves it"
    rate_share: float = 1.0
    """Its usual learning rate over an adapter's (a tenth: Schulman et al. 2025, "LoRA without regret")."""
    forms: tuple[Form, ...] = ("adapter", "merged", "gguf", "gguf_adapter", "script")
    """What it can be exported as; the first where nobody chose."""


LEARNS: dict[LearnsName, Learns] = {
    "adapter": Learns(title="Adapter (LoRA)", words="an adapter"),
    # peft's ``modules_to_save``: copies of embedding and head, trained in place of the base's.
    "adapter_embeddings": Learns(
        title="Adapter, embeddings and head",
        words="an adapter with embeddings and head",
        ends=True,
        holds="the adapter with embeddings and head, as peft saves them",
        forms=("adapter", "merged", "gguf", "script"),
    ),
    "everything": Learns(
        title="Everything (full finetuning)",
        words="every weight",
        adapter=False,
        ends=True,
        encoders=True,
        base=True,
        weight_forms=("none",),
        folder="model",
        holds="all weights in 32 bits, as transformers saves them",
        rate_share=0.1,
        forms=("whole", "gguf", "script"),
    ),
}

StartName = Literal["default", "pissa_niter_16", "loftq"]
"""As ``lora.init_lora_weights`` has it in a config: peft's names."""


@dataclass(frozen=True)
class AdapterStart:
    """One beginning. Beside the adapter lies a frozen copy of it, and what is saved is the change since."""

    taken_off: bool
    """Whether the copy is taken from the base's product, so that nothing changes at first."""
    of_quantised: bool
    """Whether it corrects quantised weights by those on disk: whole ones have nothing to correct."""


STARTS: Mapping[str, AdapterStart] = MappingProxyType(
    {
        "pissa_niter_16": AdapterStart(taken_off=True, of_quantised=False),
        "loftq": AdapterStart(taken_off=False, of_quantised=True),
    }
)
