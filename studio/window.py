"""Gradio's part of the studio: one Blocks with a route a page, without Gradio's own footer and history."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import gradio as gr
from fastapi import FastAPI

from studio.house import Studio
from studio.pages import doctor, history, new_run, take_home, try_it, watch
from studio.text import say
from studio.theme import theme

__all__ = ["mount_pages"]

Build = Callable[[Studio], None]
_PAGES: tuple[tuple[str, str, Build], ...] = (
    ("nav.watch", "/watch", watch.build),
    ("nav.try", "/try", try_it.build),
    ("nav.take", "/take-home", take_home.build),
    ("nav.history", "/history", history.build),
    ("nav.doctor", "/doctor", doctor.build),
)


def mount_pages(app: FastAPI, studio: Studio) -> None:
    """Builds every page and mounts them at ``/``."""
    with gr.Blocks(title=say("app"), analytics_enabled=False, fill_width=True) as blocks:
        new_run.build(studio)
    for words, path, build in _PAGES:
        with blocks.route(say(words), path):
            build(studio)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that server-side rendering is off, as we ask for
        _mount(app, blocks, studio.port)


def _mount(app: FastAPI, blocks: gr.Blocks, port: int) -> None:
    gr.mount_gradio_app(
        app,
        blocks,
        path="/",
        server_name="127.0.0.1",
        server_port=port,
        footer_links=[],
        run_history=False,
        show_error=False,
        ssr_mode=False,
        enable_monitoring=False,
        theme=theme(),
    )
