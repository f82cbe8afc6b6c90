"""The doctor's one route: throws the tokenised rows away that are kept; all of them can be made again."""

from fastapi import APIRouter

from core.data.tokens.cache import clear_cached
from studio.figures.run_figures import bytes_words
from studio.pages.doctor.words import say
from studio.services.services import Studio


def routes(studio: Studio) -> APIRouter:
    """``/studio/cache/clear``."""
    router = APIRouter(prefix="/studio")

    @router.post("/cache/clear")
    def clear() -> dict[str, str]:
        return {"said": say("cache.cleared", size=bytes_words(clear_cached(studio.locations)))}

    return router
