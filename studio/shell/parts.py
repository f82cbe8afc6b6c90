"""Gradio components that pages use, and its theme by our CSS variables."""

from typing import Any

import gradio as gr
from gradio.themes.utils import colors, sizes

_PLAIN: dict[str, Any] = {"js_on_load": None, "padding": False, "apply_default_css": False}


def board(value: str = "", elem_id: str | None = None, **options: Any) -> gr.HTML:
    """A piece of HTML on a page, without Gradio's padding, styles and script (which the content policy forbids)."""
    return gr.HTML(value, elem_id=elem_id, **{**_PLAIN, **options})


def channel(name: str) -> gr.Textbox:
    """A hidden field through which ``panels.js`` tells that a button with ``data-do="NAME"`` was pressed.

    Its event is ``change`` (Gradio sends ``input`` for visible fields only), so nothing else may write into it. Its
    value is JSON: ``{"value": its data-value, "form": the fields of its data-form, "n": a number}``.
    """
    return gr.Textbox(visible="hidden", elem_id=f"act-{name}", interactive=True)


SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "Ubuntu", "Cantarell", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Cascadia Mono", "Consolas", "Liberation Mono", "monospace")


def theme() -> gr.themes.Base:
    """Flat surfaces, one accent, system fonts; every colour is a variable of ``assets/studio.css``."""
    base = gr.themes.Base(
        primary_hue=colors.neutral,
        neutral_hue=colors.neutral,
        spacing_size=sizes.spacing_md,
        radius_size=_steps("round", "s s s m m l l"),
        text_size=_steps("type", "s s s s m l xl"),
        font=list(SANS),
        font_mono=list(MONO),
    )
    chosen = {name: f"var(--{token})" for name, token in _TOKENS.items()}
    return base.set(**chosen, **{f"{name}_dark": value for name, value in chosen.items()}, **_SHAPES)


def _steps(kind: str, names: str) -> sizes.Size:
    """Gradio's seven sizes, from extra extra small, by ours."""
    return sizes.Size(*(f"var(--{kind}-{name})" for name in names.split()))


_TOKENS = {
    "body_background_fill": "paper",
    "body_text_color": "ink",
    "body_text_color_subdued": "ink-2",
    "background_fill_primary": "sheet",
    "background_fill_secondary": "paper",
    "border_color_primary": "line",
    "border_color_accent": "accent",
    "border_color_accent_subdued": "line",
    "color_accent_soft": "accent-soft",
    "link_text_color": "accent-ink",
    "link_text_color_hover": "accent-ink",
    "link_text_color_active": "accent-ink",
    "link_text_color_visited": "accent-ink",
    "block_label_background_fill": "sheet",
    "block_label_text_color": "ink-2",
    "block_title_text_color": "ink",
    "panel_background_fill": "sheet",
    "input_background_fill": "field",
    "input_background_fill_focus": "field",
    "input_border_color": "line-strong",
    "input_border_color_focus": "accent",
    "input_border_color_hover": "ink-3",
    "input_placeholder_color": "ink-3",
    "checkbox_background_color": "field",
    "checkbox_background_color_selected": "accent",
    "checkbox_border_color": "line-strong",
    "checkbox_border_color_focus": "accent",
    "checkbox_border_color_hover": "ink-3",
    "checkbox_border_color_selected": "accent",
    "checkbox_label_background_fill": "field",
    "checkbox_label_background_fill_hover": "field",
    "checkbox_label_background_fill_selected": "accent-soft",
    "checkbox_label_border_color": "line-strong",
    "checkbox_label_border_color_hover": "ink-3",
    "checkbox_label_border_color_selected": "accent",
    "button_primary_background_fill": "accent",
    "button_primary_background_fill_hover": "accent-hover",
    "button_primary_text_color": "on-accent",
    "button_primary_border_color": "accent",
    "button_primary_border_color_hover": "accent-hover",
    "button_secondary_background_fill": "sheet",
    "button_secondary_background_fill_hover": "paper",
    "button_secondary_text_color": "ink",
    "button_secondary_border_color": "line-strong",
    "button_secondary_border_color_hover": "ink-3",
    "slider_color": "accent",
    "error_text_color": "bad",
    "error_background_fill": "bad-soft",
    "error_border_color": "bad",
}
_SHAPES = {
    "block_border_width": "0px",
    "block_padding": "0px",
    "block_radius": "0px",
    "shadow_drop": "var(--shadow)",
    "shadow_drop_lg": "var(--shadow)",
    "block_title_text_weight": "var(--strong)",
    "block_info_text_size": "var(--type-s)",
    "block_label_text_size": "var(--type-s)",
    "layout_gap": "var(--s3)",
    "input_border_width": "1px",
    "input_padding": "var(--s1) var(--s2)",
    "input_radius": "var(--round-m)",
    "input_text_size": "var(--type-s)",
    "checkbox_label_padding": "var(--s1) var(--s3)",
    "button_large_radius": "var(--round-m)",
    "button_large_padding": "var(--s3) var(--s4)",
    "button_small_text_size": "var(--type-s)",
    "button_small_text_weight": "var(--plain)",
    "button_small_radius": "var(--round-m)",
    "button_small_padding": "var(--s1) var(--s3)",
}
