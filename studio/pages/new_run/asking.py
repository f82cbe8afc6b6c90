"""Buttons within boards: what they ask for, and reading what arrives of it.

A board is HTML that Gradio has no events for. A press is sent as JSON through a hidden field (``parts.channel``): a
custom event of ``gr.HTML`` would want ``unsafe-eval``, and an endpoint of our own cannot answer Gradio's components.
"""

import json
from collections.abc import Mapping
from typing import Any

from studio.shell.markup import Markup, tag


def push(words: str, do: str, value: Mapping[str, Any] | None = None, **options: Any) -> Markup:
    """A quiet button that asks the handler behind the hidden field ``do`` for ``value``."""
    asked = {"data-do": do, "data-value": json.dumps(value or {})}
    return tag("button", words, type="button", class_="quiet-push", **options, **asked)


def sent(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a button sent: its value and the fields of its form. What is none of ours is nothing."""
    try:
        raw = json.loads(text or "{}")
        value, form = raw.get("value"), raw.get("form")
    except (ValueError, AttributeError):
        return {}, {}
    return value if isinstance(value, dict) else {}, form if isinstance(form, dict) else {}
