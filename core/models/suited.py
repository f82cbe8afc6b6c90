"""Which methods a model can learn by, and what of a config follows from the model: one place for window, command line,
estimate and worker. Nothing is loaded, and transformers is not imported."""

import importlib.util
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.errors import Fault, ModelError
from core.contract.estimate import Resolved
from core.contract.tasks import DEFAULT_LEARNS, LEARNS, TASKS, Task
from core.contract.weight_forms import DEFAULT_WEIGHT_FORM
from core.models.catalog import find_model
from core.models.positions import is_placed, unstretchable

FOLLOWING = ("train.learns", "model.quantization", "train.max_length")
"""What may follow from the model, by dotted key."""
_LISTED = re.compile(r'\(\s*"([\w-]+)",')


def unsuited(config: RunConfig, spec: ModelSpec) -> ModelError | None:
    """Why this model cannot be trained so; None where it can, or the method is left to the data."""
    (config, _), learning = suited(config, spec), config.learning
    if spec.encoder and config.method != "auto" and not learning.encoders:
        return ModelError("model.writes_none", method=learning.title, title=spec.title)
    if spec.encoder and not config.learns.encoders:
        return ModelError("model.encoder_whole", learns=config.learns.words, title=spec.title)
    if is_placed(config.model) and (why := unstretchable(spec)):
        return ModelError("model.rope", title=spec.title, reason=why)
    if learning.task.scores and not has_class(learning.task, spec.model_type):
        return ModelError("model.no_scores", kind=spec.model_type)
    return None


def suited(config: RunConfig, spec: ModelSpec) -> tuple[RunConfig, list[Resolved]]:
    """The config with what follows from the model, where nothing else was chosen, and a line for each."""
    lines: list[Resolved] = []
    for key, value, reason in _follows(config, spec) if spec.encoder else ():
        config = put(config, key, value)
        lines.append(Resolved(key=key, value=str(value), reason=reason))
    return config, lines


def faults_between(config: RunConfig) -> list[str]:
    """Faults between fields (``RunConfig.problems``) that are left with what follows from the model; where it is not
    found, all."""
    faults = config.problems()
    if faults and config.model.name:
        with suppress(Fault):
            spec = find_model(config.model.source, config.model.name, config.model.revision)
            faults = suited(config, spec)[0].problems()
    return faults


def put(config: RunConfig, key: str, value: Any) -> RunConfig:
    """The config with one key changed, dotted or not."""
    part, _, field = key.partition(".")
    if not field:
        return config.model_copy(update={part: value})
    return config.model_copy(update={part: getattr(config, part).model_copy(update={field: value})})


def _follows(config: RunConfig, spec: ModelSpec) -> Iterator[tuple[str, Any, str]]:
    """Of an encoder: dotted key, value, reason."""
    learns, most = config.train.learns, spec.shape.max_position_embeddings
    if learns == DEFAULT_LEARNS and not LEARNS[learns].encoders:
        learns = next(name for name, row in LEARNS.items() if row.encoders)
        yield "train.learns", learns, f"{spec.title} is an encoder: small enough to be trained whole"
    forms = LEARNS[learns].weight_forms
    if config.model.quantization == DEFAULT_WEIGHT_FORM not in forms:
        yield "model.quantization", forms[0], f"{LEARNS[learns].words} learns, of an encoder in 32 bits"
    if config.train.max_length > most:
        yield "train.max_length", most, f"the longest row that {spec.title} reads"


@lru_cache(maxsize=256)
def has_class(task: Task, model_type: str) -> bool:
    """Whether the installed transformers lists a class with this task's head for a type of model; True where its list
    cannot be read, and loading will tell."""
    listed = _listed(task.classes)
    return not listed or model_type in listed


@lru_cache(maxsize=len(TASKS))
def _listed(table: str) -> frozenset[str]:
    """The types in a table of transformers' ``modeling_auto.py``, read as text."""
    found = importlib.util.find_spec("transformers")
    try:
        assert found is not None
        assert found.origin is not None
        path = Path(found.origin).parent / "models" / "auto" / "modeling_auto.py"
        _, _, rest = path.read_text(encoding="utf-8").partition(f"{table}_NAMES = ")
    except (OSError, AssertionError):
        return frozenset()
    return frozenset(_LISTED.findall(rest[: rest.find("\n)")]))
