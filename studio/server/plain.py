"""The pages that need no Gradio: plain HTML in our frame, filled by scripts from the routes of ``live.py``."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from studio.pages.doctor import page as doctor
from studio.pages.glossary import page as glossary
from studio.pages.history import page as history
from studio.pages.proof import page as proof
from studio.pages.take_home import page as take_home
from studio.pages.try_it import page as try_it
from studio.pages.watch import page as watch
from studio.services.services import Studio
from studio.shell.frame import document
from studio.shell.markup import Markup

__all__ = ["PAGES", "plain_pages"]

PAGES: dict[str, Callable[[Studio], Markup]] = {
    "/watch": watch.page,
    "/try": try_it.page,
    "/take-home": take_home.page,
    "/history": history.page,
    "/doctor": doctor.page,
    "/proof": proof.page,
    "/glossary": glossary.page,
}


def plain_pages(studio: Studio) -> APIRouter:
    """A route a page; each is made anew whenever it is asked for."""
    router = APIRouter(default_response_class=HTMLResponse)
    for path, page in PAGES.items():
        router.add_api_route(path, _answer(studio, path, page), methods=["GET"], name=path.lstrip("/"))
    return router


def _answer(studio: Studio, path: str, page: Callable[[Studio], Markup]) -> Callable[[], str]:
    def answer() -> str:
        return document(path, page(studio))

    return answer
