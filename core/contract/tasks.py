"""TASKS: what a model is trained to give, a row each: its head, and its names in libraries."""

from dataclasses import dataclass
from typing import Literal

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
