"""The studio as an installable web application: its manifest, served before Gradio's own at the same path.

Its icons are made by ``assets/make_icons.py``.
"""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from studio.shell.assets import asset
from studio.shell.markup import Markup, join, tag
from studio.words.text import say

MANIFEST = "/manifest.json"
THEME_COLOURS = {"light": "#fffefc", "dark": "#1e1b18"}
"""``--sheet`` of ``assets/studio.css``; a test compares them."""
_ICONS = (
    ("icon-192.png", "192x192", "any"),
    ("icon-512.png", "512x512", "any"),
    ("icon-mask.png", "512x512", "maskable"),
)


def manifest() -> dict[str, Any]:
    """The web app manifest (w3.org/TR/appmanifest)."""
    icons: list[dict[str, str]] = [
        {"src": asset(f"icons/{name}"), "sizes": sizes, "type": "image/png", "purpose": purpose}
        for name, sizes, purpose in _ICONS
    ]
    icons.append({"src": asset("logo.svg"), "sizes": "any", "type": "image/svg+xml"})
    return {
        "id": "/",
        "name": say("app"),
        "short_name": say("app"),
        "description": say("app.about"),
        "start_url": "/",
        "scope": "/",
        "display": "standalone",
        "background_color": THEME_COLOURS["light"],
        "theme_color": THEME_COLOURS["light"],
        "icons": icons,
        "shortcuts": [
            {"name": say(words), "url": path}
            for path, words in (("/watch", "nav.watch"), ("/history", "nav.history"), ("/try", "nav.try"))
        ],
    }


def manifest_head() -> Markup:
    """Its part of every page's head. The manifest is requested with the cookie, or the guard would refuse it."""
    colours = (
        tag("meta", name_="theme-color", content=colour, media=f"(prefers-color-scheme: {theme})")
        for theme, colour in THEME_COLOURS.items()
    )
    link = tag("link", rel="manifest", crossorigin="use-credentials", href=MANIFEST)
    touch = tag("link", rel="apple-touch-icon", href=asset("icons/icon-192.png"))
    return join(link, touch, *colours)


def manifest_route() -> APIRouter:
    """The route; it has to be added before Gradio is mounted."""
    router = APIRouter()

    @router.get(MANIFEST)
    def answer() -> JSONResponse:
        return JSONResponse(manifest(), media_type="application/manifest+json")

    return router
