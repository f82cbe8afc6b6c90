"""All pages: plain pages in their frame, the JSON routes of their scripts, and files for the browser."""

from collections.abc import Callable, Iterator
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from studio.figures.held_out import HeldOut
from studio.figures.now import now_of
from studio.pages.doctor import page as doctor
from studio.pages.glossary import page as glossary
from studio.pages.history import page as history
from studio.pages.history import routes as history_routes
from studio.pages.history.files import file_routes
from studio.pages.new_run.data import table
from studio.pages.new_run.data.upload import uploads
from studio.pages.proof import page as proof
from studio.pages.report import routes as report_routes
from studio.pages.settings import page as settings
from studio.pages.settings import routes as settings_routes
from studio.pages.take_home import page as take_home
from studio.pages.take_home import routes as take_home_routes
from studio.pages.try_it import page as try_it
from studio.pages.try_it import routes as try_it_routes
from studio.pages.watch import page as watch
from studio.pages.watch import routes as watch_routes
from studio.services.services import Studio
from studio.shell.assets import KEPT, KINDS
from studio.shell.frame import document
from studio.shell.markup import Markup

PLAIN_PAGES: dict[str, Callable[[Studio], Markup]] = {
    "/watch": watch.page,
    "/try": try_it.page,
    "/take-home": take_home.page,
    "/history": history.page,
    "/doctor": doctor.page,
    "/proof": proof.page,
    "/glossary": glossary.page,
    "/settings": settings.page,
}
"""The pages without Gradio; each request makes its page anew."""


def page_routes(studio: Studio) -> Iterator[APIRouter]:
    """The routes of all pages."""
    held_out = HeldOut(studio.data)
    yield uploads(studio)
    yield table.routes(studio)
    yield watch_routes.routes(studio)
    yield try_it_routes.routes(studio, held_out)
    yield take_home_routes.routes(studio, held_out)
    yield history_routes.routes(studio)
    yield file_routes(studio)
    yield proof.routes(studio)
    yield report_routes.routes(studio)
    yield settings_routes.routes(studio)
    router = APIRouter(default_response_class=HTMLResponse)
    for path, page in PLAIN_PAGES.items():
        router.add_api_route(path, _plain_page(studio, path, page), methods=["GET"])
    yield router


def _plain_page(studio: Studio, path: str, page: Callable[[Studio], Markup]) -> Callable[[], str]:
    return lambda: document(path, page(studio), now_of(studio.store))


class OurFiles(StaticFiles):
    """Files for the browser, of known kinds only, below their version: a browser keeps them until that changes."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """The file, or 404."""
        kind = KINDS.get(Path(path).suffix)
        if kind is None:
            return PlainTextResponse("Not found.", 404)
        response = await super().get_response(path, scope)
        if response.status_code == 200:
            response.headers["Content-Type"], response.headers["Cache-Control"] = kind, KEPT
        return response
