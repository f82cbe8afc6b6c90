"""The studio as one process: opens a running one or starts itself, and serves the pages behind the guard.

    sealed ─► guard ─► shell ─► FastAPI: /studio/…, the live pages, and  / ─► opening ─► dressed ─► Gradio's New run

The browser is opened before the pages are built (``opening.py``), so that both start side by side. No run lives here.
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
    """Serves the studio until Ctrl+C. ``port`` None tries the default and the ones after it.

    Raises:
        MachineError: the port, or every port tried, is in use; or ``wish`` cannot be fulfilled.
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
    front, tokens = front_of(wish, number, locations), AccessTokens(locations.sessions)
    if wish.address:
        print(means(front, wish), flush=True)
    address = front.address(tokens.token())
    print(say("start.address", address=address), flush=True)
    if words := full_disk(locations.home):
        print(words, flush=True)
    threading.Thread(target=_open, args=(address, open_browser), daemon=True).start()
    return _serve(locations, listener, tokens, front)


def bind(port: int | None, address: str = LOOPBACK) -> socket.socket:
    """A listening socket.

    Raises:
        MachineError: the port, or without one every port tried, is in use; or the address is not this machine's.
    """
    wished = [port] if port is not None else list(range(DEFAULT_PORT, DEFAULT_PORT + _TRIES))
    reason = ""
    for number in wished:
        # IPPROTO_TCP is named, else asyncio leaves Nagle's algorithm on: bodies then wait 40 ms for an acknowledgement.
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


def _serve(locations: Locations, listener: socket.socket, tokens: AccessTokens, front: Front) -> int:
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    import uvicorn

    from studio.pages.new_run.data.upload import forget_old
    from studio.server.access.guard import Guard
    from studio.server.connections import OPTIONS, Connection, raise_handle_limit
    from studio.services.services import opened
    from studio.shell.responses import Sealed

    raise_handle_limit()
    forget_old(locations)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn passes the signal on; contexts are then left
    with opened(locations, front.port) as studio, remember(locations, front, studio.secret):
        app = application(studio, failed=lambda: setattr(server, "should_exit", True))
        config = uvicorn.Config(
            Sealed(Guard(app, tokens, front, lambda: secret_of(locations), studio.landing, locations.command())),
            http=Connection, **OPTIONS,
            log_level="error",  # any client could fill the terminal with warnings
            access_log=False, server_header=False, timeout_graceful_shutdown=1,
            proxy_headers=False, ssl_certfile=front.certificate, ssl_keyfile=front.key,
        )  # fmt: skip
        server = uvicorn.Server(config)
        # At exit uvicorn reports the streams that it cuts off.
        logging.getLogger("uvicorn.error").addFilter(lambda _: not server.should_exit)
        server.run(sockets=[listener])
    return 0


def application(studio: Studio, failed: Callable[[], None]) -> FastAPI:
    """All pages and routes, without the guard. ``failed`` is called where New run cannot be built."""
    from fastapi import FastAPI
    from starlette.middleware import Middleware
    from starlette.responses import PlainTextResponse

    from studio.server.access.bodies import Bounded
    from studio.server.pages import OurFiles, page_routes
    from studio.shell.assets import PLACE, version
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
    app.mount(f"{PLACE}/{version()}", OurFiles(directory=ASSETS))
    app.mount("/studio", PlainTextResponse("Not found.", 404))  # nothing below /studio reaches Gradio
    app.mount("/", opening)
    return app


def _opening(studio: Studio, failed: Callable[[], None]) -> Opening:
    """New run: its outline until Gradio's page is built, then that page."""
    from studio.figures.now import now_of
    from studio.figures.queueing import held_cards
    from studio.pages.new_run.outline import outline
    from studio.server.importing import imported_lightly
    from studio.server.opening import Opening
    from studio.shell.assets import asset
    from studio.shell.frame import document
    from studio.shell.responses import Dressed

    def empty() -> Markup:
        machine = studio.machine()
        if len(machine.gpus) < 2:
            return outline(machine)
        return outline(machine, studio.drafts.load().config.train.cards, held_cards(studio.locations, machine))

    def build() -> FastAPI:
        """The last of what only adds objects: from here on garbage is collected again."""
        try:
            with imported_lightly():
                from studio.server.window import new_run_app
            app = new_run_app(studio)
        finally:
            gc.freeze()
            gc.enable()
        app.add_middleware(Dressed, outline=empty, now=lambda: now_of(studio.store))
        studio.wake()
        return app

    script = asset("js/pages/opening.js")
    return Opening(build, lambda: document("/", empty(), now_of(studio.store), script), failed)
