"""The settings page: the hub's token, look, notifications, electricity, folders, and what this is."""

from core.machine.settings import read_settings
from studio.pages.settings.view import about_card, folders_card, hub_card, look_card, power_card, tell_card
from studio.pages.settings.words import say
from studio.services.services import Studio
from studio.shell.markup import Markup, tag
from studio.shell.slots import live


def page(studio: Studio) -> Markup:
    """All cards; ``assets/js/pages/settings.js`` sends what is changed."""
    chosen = read_settings(studio.locations)
    cards = (hub_card(), look_card(), tell_card(chosen), power_card(chosen), folders_card(studio), about_card())
    words = {**say.under("folders"), "saving": say("hub.saving"), "save": say("hub.save")}
    return live("settings", words, tag("h1", say("settings.title")), tag("div", *cards, class_="cards"))
