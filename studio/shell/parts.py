"""The pieces of a page that are Gradio's."""

from typing import Any

import gradio as gr

_PLAIN: dict[str, Any] = {"js_on_load": None, "padding": False, "apply_default_css": False}


def board(value: str = "", elem_id: str | None = None, **options: Any) -> gr.HTML:
    """A piece of HTML on a page: no padding, no styles of Gradio's, no script (which the content policy forbids)."""
    return gr.HTML(value, elem_id=elem_id, **{**_PLAIN, **options})


def channel(name: str) -> gr.Textbox:
    """A hidden field through which a script says that a button with ``data-do="NAME"`` was pressed (``panels.js``).

    Its event is ``change`` (Gradio tells of ``input`` only in fields that are seen), so nothing else may write into it.
    What arrives is JSON: ``{"value": its data-value, "form": the fields of its data-form, "n": a number}``.
    """
    return gr.Textbox(visible="hidden", elem_id=f"act-{name}", interactive=True)
