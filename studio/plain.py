"""The pages that need no Gradio: plain HTML in our frame, filled by scripts from the routes of ``live.py``."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from studio.frame import document
from studio.house import Studio
from studio.markup import Markup
from studio.pages import doctor, glossary, history, proof, take_home, try_it, watch

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
