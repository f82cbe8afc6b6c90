"""The studio as one process: finds a living one or becomes it, builds the pages, and stands them behind the guard.

    sealed ─► guard ─► shell ─► FastAPI: /studio/…, the live pages, and  / ─► opening ─► dressed ─► Gradio's New run

The port is bound, the guard answers and the browser is opened before the pages are there
(``studio/server/opening.py``), so that browser and studio start side by side; the live pages answer as soon as FastAPI
stands, and New run when Gradio does. No run lives here: closing the studio leaves every run untouched.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from core.contract.errors import MachineError
from core.machine.hardware import is_wsl
from core.machine.locations import ASSETS, Locations
from studio.figures.run_figures import full_disk
from studio.server.access.listening import Front, Wish, front_of, means
from studio.server.access.sessions import AccessTokens
from studio.server.browser import open_address
from studio.server.living import only_studio, remember, secret_of
from studio.words.text import say

if TYPE_CHECKING:
    from fastapi import FastAPI

    from studio.server.opening import Opening
    from studio.services.services import Studio
    from studio.shell.markup import Markup

DEFAULT_PORT = 8765
LOOPBACK = "127.0.0.1"
_TRIES = 10


def main(
    port: int | None = None, home: Path | str | None = None, open_browser: bool = True, wish: Wish | None = None
) -> int:
    """Opens the studio and serves it until Ctrl+C. ``port`` None tries the default and the ones after it.

    Raises:
        MachineError: the asked port, or every port tried, is in use; or what ``wish`` says cannot be.
    """
    locations = Locations.find(home).make()
    wish = wish or Wish()
    with only_studio(locations) as living:
        if living is None:
            return _become(locations, port, open_browser, wish)
    print(say("start.living", address=living), flush=True)
    if wish.address:
        print(say("listen.living"), flush=True)
    _open(living, open_browser)
    return 0


def _become(locations: Locations, port: int | None, open_browser: bool, wish: Wish) -> int:
    listener = bind(port, wish.address or LOOPBACK)
    number = int(listener.getsockname()[1])
    if port is None and number != DEFAULT_PORT:
        print(say("start.other_port", default=DEFAULT_PORT, port=number), flush=True)
    front, door = front_of(wish, number, locations), AccessTokens(locations.sessions)
    if wish.address:
        print(means(front, wish), flush=True)
    address = front.address(door.token())
    print(say("start.address", address=address), flush=True)
    if words := full_disk(locations.home):
        print(words, flush=True)
    threading.Thread(target=_open, args=(address, open_browser), daemon=True).start()
    return _serve(locations, listener, door, front)


def bind(port: int | None, address: str = LOOPBACK) -> socket.socket:
    """A listening socket, on loopback where nothing else was asked for.

    Raises:
        MachineError: the port is in use (only without a wish are the next ones tried), or the address is none of ours.
    """
    wished = [port] if port is not None else list(range(DEFAULT_PORT, DEFAULT_PORT + _TRIES))
    reason = ""
    for number in wished:
        # Said to be TCP, else asyncio leaves Nagle's algorithm on: a body then waits 40 ms for its header's receipt.
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, number))
            listener.listen(128)
        except OSError as error:
            listener.close()
            reason = error.strerror or str(error)
        else:
            return listener
    last = f"{wished[0]}" if len(wished) == 1 else f"{wished[0]} to {wished[-1]}"
    raise MachineError("port.taken", last=last, address=address, reason=reason, next_port=wished[-1] + 1)


def _open(address: str, wanted: bool) -> None:
    if wanted and not open_address(address, is_wsl()):
        print(say("start.no_browser"), flush=True)


def _serve(locations: Locations, listener: socket.socket, door: AccessTokens, front: Front) -> int:
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    import uvicorn

    from studio.pages.new_run.data.upload import forget_old
    from studio.server.access.guard import Guard
    from studio.server.connections import OPTIONS, Connection, raise_handle_limit
    from studio.services.services import opened
    from studio.shell.responses import Sealed

    raise_handle_limit()
    forget_old(locations)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn hands the signal on; what is open is then closed
    with opened(locations, front.port) as studio, remember(locations, front, studio.secret):
        app = application(studio, failed=lambda: setattr(server, "should_exit", True))
        config = uvicorn.Config(
            Sealed(Guard(app, door, front, lambda: secret_of(locations), studio.landing, locations.command())),
            http=Connection, **OPTIONS,
            log_level="error",  # whoever knocks could fill a terminal with warnings
            access_log=False, server_header=False, timeout_graceful_shutdown=1,
            proxy_headers=False, ssl_certfile=front.certificate, ssl_keyfile=front.key,
        )  # fmt: skip
        server = uvicorn.Server(config)
        # An open page's stream is cut off when we leave: nothing that a person at the terminal can do anything about.
        logging.getLogger("uvicorn.error").addFilter(lambda _: not server.should_exit)
        server.run(sockets=[listener])
    return 0


def application(studio: Studio, failed: Callable[[], None]) -> FastAPI:
    """All pages and routes, not yet guarded. ``failed`` is told where New run could not be built."""
    from fastapi import FastAPI
    from starlette.middleware import Middleware
    from starlette.responses import PlainTextResponse

    from studio.server.access.bodies import Bounded
    from studio.server.pages import OurFiles, page_routes
    from studio.shell.installed import manifest_route
    from studio.shell.json_routes import answer_faults
    from studio.shell.responses import Shell

    opening, layers = _opening(studio, failed), [Middleware(Shell), Middleware(Bounded)]
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, middleware=layers, lifespan=opening.lifespan)
    answer_faults(app)

    @app.get("/studio/standing")
    async def standing() -> dict[str, bool]:
        return {"built": await opening.built()}

    for router in (*page_routes(studio), manifest_route()):
        app.include_router(router)
    app.mount("/studio/assets", OurFiles(directory=ASSETS))
    app.mount("/studio", PlainTextResponse("Not found.", 404))  # what is asked below it is never Gradio's
    app.mount("/", opening)
    return app


def _opening(studio: Studio, failed: Callable[[], None]) -> Opening:
    """New run: its outline until Gradio's page is built, and then that page."""
    from studio.pages.new_run.outline import outline
    from studio.server.opening import Opening
    from studio.shell.frame import document
    from studio.shell.responses import Dressed

    def empty() -> Markup:
        return outline(studio.machine())

    def build() -> FastAPI:
        """Without a collection of garbage in between: importing and building only ever adds objects, and looking
        through them again and again took a fifth of the time."""
        gc.disable()
        try:
            from studio.server.window import new_run_app

            app = new_run_app(studio)
        finally:
            gc.freeze()
            gc.enable()
        app.add_middleware(Dressed, outline=empty)
        studio.wake()
        return app

    return Opening(build, lambda: document("/", empty(), script="/studio/assets/js/pages/opening.js"), failed)
