"""Answers in New run's place while Gradio, which takes seconds to import, is built.

At ``/`` it serves New run's outline, whose script asks whether the page is ``built``; other requests wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Receive, Scope, Send

if TYPE_CHECKING:
    from fastapi import FastAPI

HOLD_SECONDS = 0.5


class Opening:
    """ASGI: builds Gradio's application in a thread, then passes every request on to it.

    Args:
        build: makes the application; called once.
        outline: the page at ``/`` until then.
        failed: called where it could not be built; it ends the server.
    """

    def __init__(self, build: Callable[[], FastAPI], outline: Callable[[], str], failed: Callable[[], None]) -> None:
        self._build, self._outline, self._failed = build, outline, failed
        self._app: ASGIApp | None = None
        self._ready = asyncio.Event()
        self._leaving = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None and scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/":
            await HTMLResponse(self._outline())(scope, receive, send)
            return
        await self._ready.wait()
        assert self._app is not None
        await self._app(scope, receive, send)

    async def built(self) -> bool:
        """Whether New run is there; waits ``HOLD_SECONDS`` for it."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ready.wait(), HOLD_SECONDS)
        return self._ready.is_set()

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Any) -> AsyncIterator[None]:
        """Starts at once; Gradio's own lifespan begins when it is built."""
        serving = asyncio.create_task(self._serve())
        yield
        self._leaving.set()
        await serving

    async def _serve(self) -> None:
        try:
            app = await asyncio.to_thread(self._build)
            async with app.router.lifespan_context(app):
                self._app = app
                self._ready.set()
                await self._leaving.wait()
        except Exception:  # noqa: BLE001 - requests must not wait for a page that never comes
            sys.excepthook(*sys.exc_info())  # no page is there to say it
            self._failed()
