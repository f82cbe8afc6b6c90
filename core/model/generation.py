"""How a model generates: its context, the tokens that end an answer, and the generation config of its folder."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

from core.contract.config import DataChoice
from core.data.render.chat_tokens import stop_token_ids
from core.models.checks.claims import plain_generation
from core.models.positions import reach_of

_DEFAULT_CONTEXT = 32_768
_HARMLESS = {"use_cache", "transformers_version", "_from_model_config"}
"""Fields that a generation config may have beside numbers and ids without being rebuilt."""
_GREEDY: dict[str, Any] = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
"""None: a model's own generation config may bring values that greedy decoding would warn about."""


def context_of(model: Any) -> int:
    """Tokens of question and answer together by the model's config; 32,768 where it says nothing."""
    config: Any = getattr(model, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    positions = getattr(text, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions <= 0:
        return _DEFAULT_CONTEXT
    return reach_of({**vars(text), "max_position_embeddings": positions})


class StopWhen(StoppingCriteria):
    """Ends an answer early once ``asked()``."""

    def __init__(self, asked: Callable[[], bool]) -> None:
        self._asked = asked

    def __call__(self, input_ids: torch.Tensor, *_scores: Any, **_options: Any) -> Any:
        return torch.full((input_ids.shape[0],), self._asked(), device=input_ids.device)


class Generator:
    """A model with its tokenizer, its end tokens and those of the template that was trained on."""

    def __init__(self, model: Any, tokenizer: Any, data: DataChoice) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._ends = list(dict.fromkeys((*stop_token_ids(tokenizer, data), *ends_of(model))))

    def generate(
        self, ids: torch.Tensor, most: int, asked: Callable[[], bool], streamer: Any = None, **sampling: Any
    ) -> torch.Tensor:
        """Question ``[1, T]`` and its answer of at most ``most`` tokens, cut short once ``asked()``; without
        ``sampling`` (temperature, top_p) greedy."""
        grown: torch.Tensor = self._model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max(1, min(most, context_of(self._model) - ids.shape[1])),
            pad_token_id=self._tokenizer.pad_token_id,
            eos_token_id=self._ends or None,
            stopping_criteria=StoppingCriteriaList([StopWhen(asked)]),
            use_cache=True,
            streamer=streamer,
            **({"do_sample": True, **sampling} if sampling else _GREEDY),
        )
        return grown


def ends_of(model: Any) -> tuple[int, ...]:
    """The end tokens of a loaded model, from its generation config and its config."""
    configs = (getattr(model, "generation_config", None), getattr(model, "config", None))
    return ends_in(*(config.to_dict() for config in configs if config is not None))


def ends_in(*configs: Mapping[str, Any]) -> tuple[int, ...]:
    """The end tokens that these configs and their nested ``text_config`` name, each once."""
    nested = [config["text_config"] for config in configs if isinstance(config.get("text_config"), Mapping)]
    named = [config.get("eos_token_id") for config in (*configs, *nested)]
    ids = [number for value in named for number in (value if isinstance(value, list) else [value])]
    return tuple(dict.fromkeys(number for number in ids if type(number) is int and number >= 0))


def read_generation(model: Any, folder: Path) -> None:
    """Sets the model's generation config from its folder, reduced to ``plain_generation`` where it holds more."""
    if not model.can_generate():
        return
    try:
        read = GenerationConfig.from_pretrained(str(folder), local_files_only=True)
    except OSError:  # older folders keep it in config.json
        read = GenerationConfig.from_pretrained(
            str(folder), config_file_name="config.json", local_files_only=True, _from_model_config=True
        )
    values = read.to_dict()
    kept = plain_generation(values)
    others = {key for key, value in values.items() if value not in (None, False) and key not in kept}
    model.generation_config = GenerationConfig(**kept) if others - _HARMLESS else read
