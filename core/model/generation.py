"""How a model generates: its context, the tokens that end an answer, and the generation config of its folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from core.models.checks.claims import plain_generation

_DEFAULT_CONTEXT = 32_768
_HARMLESS = {"use_cache", "transformers_version", "_from_model_config"}
"""Fields that a generation config may have beside numbers and ids without being rebuilt."""


def context_of(model: Any) -> int:
    """Tokens of question and answer together by the model's config; 32,768 where it says nothing."""
    config: Any = getattr(model, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    positions = getattr(text, "max_position_embeddings", None)
    return positions if isinstance(positions, int) and positions > 0 else _DEFAULT_CONTEXT


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
