"""Gradio's part of the studio: New run, one Blocks."""

import copy
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gradio as gr
from fastapi import FastAPI
from gradio.routes import App
from starlette.routing import Mount

from studio.pages.new_run.handlers import build
from studio.server.unheard import Unheard
from studio.services.services import Studio
from studio.shell.parts import theme
from studio.words.text import say

QUEUE_SECONDS, PROGRESS_SECONDS = 0.02, 0.1
NEVER = sys.maxsize


class Window(gr.Blocks):
    """Blocks that look at what an answer names. Of each output that it leaves alone Gradio makes the component anew, a
    third of a millisecond for each of a hundred, several times an edit."""

    async def postprocess_data(self, block_fn: Any, predictions: Any, state: Any) -> list[Any]:
        """What goes to the page, an output each."""
        if not isinstance(predictions, dict) or not any(output in predictions for output in block_fn.outputs):
            return await super().postprocess_data(block_fn, predictions, state)
        named = copy.copy(block_fn)
        named.outputs = [output for output in block_fn.outputs if output in predictions]
        said = iter(await super().postprocess_data(named, predictions, state))
        return [next(said) if output in predictions else gr.skip() for output in block_fn.outputs]


def new_run_app(studio: Studio) -> FastAPI:
    """Builds New run with the routes of Gradio's script."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    with _unserved(), Window(title=say("app"), analytics_enabled=False, fill_width=True) as blocks:
        build(studio)
    # Gradio's queue polls a thousand times a second, a twentieth of a core. Longer pauses, as it takes on Windows.
    queue = blocks._queue
    queue.sleep_when_free, queue.progress_update_sleep_when_free = QUEUE_SECONDS, PROGRESS_SECONDS
    queue.ANAYLTICS_CACHE_FREQUENCY = (
        NEVER  # a table of all events so far, made at each event for a page we do not have
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that server-side rendering is off, as we ask for
        gr.mount_gradio_app(
            app,
            blocks,
            path="/",
            server_name="127.0.0.1",
            server_port=studio.port,
            footer_links=[],
            run_history=False,
            show_error=False,
            ssr_mode=False,
            enable_monitoring=False,
            theme=theme(),
        )
    blocks.app = next(route.app for route in app.routes if isinstance(route, Mount))
    app.add_middleware(Unheard, queue=queue)
    return app


@contextmanager
def _unserved() -> Iterator[None]:
    """While Blocks are made here, they are without an application: Gradio makes one of a hundred routes at their begin
    and another at their end, before the one that is mounted."""
    whole = vars(App)["create_app"]
    App.create_app = staticmethod(lambda *_, **__: None)
    try:
        yield
    finally:
        App.create_app = whole
