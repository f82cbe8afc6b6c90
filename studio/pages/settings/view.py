"""The settings page's cards as HTML."""

import platform
from collections.abc import Sequence
from typing import Any

from core.data.tokens.cache import Cached, list_cached
from core.machine.hardware import is_wsl
from core.machine.host import Host
from core.machine.imports import version_of
from core.machine.settings import Settings
from core.models.hub.login import login_of_machine
from core.runs.process.desktop import can_tell
from studio.figures.run_figures import UNKNOWN, bytes_words, day_and_time
from studio.pages.settings.folders import Folder, folders_of
from studio.pages.settings.words import say
from studio.services.services import Studio
from studio.shell.frame import theme_choice
from studio.shell.markup import Markup, tag
from studio.shell.slots import button, slot

_LICENCE = "Apache-2.0"
_LIBRARIES = {"torch": "PyTorch", "transformers": "Transformers", "peft": "PEFT", "gradio": "Gradio"}


def login_words() -> dict[str, Any]:
    """Whether a token is here and whose, and what may be done with it."""
    login = login_of_machine()
    if login.variable:
        told = say("hub.variable", variable=login.variable), say("hub.variable.where")
    elif login.file:
        told = say("hub.file"), say("hub.file.where", file=login.file)
    else:
        told = say("hub.none"), ""
    tone = "good" if login.variable or login.file else "quiet"
    return {"state": told[0], "where": told[1], "tone": tone, "entered": not login.variable, "kept": bool(login.file)}


def hub_card() -> Markup:
    """The token: whether one is there, a field for another, a button that removes it."""
    told = login_words()
    dot = tag("span", class_="dot", aria_hidden="true")
    state = slot("state", "p", dot, slot("state-words", "b", told["state"]), class_=f"state tone-{told['tone']}")
    where = slot("where", "p", told["where"], class_="hint", hidden=not told["where"])
    field = slot(
        "token", "input", type="password", placeholder=say("hub.token.hint"), autocomplete="off", required=True
    )
    label = tag("label", tag("span", say("hub.token")), field)
    save = tag("button", say("hub.save"), type="submit", class_="push primary", data_f="save-token")
    line = tag("div", label, save, class_="choices")
    make = tag("p", say("hub.token.make"), class_="hint")
    form = slot("token-form", "form", line, make, hidden=not told["entered"])
    remove = button(say("hub.remove"), "quiet danger", data_f="remove-token", hidden=not told["kept"])
    return _card("hub", tag("div", state, where, remove, class_="setting"), form, _said("hub"))


def look_card() -> Markup:
    """The theme."""
    return _card("look", theme_choice("theme-here", say("look.theme"), class_="segments"))


def tell_card(chosen: Settings) -> Markup:
    """Whether the desktop tells of an end."""
    box = slot("notify", "input", type="checkbox", checked=chosen.notify)
    about = tag("span", say("tell.desktop.about"), class_="hint")
    words = tag("span", tag("b", say("tell.desktop")), about)
    nothing = None if can_tell(is_wsl()) else tag("p", say("tell.nothing"), class_="hint")
    browser = tag("p", say("tell.browser"), class_="hint")
    return _card("tell", tag("label", box, words, class_="check"), nothing, browser, _said("tell"), about=False)


def power_card(chosen: Settings) -> Markup:
    """The price of a kilowatt-hour."""
    price = slot("price", "input", type="number", min="0", max="1000", step="0.01", value=f"{chosen.kwh_price:g}")
    currency = slot("currency", "input", type="text", maxlength="8", value=chosen.currency, autocomplete="off")
    fields = (
        tag("label", tag("span", say(f"power.{name}")), field)
        for name, field in (("price", price), ("currency", currency))
    )
    save = tag("button", say("power.save"), type="submit", class_="push")
    return _card("power", slot("power-form", "form", *fields, save, class_="choices"), _said("power"))


def folders_card(studio: Studio) -> Markup:
    """Every folder with its path and size; the caches with what clearing them frees."""
    names = ("what", "where", "size", "do")
    head = tag("tr", *(tag("th", say(f"folders.{name}"), scope="col") for name in names))
    free = Host().free_bytes(studio.locations.home)
    room = say("folders.about", free=UNKNOWN if free is None else bytes_words(free), home=str(studio.locations.home))
    table = tag("table", tag("thead", head), tag("tbody", *map(_folder, folders_of(studio.locations))), class_="listed")
    top = tag("header", tag("h2", say("folders.title")), tag("p", room, class_="about"))
    kept = _kept(list_cached(studio.locations))
    return tag("section", top, _scrolled(table, say("folders.title")), kept, _said("folders"), class_="card whole")


def _kept(entries: Sequence[Cached]) -> Markup | None:
    """The tokenized rows that are kept, the last used first; folded."""
    if not entries:
        return None
    names = ("file", "tokenizer", "rows", "tokens", "size", "used")
    columns = tag("tr", *(tag("th", say(f"kept.{name}"), scope="col") for name in names))
    rows = []
    for one in entries:
        cells = (one.tokenizer, f"{one.rows:,}", f"{one.tokens:,}", bytes_words(one.bytes), day_and_time(one.used))
        rows.append(tag("tr", tag("th", one.file, scope="row"), *(tag("td", cell) for cell in cells)))
    table = tag("table", tag("thead", columns), tag("tbody", *rows), class_="listed")
    summary = tag("summary", say("kept.title", count=len(entries)))
    return slot("kept", "details", summary, tag("div", _scrolled(table, say("folders.tokens"))), class_="folded")


def _scrolled(table: Markup, name: str) -> Markup:
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=name)


def _folder(folder: Folder) -> Markup:
    what, path = say(f"folders.{folder.name}"), str(folder.path)
    about = say(f"folders.{folder.name}.about")
    if folder.name == "hub" and (free := Host().free_bytes(folder.path)) is not None:
        about = f"{about} {say('folders.hub.free', free=bytes_words(free))}"
    copy = button(say("folders.copy"), "quiet", data_copy=path, aria_label=say("folders.copy.name", what=what))
    size = tag("td", say("folders.measuring"), data_size=folder.name)
    clear = None
    if folder.cleared:
        named = say("folders.clear.name", what=what)
        clear = button(say("folders.clear"), "quiet", data_clear=folder.name, aria_label=named)
    name = tag("th", tag("b", what), tag("span", about, class_="hint"), scope="row")
    where = tag("td", tag("span", tag("code", path), copy, class_="place"))
    return tag("tr", name, where, size, tag("td", clear))


def about_card() -> Markup:
    """Versions, licence, and what is sent to nobody."""
    facts = [
        (say("about.version"), version_of("luthier") or UNKNOWN),
        (say("about.licence"), _LICENCE),
        ("Python", platform.python_version()),
        *((title, version_of(name) or UNKNOWN) for name, title in _LIBRARIES.items()),
    ]
    drawn = tag("dl", *(tag("div", tag("dt", name), tag("dd", fact)) for name, fact in facts), class_="run-facts")
    links = {name: tag("a", say(f"nav.{name}"), href=f"/{name}") for name in ("doctor", "proof", "glossary")}
    words = tag("p", Markup(say("about.links", **links)), class_="about")
    return tag(
        "section", tag("h2", say("about.title")), drawn, tag("p", say("about.privacy")), words, class_="card whole"
    )


def _card(name: str, *children: object, about: bool = True) -> Markup:
    said = tag("p", say(f"{name}.about"), class_="about") if about else None
    return tag("section", tag("header", tag("h2", say(f"{name}.title")), said), *children, class_="card")


def _said(name: str) -> Markup:
    return slot(f"said-{name}", "p", role="status", class_="hint")
