"""``POST /studio/cache/clear``: throws the tokenised rows away that are kept; all of them can be made again."""

from __future__ import annotations

from fastapi import APIRouter

from core.data.tokens.cache import clear_cached
from core.machine.locations import Locations
from studio.figures.run_figures import bytes_words
from studio.server.live import SayingRoute
from studio.words.text import say

__all__ = ["kept_tokens"]


def kept_tokens(locations: Locations) -> APIRouter:
    """The route."""
    router = APIRouter(prefix="/studio", route_class=SayingRoute)

    @router.post("/cache/clear")
    def clear() -> dict[str, str]:
        return {"said": say("cache.cleared", size=bytes_words(clear_cached(locations)))}

    return router
