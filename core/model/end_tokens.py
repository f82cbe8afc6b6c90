"""The tokens at which a model itself ends an answer, as ``generate()`` does unless it is told otherwise."""

from collections.abc import Mapping
from typing import Any


def ends_of(model: Any) -> tuple[int, ...]:
    """The end tokens of a loaded model's generation config and of its config."""
    configs = (getattr(model, "generation_config", None), getattr(model, "config", None))
    return ends_in(*(config.to_dict() for config in configs if config is not None))


def ends_in(*configs: Mapping[str, Any]) -> tuple[int, ...]:
    """The end tokens that such configs name, each once; a config with a text model inside names them there too."""
    nested = [config["text_config"] for config in configs if isinstance(config.get("text_config"), Mapping)]
    named = [config.get("eos_token_id") for config in (*configs, *nested)]
    ids = [number for value in named for number in (value if isinstance(value, list) else [value])]
    return tuple(dict.fromkeys(number for number in ids if type(number) is int and number >= 0))
