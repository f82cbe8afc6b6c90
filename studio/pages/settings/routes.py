"""The routes of the settings page. A token comes in and never goes out again."""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from core.machine.settings import Settings, read_settings, write_settings
from core.models.hub.login import log_in, log_out
from studio.figures.run_figures import bytes_words
from studio.pages.settings.folders import CacheName, clear_cache, sizes_of
from studio.pages.settings.view import login_words
from studio.pages.settings.words import say
from studio.services.services import Studio


class Entered(BaseModel):
    """A token as a person typed it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    token: Annotated[SecretStr, Field(max_length=500)]


class Chosen(BaseModel):
    """Settings that a person changed; those left out stay."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    notify: bool | None = None
    kwh_price: Annotated[float | None, Field(ge=0, le=1000, allow_inf_nan=False)] = None
    currency: Annotated[str | None, Field(max_length=8)] = None


def routes(studio: Studio) -> APIRouter:
    """``/studio/settings`` and below."""
    router = APIRouter(prefix="/studio/settings")

    @router.post("")
    def choose(chosen: Chosen) -> dict[str, str]:
        changed = {**read_settings(studio.locations).model_dump(), **chosen.model_dump(exclude_none=True)}
        write_settings(studio.locations, Settings.model_validate(changed))
        return {"said": say("settings.saved")}

    @router.post("/token")
    def enter(entered: Entered) -> dict[str, Any]:
        log_in(entered.token.get_secret_value().strip())
        return {"said": say("hub.saved"), **login_words()}

    @router.post("/token/remove")
    def remove() -> dict[str, Any]:
        log_out()
        return {"said": say("hub.removed"), **login_words()}

    @router.get("/sizes")
    def sizes() -> dict[str, str]:
        return {name: bytes_words(size) for name, size in sizes_of(studio.locations).items()}

    @router.post("/clear/{name}")
    def clear(name: CacheName) -> dict[str, str]:
        freed = clear_cache(studio.locations, name)
        return {"said": say("folders.cleared", size=bytes_words(freed)) if freed else say("folders.nothing")}

    return router
