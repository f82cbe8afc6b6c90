"""Gradio's theme under our tokens: every colour is a variable of ``assets/studio.css``, light and dark alike."""

from __future__ import annotations

import gradio as gr
from gradio.themes.utils import colors, sizes

__all__ = ["theme"]

SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "Ubuntu", "Cantarell", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Cascadia Mono", "Consolas", "Liberation Mono", "monospace")


def theme() -> gr.themes.Base:
    """Flat surfaces, one accent, system fonts; nothing is loaded from outside."""
    base = gr.themes.Base(
        primary_hue=colors.neutral,
        neutral_hue=colors.neutral,
        spacing_size=sizes.spacing_md,
        radius_size=sizes.radius_sm,
        text_size=sizes.text_md,
        font=list(SANS),
        font_mono=list(MONO),
    )
    chosen = {name: f"var(--{token})" for name, token in _TOKENS.items()}
    return base.set(**chosen, **{f"{name}_dark": value for name, value in chosen.items() if name not in _ONE_MODE})


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
    "block_background_fill": "sheet",
    "block_border_color": "line",
    "block_label_background_fill": "sheet",
    "block_label_text_color": "ink-2",
    "block_title_text_color": "ink",
    "block_info_text_color": "ink-2",
    "panel_background_fill": "sheet",
    "panel_border_color": "line",
    "input_background_fill": "field",
    "input_background_fill_focus": "field",
    "input_background_fill_hover": "field",
    "input_border_color": "line-strong",
    "input_border_color_focus": "accent",
    "input_border_color_hover": "ink-3",
    "input_placeholder_color": "ink-3",
    "checkbox_background_color": "field",
    "checkbox_background_color_focus": "field",
    "checkbox_background_color_hover": "field",
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
    "checkbox_label_text_color": "ink",
    "checkbox_label_text_color_selected": "ink",
    "button_primary_background_fill": "accent",
    "button_primary_background_fill_hover": "accent-hover",
    "button_primary_text_color": "on-accent",
    "button_primary_text_color_hover": "on-accent",
    "button_primary_border_color": "accent",
    "button_primary_border_color_hover": "accent-hover",
    "button_secondary_background_fill": "sheet",
    "button_secondary_background_fill_hover": "paper",
    "button_secondary_text_color": "ink",
    "button_secondary_text_color_hover": "ink",
    "button_secondary_border_color": "line-strong",
    "button_secondary_border_color_hover": "ink-3",
    "slider_color": "accent",
    "table_text_color": "ink",
    "error_text_color": "bad",
    "error_background_fill": "bad-soft",
    "error_border_color": "bad",
}
_ONE_MODE: frozenset[str] = frozenset()
