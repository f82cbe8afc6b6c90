"""The pieces of a page that are Gradio's."""

from __future__ import annotations

from typing import Any

import gradio as gr

__all__ = ["board"]

_PLAIN: dict[str, Any] = {"js_on_load": None, "padding": False, "apply_default_css": False}


def board(value: str = "", elem_id: str | None = None, **options: Any) -> gr.HTML:
    """A piece of HTML on a page: no padding, no styles of Gradio's, no script (which the content policy forbids)."""
    return gr.HTML(value, elem_id=elem_id, **{**_PLAIN, **options})
