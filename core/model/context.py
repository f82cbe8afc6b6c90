"""How many tokens a loaded model can look back on."""

from typing import Any

_UNSAID = 32_768


def context_of(model: Any) -> int:
    """Question and answer together, in tokens, as the config says it; 32,768 where it says nothing."""
    config: Any = getattr(model, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    said = getattr(text, "max_position_embeddings", None)
    return said if isinstance(said, int) and said > 0 else _UNSAID
