"""Stands where the pages will be while they are still being built.

Gradio takes seconds to import and the pages a second to build. Meanwhile the guard already answers: the browser shows
the opening page, and whatever it asks for next waits here until there is somebody to answer it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["Opening"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Opening:
    """ASGI: builds the application in a thread and hands every request on to it, once it is there.

    Args:
        build: makes the application; called once.
        failed: told of what went wrong where it could not be built; the server then ends.
    """

    def __init__(self, build: Callable[[], FastAPI], failed: Callable[[], None]) -> None:
        self._build, self._failed = build, failed
        self._app: FastAPI | None = None
        self._ready = asyncio.Event()
        self._leaving = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        await self._ready.wait()
        assert self._app is not None
        await self._app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """The server counts as started at once; the application's own lifespan begins when it is built."""
        await receive()
        serving = asyncio.create_task(self._serve())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._leaving.set()
        await serving
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self) -> None:
        try:
            app = await asyncio.to_thread(self._build)
            async with app.router.lifespan_context(app):
                self._app = app
                self._ready.set()
                await self._leaving.wait()
        except Exception:  # noqa: BLE001 - whatever it is, the server must not wait for pages that never come
            sys.excepthook(*sys.exc_info())  # a fault of ours: for the terminal, no page stands that could say it
            self._failed()
