"""New run, the first screen: three numbered blocks, *Data → Model → Train*, and a summary with Start, always in view.

Every event sends all fields; the page is the state (``Form``). An edit is answered twice: at once by arithmetic over
what is remembered, and then, where it touches rows or model, with what had to be looked up (``PageCache``).
"""

from __future__ import annotations

from studio.services.services import Studio

__all__ = ["build"]


def build(studio: Studio) -> None:
    """Puts the page into the open Blocks and connects it. Only here is Gradio imported: the outline needs none."""
    from studio.pages.new_run import layout
    from studio.pages.new_run.handlers import Handlers

    wires = Handlers(studio)
    parts = layout.lay_out(wires.form, wires.drafts.load(), studio)
    wires.connect(parts)
